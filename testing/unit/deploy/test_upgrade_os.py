"""./deploy INVENTORY --upgrade-os: its plan, its order, and its end at the first failure."""

from __future__ import annotations

import contextlib
import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from controller.bootstrap import ROOT
from controller.deploy import books, cli, lease, run, trees, upgrade_os
from controller.deploy.decide import HostState
from controller.deploy.upgrade_os import Upgrade

if TYPE_CHECKING:
    from collections.abc import Iterator

SITE = run.Site(
    "production",
    Path("/inventory/production/hosts.yml"),
    {
        "hg1": ["ssh", "web"],
        "hgweb1": ["web"],
        "ldap1": ["directory"],
        "proxy1": ["proxy"],
    },
)
SITE = run.Site(SITE.said, SITE.path, SITE.hosts, everything=SITE.hosts)
WAITS = Upgrade(["openssl", "tzdata"], 1, [], [])
RESTARTS = Upgrade([], 0, ["libc6 asks for it"], [])
NOTHING = Upgrade([], 0, [], [])


def test_the_plan_is_read_from_a_dry_run() -> None:
    packages = [
        {"name": "openssl", "old": "1", "new": "2", "security": True},
        {"name": "tzdata", "old": "1", "new": "2", "security": False},
    ]
    answers = {
        "hg1": {"msg": {"packages": packages, "restart": [], "after": []}},
        "ldap1": {"msg": {"packages": [], "restart": ["libc6 asks for it"], "after": []}},
    }
    away = {"proxy1": {"unreachable": True, "msg": "timed  out"}}
    tasks = [
        {"task": {"name": "Lists of packages are those of today"}, "hosts": away},
        {"task": {"name": upgrade_os.TASK}, "hosts": answers},
    ]
    plans, problems = upgrade_os.read("a warning\n" + json.dumps({"plays": [{"tasks": tasks}]}))
    assert plans == {"hg1": WAITS, "ldap1": RESTARTS}
    assert problems == {"proxy1": "timed out"}
    with pytest.raises(ValueError, match="substring"):
        upgrade_os.read("no JSON")


def test_hosts_come_one_by_one_and_the_primary_last() -> None:
    assert upgrade_os.order(SITE, list(SITE.hosts), "hg1") == ["ldap1", "hgweb1", "proxy1", "hg1"]


def test_a_person_reads_which_hosts_restart() -> None:
    kernel = Upgrade(["linux-image-6"], 1, [], ["linux-image-6 will be installed"])
    plans = {"hg1": WAITS, "ldap1": RESTARTS, "proxy1": NOTHING, "hgweb1": kernel}
    assert upgrade_os.plan_table(plans, ["hg1", "ldap1", "proxy1", "hgweb1"]).splitlines() == [
        "HOST    PACKAGES  SECURITY  RESTART",
        "hg1     2         1         if programs are left on replaced files",
        "ldap1   0         0         yes: libc6 asks for it",
        "proxy1  0         0         no",
        "hgweb1  1         1         yes: linux-image-6 will be installed",
    ]


class Lock:
    """The lock of the site, which the run keeps."""

    said: Final = {"id": "a", "said": "a", "taken": 1.0}

    def require(self) -> None:
        """Go on."""


