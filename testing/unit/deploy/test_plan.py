"""Tests of the plan: hosts are divided into shares, which are planned at the same time."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from controller.deploy import plan, run
from controller.deploy.decide import DeployError, Result

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from controller.deploy.run import Site

ROOT = Path(__file__).resolve().parents[3]

GROUPS: Mapping[str, Sequence[str]] = {
    "proxy1": ["base", "proxy"],
    "hg1": ["base", "release", "ssh", "web"],
    "ldap1": ["base", "directory"],
    "s3-1": ["base", "objectstore", "monitoring"],
}


@pytest.mark.parametrize(
    ("number", "expected"),
    [
        (1, [["hg1", "s3-1", "ldap1", "proxy1"]]),
        (2, [["hg1", "proxy1"], ["s3-1", "ldap1"]]),
        (3, [["hg1"], ["ldap1", "proxy1"], ["s3-1"]]),
        (8, [["hg1"], ["s3-1"], ["ldap1"], ["proxy1"]]),
    ],
)
def test_shares_take_about_the_same_time_and_have_every_host_once(
    number: int, expected: list[list[str]]
) -> None:
    assert plan.shares(GROUPS, number) == expected


@pytest.mark.parametrize("number", range(1, 12))
def test_no_share_is_empty(number: int) -> None:
    hosts = {f"hgweb{index}": ["web"] for index in range(7)} | {"other": []}
    shares = plan.shares(hosts, number)
    assert all(shares)
    assert sorted(name for share in shares for name in share) == sorted(hosts)


class Playbooks:
    """Stands for site.yml on a share: the runs of two shares have to be at work together."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, codes: Mapping[str, int]) -> None:
        self.codes = codes
        self.together = threading.Barrier(2, timeout=20)
        monkeypatch.setattr(run, "site_playbook", self.run)
        monkeypatch.setattr(plan.os, "sched_getaffinity", lambda _pid: {0, 1})

    def run(
        self,
        _site: Site,
        _built: run.Built,
        hosts: Sequence[str],
        *,
        check: bool,
        tags: Sequence[str],
        aside: TextIO | None = None,
    ) -> tuple[dict[str, Result], int, Path]:
        assert check
        assert tags == ["web"]
        self.together.wait()
        if aside is not None:
            aside.write(f"changes of {' '.join(hosts)}\n")
        changed = {name: Result(int(name == "s3-1"), False) for name in hosts}
        return changed, self.codes.get(hosts[0], 0), ROOT / f"log-{hosts[0]}"


def planned(tmp_path: Path) -> tuple[list[str], str]:
    site = run.Site("x", tmp_path / "hosts.yml", GROUPS)
    return plan.make(site, run.Built("1.0", None, None), list(GROUPS), ["new1"], ["web"])


def test_shares_are_planned_together_and_the_second_is_shown_after_the_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    Playbooks(monkeypatch, {})
    changed, said = planned(tmp_path)
    assert changed == ["s3-1"]
    assert said.startswith("Plan: 1 change (s3-1 1); everything on new1")
    assert capsys.readouterr().out == "changes of s3-1 ldap1\n"


@pytest.mark.parametrize(
    ("codes", "said"),
    [
        ({"s3-1": 2}, r"exited with 2\).*log-s3-1"),
        ({"s3-1": 4}, "stopped answering.*log-s3-1"),
        ({"hg1": 4, "s3-1": 2}, r"exited with 2\).*log-s3-1"),
    ],
)
def test_a_share_that_fails_ends_the_plan_with_the_reason_that_says_most(
    codes: Mapping[str, int], said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    Playbooks(monkeypatch, codes)
    with pytest.raises(DeployError, match=f"(?s){said}"):
        planned(tmp_path)
