"""Whether a host may be put back after a change."""

from __future__ import annotations

from typing import Any

import pytest

from controller.deploy.check import held_seconds, problems, slowness

NEW = "0.1.0-bbbbbbbbbbbb"
LOOK = {"inactive": [], "release": NEW, "running": {"hgfleet-web.service": NEW}, "held": {}}
WEB = {
    "health": 404,
    "problem": "draining",
    "wrong": [],
    "errors": [],
    "clone": "",
    "seconds": [0.05, 0.06, 0.9],
    "peers": [[0.04, 0.05, 0.06]],
}


def host(look: dict[str, Any] | None = None, **web: object) -> dict[str, Any]:
    return {"expected": NEW, "look": LOOK | (look or {}), "web": WEB | web, "before": []}


def test_a_host_that_is_drained_and_well_may_be_put_back() -> None:
    assert problems(host()) == []


@pytest.mark.parametrize(
    ("bad", "word"),
    [
        (host({"inactive": ["hgfleet-web.service is activating"]}), "activating"),
        (host({"release": "0.1.0-a"}), "its release is 0.1.0-a"),
        (host({"running": {"hgfleet-relay.service": "0.1.0-a"}}), "still runs 0.1.0-a"),
        (host(wrong=["r: heads none, on the primary 1234"]), "wrong data: r: heads none"),
        (host(errors=["does not answer: /r/rev/1: timed out"]), "does not answer: /r/rev/1"),
        (host(health=503, problem="replication has not caught up"), "503: replication"),
        (host(health=0, errors=["does not answer: /healthz: timed out"]), "answer: /healthz"),
        (host(clone="hg pull: abort"), "abort"),
        (host(seconds=[1.0, 1.1, 1.2]), "a page takes 1.10 s"),
    ],
)
def test_each_problem_keeps_a_host_out(bad: dict[str, Any], word: str) -> None:
    (said,) = problems(bad)
    assert word in said


def test_without_a_peer_the_times_before_the_change_count() -> None:
    alone = host(peers=[], seconds=[1.0]) | {"before": [0.1, 0.1]}
    assert "a page takes 1.00 s, where it took 0.10 s" in problems(alone)[0]
    assert problems(alone | {"before": [0.9]}) == []


def test_a_host_without_release_and_pages_needs_its_units_alone() -> None:
    assert problems({"expected": "", "look": LOOK | {"release": "", "running": {}}}) == []


def test_a_slow_machine_is_no_slow_release() -> None:
    assert slowness([2.0], [[1.5]]) == ""
    assert slowness([0.3], [[0.1]]) == ""
    assert slowness([0.3], []) == ""
    assert slowness([3.1], [[1.5]])


def test_sessions_were_held_if_the_change_was_to_this_release() -> None:
    held = {"release": NEW, "seconds": 0.04}
    assert held_seconds(host({"held": held})) == 0.04
    assert held_seconds(host({"held": held | {"release": "0.1.0-a"}})) is None


def test_a_host_without_a_working_login_is_not_put_back() -> None:
    told = ["the key lookup fails (70): ImportError: no module"]
    assert problems(host() | {"ssh": {"problems": told}}) == told
    assert problems(host() | {"ssh": {"problems": []}}) == []