class Stage:
    """A site whose hosts are asked and upgraded on paper; `failing` is a host that fails."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.done: list[str] = []
        self.failing = self.fails_in = ""
        self.problems: dict[str, list[str]] = {}
        self.found = {"hg1": WAITS, "hgweb1": NOTHING, "ldap1": NOTHING, "proxy1": RESTARTS}
        states = {name: HostState(primary="hg1") for name in SITE.hosts}
        states["hgweb1"] = HostState(primary="hg1", is_drained=True)
        monkeypatch.setattr(cli.bootstrap, "ensure_controller", lambda: None)
        monkeypatch.setattr(run, "read_site", lambda *_args, **_options: SITE)
        self.answers = [states]
        taken = trees.Taken("tree", "site", trees.Kept(ROOT, SITE.path))
        monkeypatch.setattr(trees, "take", lambda *_: taken)
        monkeypatch.setattr(run, "read_states", self.read_states)
        monkeypatch.setattr(upgrade_os, "look", lambda _site: self.found)
        monkeypatch.setattr(books, "play", self.play)
        monkeypatch.setattr(books, "check", self.check)
        monkeypatch.setattr(lease, "held", self.held)

    def read_states(self, _site: run.Site) -> dict[str, HostState]:
        return self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]

    @contextlib.contextmanager
    def held(self, _site: run.Site, of: Any) -> Iterator[Lock]:
        self.done.append(f"lock for {of.release}: {of.plan}")
        yield Lock()
        self.done.append("unlock")

    def check(self, _site: run.Site, hosts: list[str], _given: object) -> dict[str, Any]:
        self.done.append(" ".join(["check", *hosts]))
        problems_of = {name: self.problems.get(name, []) for name in hosts}
        for name, problems in problems_of.items():
            if not any(books.BEHIND in text for text in problems):
                self.problems.pop(name, None)
        return {name: {"problems": problems} for name, problems in problems_of.items()}

    def play(
        self, _site: run.Site, name: str, hosts: list[str], _given: object
    ) -> tuple[int, Path]:
        self.done.append(" ".join([name, *hosts]))
        fails = self.failing in hosts and self.fails_in in name
        return int(fails), ROOT / "log"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch) -> Stage:
    return Stage(monkeypatch)


def test_hosts_with_nothing_to_do_are_left_alone_but_for_one_that_is_drained(stage: Stage) -> None:
    assert cli.main(["production", "--upgrade-os", "--yes"]) == 0
    assert stage.done == [
        "lock for 2 packages of Debian: openssl, tzdata",
        *("../upgrade-os hgweb1", "check hgweb1", "ready hgweb1"),
        *("../upgrade-os proxy1", "check proxy1", "ready proxy1"),
        *("../upgrade-os hg1", "check hg1", "ready hg1"),
        "unlock",
    ]


@pytest.mark.parametrize(
    ("problem", "checks", "code"), [("wrong data: heads differ", 2, 0), ("nginx is failed", 1, 1)]
)
def test_a_push_on_its_way_is_waited_for_and_a_failed_unit_is_not(
    stage: Stage, problem: str, checks: int, code: int
) -> None:
    stage.problems = {"hgweb1": [problem]}
    assert cli.main(["production", "--upgrade-os", "--yes"]) == code
    assert stage.done.count("check hgweb1") == checks
    assert ("ready hgweb1" in stage.done) is not bool(code)


def test_nothing_is_upgraded_after_another_run_changed_a_host(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    (states,) = stage.answers
    stage.answers.append(states | {"hg1": replace(states["hg1"], current="0.2.0")})
    assert cli.main(["production", "--upgrade-os", "--yes"]) == 1
    assert "Another run changed hg1 since your plan" in capsys.readouterr().err
    assert [word for word in stage.done if "upgrade-os" in word] == []


def test_a_plan_changes_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.main(["production", "--upgrade-os", "--check"]) == 0
    assert "yes: libc6 asks for it" in capsys.readouterr().out
    assert stage.done == []


def test_the_first_failure_ends_the_run(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.failing = "proxy1"
    stage.problems = {"proxy1": ["haproxy is failed"]}
    assert cli.main(["production", "--upgrade-os", "--yes"]) == 1
    assert "../upgrade-os hg1" not in stage.done
    said = capsys.readouterr().err
    assert "The upgrade of proxy1 failed" in said
    assert "Upgraded before: hgweb1." in said


@pytest.mark.parametrize(
    ("problems", "last", "words"),
    [
        ([], "ready proxy1", "it passed the check, and was put back."),
        (["nginx is failed"], "drain proxy1", "it stays drained until /etc/hgfleet/web.drain"),
        (["/healthz says 503: behind"], "ready proxy1", "is used when it has caught up"),
    ],
)
def test_a_host_whose_upgrade_failed_is_put_back_or_told_to_be_drained(
    stage: Stage,
    capsys: pytest.CaptureFixture[str],
    problems: list[str],
    last: str,
    words: str,
) -> None:
    stage.failing, stage.fails_in = "proxy1", "../upgrade-os"
    stage.problems = {"proxy1": problems}
    assert cli.main(["production", "--upgrade-os", "--yes"]) == 1
    assert stage.done[-1] == last
    assert words in capsys.readouterr().err
