from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.steering import health
from hgfleet.steering.health import Condition, Findings, Health

if TYPE_CHECKING:
    from pathlib import Path


def after(*problems: str | None) -> Condition:
    condition = Condition()
    for problem in problems:
        condition = condition.after(problem)
    return condition


def test_the_first_probe_decides_at_once() -> None:
    assert after(None).is_up
    assert not after("refused").is_up


def test_one_failure_takes_an_endpoint_out_and_three_good_probes_bring_it_back() -> None:
    assert not after(None, None, None, "timeout").is_up
    assert after(None, "timeout").problem == "timeout"
    assert not after(None, "timeout", None, None).is_up
    assert after(None, "timeout", None, None, None).is_up


def test_an_endpoint_that_answers_every_other_time_stays_out() -> None:
    assert not after(*[None, "timeout"] * 10, None).is_up


def test_a_state_survives_being_written() -> None:
    state = Health(5.5, {"eu": after(None), "us": after("403")})
    assert health.parse(health.dump(state)) == state


def test_findings_survive_being_written() -> None:
    findings = Findings(
        {"https://x/y": "404", "https://x/ä": "a\nb"}, {"https://x/z", "https://x/y"}
    )
    # An object that is dead is not advertised, read or not.
    said = Findings({"https://x/y": "404", "https://x/ä": "a b"}, frozenset({"https://x/z"}))
    assert health.parse_findings(health.dump_findings(findings)) == said


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7, 1000])
def test_each_finding_is_found_and_no_other(tmp_path: Path, count: int) -> None:
    dead = {f"https://x/{'y' * (number % 9)}{number}": f"why {number}" for number in range(count)}
    path = tmp_path / "objects"
    path.write_bytes(health.dump_findings(Findings(dead, {"https://x/read"})))
    for url, reason in dead.items():
        assert health.look_up(path, [url]).dead == {url: reason}
    others = ["", "https://x/", "https://x/0 dead", "https://x/reader", "zzz", "https://x/rea"]
    assert health.look_up(path, others) == Findings()
    assert health.look_up(path, ["https://x/read", *others]).read == {"https://x/read"}


def test_without_findings_no_object_is_dead(tmp_path: Path) -> None:
    path = tmp_path / "objects"
    with pytest.raises(FileNotFoundError):
        health.look_up(path, ["https://x/y"])
    path.write_bytes(b"")
    assert health.look_up(path, ["https://x/y"]) == Findings()


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 3}', '{"format": 1, "written": "x"}', "[" * 100_000]
)
def test_a_damaged_state_is_none(text: str) -> None:
    assert health.parse(text) is None


def test_who_is_not_known_to_be_up_is_down() -> None:
    state = Health(0, {"eu": after(None), "us": after("x")})
    assert state.down(["eu", "us", "new"]) == {"us", "new"}


def test_a_state_is_trusted_for_a_while_only() -> None:
    state = Health(1000.0)
    assert state.is_current(1000.0 + health.MAX_AGE_SECONDS)
    assert not state.is_current(1001.0 + health.MAX_AGE_SECONDS)
    assert not state.is_current(999.0 - health.MAX_AGE_SECONDS)
