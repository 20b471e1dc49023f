"""The order of the steps of ./deploy, with Ansible replaced."""

from __future__ import annotations

import contextlib
import io
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.attestation import Attestation, Figures
from controller.deploy import (
    attested,
    books,
    cli,
    gate,
    lease,
    plan,
    run,
    survey,
    trees,
    verify,
    ways,
)
from controller.deploy.decide import HostState, Result

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from controller.deploy import history

ROOT = Path(__file__).resolve().parents[3]

TREE = "a" * 40
OLD, NEW = "0.1.0-aaaaaaaaaaaa", "0.1.0-bbbbbbbbbbbb"

RECAP = (
    "hg1  : ok=54   changed=3    unreachable=0    failed=0    skipped=13   rescued=0   ignored=0"
)


RELEASE, PROXY = frozenset({"release"}), frozenset({"proxy"})
HAD = ways.Way(NEW, "tree1", "site1")


class Stage:
    """Stands for Ansible: notes its runs, and gives the answers that a test sets."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
        self.done: list[str] = []
        self.states = {
            "hg1": HostState(True, OLD, (OLD,), groups=RELEASE),
            "proxy1": HostState(True, groups=PROXY),
        }
        self.after: dict[str, HostState] | None = {
            "hg1": HostState(True, NEW, (NEW, OLD), groups=RELEASE),
            "proxy1": HostState(True, groups=PROXY),
        }
        self.plan = {"hg1": Result(2, False), "proxy1": Result(0, False)}
        self.codes = {"plan": 0, "apply": 0}
        self.versions: list[str] = []
        self.builts: list[run.Built] = []
        self.records: list[history.Record] = []
        self.under_lock: list[str] = []
        self.refused: dict[str, list[str]] = {}
        self.kept: list[object] = []
        self.copies: list[object] = []
        self.formats: dict[str, Any] = {}
        self.steps: list[str] = []
        self.kept_records: dict[str, Any] = {}
        self.problems: list[list[str]] = []
        self.attestation: Attestation | None = Attestation(
            TREE, "2026-01-02T03:04:05Z", NEW, {"e2e": Figures(5, 0, 0, 60.0)}
        )
        self.hosts = {"hg1": ["release"], "proxy1": ["proxy"]}
        path = tmp_path / "production/hosts.yml"
        site = run.Site("production", path, self.hosts, everything=self.hosts)
        taken = trees.Taken("tree2", "site2", trees.Kept(tmp_path, path), TREE)
        monkeypatch.setattr(trees, "take", lambda *_: taken)
        monkeypatch.setattr(trees, "prune", lambda _named: None)
        monkeypatch.setattr(run, "LOGS", tmp_path)
        monkeypatch.setattr(run, "formats_of", lambda _built: self.formats)
        monkeypatch.setattr(books, "play", self.book)
        monkeypatch.setattr(books, "check", self.check)
        monkeypatch.setattr(cli, "CACHE", tmp_path)
        monkeypatch.setattr(cli.bootstrap, "ensure_controller", lambda: None)
        monkeypatch.setattr(run, "read_site", lambda *_args, **_kwargs: site)
        monkeypatch.setattr(attested, "read", lambda *_: gate.Found(self.attestation))
        monkeypatch.setattr(lease, "held", self.held)
        monkeypatch.setattr(run, "read_states", self.read_states)
        monkeypatch.setattr(survey, "refused_variables", self.refused_variables)
        monkeypatch.setattr(survey, "refused_registries", self.refused_registries)
        monkeypatch.setattr(run, "build", self.build)
        monkeypatch.setattr(run, "site_playbook", self.site_playbook)
        monkeypatch.setattr(plan, "MOST_SHARES", 1)

    def book(
        self, _site: run.Site, name: str, hosts: Sequence[str], variables: Mapping[str, Any]
    ) -> tuple[int, Path]:
        self.steps.append(f"{name} {' '.join(hosts)}")
        self.kept_records |= variables.get("roll_records", {})
        return self.codes.get(name, 0), ROOT / "log"

    def check(
        self, _site: run.Site, hosts: Sequence[str], _variables: Mapping[str, Any]
    ) -> dict[str, Any]:
        self.steps.append(f"check {' '.join(hosts)}")
        said = self.problems.pop(0) if self.problems else []
        return {name: {"problems": said, "held_seconds": None} for name in hosts}

    def read_states(self, _site: run.Site) -> dict[str, HostState]:
        applied = any(word.startswith("apply") for word in self.done)
        return self.after if applied and self.after is not None else self.states

    @contextlib.contextmanager
    def held(self, _site: run.Site, of: history.Record) -> Iterator[None]:
        self.records.append(of)
        before = len(self.done)
        yield
        self.under_lock = self.done[before:]

    def refused_variables(self, _site: run.Site, *_: object) -> dict[str, list[str]]:
        self.done.append("checks")
        return self.refused

    def refused_registries(self, *_: object) -> list[str]:
        return []

    def build(self) -> run.Built:
        self.done.append("build")
        return run.Built(NEW, Path("archive"), None)

    def site_playbook(
        self,
        site: run.Site,
        built: run.Built,
        hosts: list[str],
        *,
        check: bool,
        kept: object = None,
        tags: Sequence[str] = (),
        skipped: Sequence[str] = (),
        variables: Mapping[str, Any] | None = None,
        aside: object = None,
    ) -> tuple[dict[str, Result], int, Path]:
        assert aside is None
        name = "plan" if check else "apply"
        parts = [name, *hosts, *(f"--tags {tag}" for tag in tags)]
        words = " ".join([*parts, *(f"--skip-tags {tag}" for tag in skipped)])
        self.steps.append(words)
        self.kept += [] if check else [kept]
        self.copies.append(site.copy)
        self.done.append(words)
        self.kept_records |= (variables or {}).get("roll_records", {})
        self.versions.append(built.version)
        self.builts.append(built)
        return self.plan, self.codes[name], ROOT / "log"


@pytest.fixture
def stage(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Stage:
    return Stage(monkeypatch, tmp_path)


def test_a_deploy_checks_builds_plans_applies_and_says_how_to_go_back(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--yes"]) == 0
    assert stage.done == ["build", "plan hg1 proxy1", "apply hg1"]
    assert stage.under_lock == ["apply hg1"]
    assert stage.records[0].plan == "Plan: 2 changes (hg1 2)."
    assert stage.records[0].tests.startswith("tree aaaaaaaaaaaa passed")
    assert "./deploy production --rollback" in capsys.readouterr().out


@pytest.mark.parametrize("options", [(), ("--only", "people"), ("--rollback", OLD)])
def test_plan_and_roll_use_the_copies_that_the_gate_judged(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    options: tuple[str, ...],
) -> None:
    judged: list[object] = []
    real = attested.judge

    def judge(taken: trees.Taken, asked: Any) -> gate.Verdict:
        judged.append(taken)
        return real(taken, asked)

    monkeypatch.setattr(attested, "judge", judge)
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    if "--only" in options:
        after_a_deploy(stage)
    stage.states["hg1"] = replace(stage.states["hg1"], extensions=extensions)
    cli.main(["production", "--yes", *options])
    assert len(judged) == 1
    assert stage.copies
    assert set(stage.copies) == {trees.Kept(tmp_path, tmp_path / "production/hosts.yml")}


def test_a_host_that_is_away_after_the_plan_was_not_changed_by_another_run(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    away = stage.states | {"hg1": HostState(problem="no route to host")}
    answers = [stage.states, away]
    monkeypatch.setattr(run, "read_states", lambda _site: answers.pop(0))
    assert cli.main(["production", "--yes"]) == 1
    told = capsys.readouterr().err
    assert "hg1: no route to host" in told
    assert "Another run" not in told
    assert not [word for word in stage.done if word.startswith("apply")]


def after_a_deploy(stage: Stage, had: ways.Way = HAD) -> None:
    """Let all hosts have the new release, and hg1 the record of an earlier deploy."""
    for name, state in stage.states.items():
        stage.states[name] = replace(state, current=NEW if name == "hg1" else "")
    record = ways.done(None, had, 1.0)
    stage.states["hg1"] = replace(stage.states["hg1"], releases=(NEW, OLD), record=record)
    stage.after = None


def test_people_only_are_one_run_that_builds_and_drains_nothing_and_can_be_taken_back(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    after_a_deploy(stage)
    assert cli.main(["production", "--yes", "--only", "people"]) == 0
    assert stage.steps == ["apply hg1 proxy1 --tags people", "record hg1 proxy1"]
    assert stage.under_lock == ["apply hg1 proxy1 --tags people"]
    assert stage.records[0].plan == "people only"
    told = stage.kept_records["hg1"]
    assert ways.back(told, NEW) == HAD
    assert ways.present(told, NEW) == replace(HAD, later=(ways.Later("people", "tree2", "site2"),))
    assert stage.kept_records["proxy1"] == {}
    said = capsys.readouterr()
    assert "people only. All else stays as it is on the hosts." in said.err
    assert "./deploy production --rollback" in said.out


def test_a_run_of_a_part_that_fails_is_known_to_the_next(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    after_a_deploy(stage)
    stage.codes["apply"] = 2
    assert cli.main(["production", "--yes", "--only", "people"]) == 1
    assert "bring all parts: ./deploy production" in capsys.readouterr().err
    assert stage.kept_records["hg1"]["begun"] > 0


def test_a_run_that_asks_shows_the_plan_of_the_parts(stage: Stage) -> None:
    after_a_deploy(stage)
    assert cli.main(["production", "--check", "--only", "registry,people"]) == 0
    assert stage.done == ["plan hg1 proxy1 --tags people --tags primary --tags registry"]


@pytest.mark.parametrize(
    ("name", "state", "reason"),
    [
        ("hg1", {"is_unfinished": True}, "an earlier run broke off on hg1"),
        ("proxy1", {"provisioned": False}, "no run has brought all parts to proxy1 yet"),
        ("hg2", {}, f"hosts have different releases, {OLD} and {NEW}"),
    ],
)
def test_a_part_does_not_come_without_the_rest_to_hosts_that_need_it(
    stage: Stage,
    capsys: pytest.CaptureFixture[str],
    name: str,
    state: dict[str, Any],
    reason: str,
) -> None:
    after_a_deploy(stage)
    if name == "hg2":
        stage.hosts[name] = ["release"]
        stage.states[name] = HostState(True, OLD, (OLD,), groups=RELEASE)
    stage.states[name] = replace(stage.states[name], **state)
    assert cli.main(["production", "--yes", "--only", "people"]) == 1
    told = capsys.readouterr().err
    assert f"--only is not safe here: {reason}. Nothing was changed." in told
    assert "Bring all parts first: ./deploy production" in told
    assert not [word for word in stage.done if word.startswith("apply")]


def test_a_part_comes_from_the_tree_that_was_tested_with_the_release_of_the_hosts(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    after_a_deploy(stage)
    assert stage.attestation is not None
    stage.attestation = replace(stage.attestation, release=OLD)
    assert cli.main(["production", "--yes", "--only", "people"]) == 1
    assert stage.done == []
    assert f"Release {NEW} is not the one that was tested" in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), ("--only", "people"), ("--rollback",)])
def test_nothing_is_changed_after_another_run_changed_a_host(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    after_a_deploy(stage, ways.Way(NEW))
    stage.states["hg1"] = replace(
        stage.states["hg1"], record=ways.done(ways.Way(OLD), ways.Way(NEW), 1.0)
    )
    monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, None))
    other = replace(stage.states["hg1"], record=ways.done(ways.Way(OLD), ways.Way(NEW), 2.0))
    answers = [stage.states, stage.states | {"hg1": other}]
    monkeypatch.setattr(run, "read_states", lambda _site: answers.pop(0))
    assert cli.main(["production", "--yes", *options]) == 1
    assert "Another run changed hg1 since your plan" in capsys.readouterr().err
    assert not [word for word in stage.done if word.startswith("apply")]


def test_a_part_that_came_later_than_the_rest_comes_back_as_it_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The run before it leaves the part out, because it would bring back an even earlier state."""
    monkeypatch.setattr(trees, "find", lambda of: trees.Kept(Path(of.tree), Path(of.inventory)))
    monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, None))
    had = replace(HAD, release=OLD, later=(ways.Later("people", "tree1", "site1b"),))
    after_a_deploy(stage)
    record = ways.done(had, ways.Way(NEW, "tree2", "site2"), 1.0)
    stage.states["hg1"] = replace(stage.states["hg1"], record=record)
    assert cli.main(["production", "--yes", "--rollback"]) == 0
    assert stage.steps == [
        "drain hg1",
        *("apply hg1 --skip-tags people", "apply hg1 --tags people"),
        *("check hg1", "ready hg1"),
    ]
    assert stage.kept == [
        trees.Kept(Path("tree1"), Path("site1")),
        trees.Kept(Path("tree1"), Path("site1b")),
    ]
    assert stage.versions == [OLD, OLD]
    assert ways.present(stage.kept_records["hg1"], OLD) == had


def test_status_lists_releases_and_fails_unless_all_hosts_answer(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--status"]) == 0
    assert OLD in capsys.readouterr().out
    stage.states["proxy1"] = HostState(problem="no route to host")
    assert cli.main(["production", "--status"]) == 1
    assert stage.done == []


def test_check_ends_after_the_plan(stage: Stage) -> None:
    assert cli.main(["production", "--check"]) == 0
    assert stage.done[-1] == "plan hg1 proxy1"


def test_nothing_is_applied_when_nothing_would_change(stage: Stage) -> None:
    stage.plan = {"hg1": Result(0, False), "proxy1": Result(0, False)}
    assert cli.main(["production", "--yes"]) == 0
    assert stage.done[-1] == "plan hg1 proxy1"


def test_a_host_on_which_a_run_broke_off_is_changed_although_its_plan_is_empty(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.plan = {"hg1": Result(0, False), "proxy1": Result(0, False)}
    stage.states["hg1"] = replace(stage.states["hg1"], is_unfinished=True)
    assert cli.main(["production", "--yes"]) == 0
    assert "an earlier run broke off on hg1" in capsys.readouterr().err
    assert "check hg1" in stage.steps
    assert "check proxy1" not in stage.steps


def test_a_new_host_is_left_out_of_the_plan_and_applied(stage: Stage) -> None:
    stage.states["proxy1"] = HostState()
    stage.plan = {}
    assert cli.main(["production", "--yes"]) == 0
    assert stage.done == [
        *["checks", "build", "plan hg1"],
        *["apply hg1", "apply proxy1"],
    ]


def test_a_new_mirror_that_catches_up_is_no_failure(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.states["hg1"] = stage.states["proxy1"] = HostState()
    behind = ["/healthz says 503: replication has not caught up", "wrong data: r: heads none"]
    stage.problems = [behind] * 4
    assert cli.main(["production", "--yes"]) == 0
    assert stage.steps == ["apply hg1 proxy1", "record hg1 proxy1", *["check hg1 proxy1"] * 4]
    assert "not caught up yet" in capsys.readouterr().err


def test_a_new_host_that_is_not_well_is_a_failure(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.states["hg1"] = stage.states["proxy1"] = HostState()
    stage.problems = [["nginx.service is failed"]]
    assert cli.main(["production", "--yes"]) == 1
    assert "New hosts are not well: hg1: nginx.service is failed" in capsys.readouterr().err


def test_without_a_plan_the_variables_are_still_checked(stage: Stage) -> None:
    assert cli.main(["production", "--yes", "--no-plan"]) == 0
    assert stage.done == ["checks", "build", "apply hg1", "apply proxy1"]


@pytest.mark.usefixtures("stage")
@pytest.mark.parametrize("code", [0, 1])
def test_a_site_is_verified_when_that_is_asked_for(
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    code: int,
) -> None:
    commands: list[list[str]] = []
    monkeypatch.setattr(verify.subprocess, "call", lambda words: commands.append(words) or code)
    assert cli.main(["site", "--yes", "--verify"]) == code
    assert [words[1:] for words in commands] == [[str(ROOT / "run-tests"), "site:production"]]
    assert ("back: ./deploy production --rollback" in capsys.readouterr().err) is bool(code)
    assert cli.main(["site", "--yes"]) == 0
    assert "To verify the site: ./run-tests site:production" in capsys.readouterr().out
    assert len(commands) == 1


def test_nothing_begins_when_no_question_can_be_asked(
    stage: Stage, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO())
    assert cli.main(["production"]) == 1
    assert stage.done == []
    assert "--yes" in capsys.readouterr().err


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(("answer", "applied"), [("yes\n", True), ("y\n", False), ("", False)])
def test_only_yes_applies(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, answer: str, applied: bool
) -> None:
    monkeypatch.setattr(sys, "stdin", _Terminal(answer))
    assert (cli.main(["production"]) == 0) is applied
    assert stage.done[-1].startswith("apply") is applied


def test_an_untested_tree_is_refused_before_a_host_is_asked(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.attestation = None
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done == []
    assert "Run ./run-tests" in capsys.readouterr().err


def test_a_plan_tells_that_the_tree_is_untested_and_goes_on(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.attestation = None
    assert cli.main(["production", "--check"]) == 0
    assert "UNTESTED: No attestation" in capsys.readouterr().err
    assert stage.done[-1] == "plan hg1 proxy1"


def test_the_reason_to_deploy_an_untested_tree_is_in_plan_and_summary(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.attestation = None
    assert cli.main(["production", "--yes", "--untested", "outage of the primary"]) == 0
    told = capsys.readouterr()
    assert "UNTESTED: outage of the primary" in told.out
    assert "UNTESTED: outage of the primary" in told.err


def test_a_release_that_was_not_tested_with_the_tree_is_not_applied(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert stage.attestation is not None
    stage.attestation = replace(stage.attestation, release=OLD)
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done == ["build"]
    assert f"which is {OLD}" in capsys.readouterr().err


def test_an_unreachable_host_stops_before_anything_is_built(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.states["proxy1"] = HostState(problem="no route to host")
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done == ["checks"]
    assert "proxy1: no route to host" in capsys.readouterr().err


def test_a_failed_plan_applies_nothing(stage: Stage, capsys: pytest.CaptureFixture[str]) -> None:
    stage.codes["plan"] = 2
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done[-1] == "plan hg1 proxy1"
    assert "Nothing was changed" in capsys.readouterr().err


def test_a_host_that_vanishes_during_the_plan_is_no_reason_to_leave_the_plan_out(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.codes["plan"] = run.UNREACHABLE
    assert cli.main(["production", "--yes"]) == 1
    told = capsys.readouterr().err
    assert "stopped answering" in told
    assert "--no-plan" not in told


HG1 = ["drain hg1", "apply hg1", "check hg1", "ready hg1"]


def test_a_batch_is_drained_changed_checked_and_put_back(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--yes"]) == 0
    assert stage.steps == ["plan hg1 proxy1", *HG1]
    record = stage.kept_records["hg1"]
    assert record["now"] == {"release": NEW, "tree": "tree2", "inventory": "site2"}
    assert record["before"] == {"release": OLD, "tree": "", "inventory": ""}
    assert f"hg1   {OLD}  {NEW}" in capsys.readouterr().out


def test_a_batch_that_is_not_well_is_taken_back_and_no_other_host_is_touched(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.problems = [["hgfleet-web.service is failed"]]
    assert cli.main(["production", "--yes", "--no-plan"]) == 1
    assert stage.steps == [*HG1[:-1], *HG1[1:]]
    assert stage.versions == [NEW, OLD]
    assert stage.kept_records["hg1"]["now"]["release"] == OLD
    assert stage.kept_records["hg1"]["begun"] is False
    told = capsys.readouterr().err
    assert "hg1: hgfleet-web.service is failed" in told
    assert "No other host was touched" in told


def test_a_run_that_fails_is_taken_back_and_a_host_that_stays_ill_stays_drained(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.codes["apply"] = 2
    stage.problems = [["nginx.service is failed"]]
    assert cli.main(["production", "--yes"]) == 1
    assert stage.steps[-4:] == ["apply hg1", "apply hg1", "check hg1", "drain hg1"]
    told = capsys.readouterr().err
    assert "Going back failed too" in told
    assert "stay drained until" in told


def test_a_host_that_cannot_be_drained_is_not_changed(stage: Stage) -> None:
    stage.codes["drain"] = 2
    assert cli.main(["production", "--yes"]) == 1
    assert stage.steps[-2:] == ["drain hg1", "ready hg1"]


def test_a_push_on_its_way_to_the_mirror_is_waited_for(stage: Stage) -> None:
    stage.problems = [["wrong data: r: heads 1"], ["/healthz says 503: behind"]]
    assert cli.main(["production", "--yes"]) == 0
    assert stage.steps.count("check hg1") == 3


def test_hosts_that_a_killed_deploy_left_drained_are_put_back_first(stage: Stage) -> None:
    stage.states["hg1"] = replace(stage.states["hg1"], is_drained=True)
    assert cli.main(["production", "--yes"]) == 0
    assert stage.steps[1] == "ready hg1"


def test_one_word_takes_back_what_the_last_change_of_each_host_was(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    kept = trees.Kept(Path("tree1"), Path("site1"))
    monkeypatch.setattr(trees, "find", lambda _way: kept)
    monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, None))
    had, has = ways.Way(OLD, "tree1", "site1"), ways.Way(NEW, "tree2", "site2")
    stage.states["hg1"] = replace(
        stage.states["hg1"], current=NEW, releases=(NEW, OLD), record=ways.done(had, has, 1.0)
    )
    assert cli.main(["production", "--yes", "--rollback"]) == 0
    assert stage.steps == HG1
    assert stage.versions == [OLD]
    assert stage.kept == [kept]
    assert stage.kept_records["hg1"] | {"at": 1.0} == ways.done(None, had, 1.0)
    assert "nothing is known to go back to on proxy1" in capsys.readouterr().err


def test_one_word_leaves_alone_a_host_that_the_last_change_did_not_concern(
    stage: Stage, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trees, "find", lambda _way: trees.Kept(Path("tree1"), Path("site1")))
    monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, None))
    release, people = ways.Way(NEW, "tree1", "site1"), ways.Way(NEW, "tree1", "site2")
    for name, record in {
        "hg1": ways.done(ways.Way(OLD), release, 1.0),
        "proxy1": ways.done(release, people, 2.0),
    }.items():
        stage.states[name] = replace(
            stage.states[name], current=NEW, releases=(NEW, OLD), record=record
        )
    assert cli.main(["production", "--yes", "--rollback"]) == 0
    assert [word for word in stage.steps if word.startswith("apply")] == ["apply proxy1"]


def test_a_release_without_a_way_back_is_refused_before_the_plan(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.states["hg1"] = replace(
        stage.states["hg1"], formats={OLD: {"tokens": {"writes": 1, "reads": [1]}}}
    )
    stage.formats = {"tokens": {"writes": 2, "reads": [1, 2]}}
    assert cli.main(["production", "--yes"]) == 1
    assert stage.steps == []
    assert f"{OLD} cannot read tokens: format 2" in capsys.readouterr().err


@pytest.mark.parametrize("options", [(), (OLD,)])
def test_a_format_that_a_rollback_cannot_undo_is_refused(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    options: tuple[str, ...],
) -> None:
    """The present release wrote tokens that the former one cannot read."""
    monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, None))
    declared = {
        OLD: {"tokens": {"writes": 1, "reads": [1]}},
        NEW: {"tokens": {"writes": 2, "reads": [1, 2]}},
    }
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    stage.states["hg1"] = HostState(
        True,
        NEW,
        (NEW, OLD),
        extensions=extensions,
        groups=RELEASE,
        record=ways.done(ways.Way(OLD), ways.Way(NEW), 1.0),
        formats=declared,
    )
    assert cli.main(["production", "--yes", "--rollback", *options]) == 1
    assert stage.steps == []
    told = capsys.readouterr().err
    assert f"There is no way to {OLD} and back" in told
    assert f"{OLD} cannot read tokens: format 2 is written, expected one of 1 by {NEW}" in told


@pytest.mark.parametrize(
    ("options", "code"), [((), 1), (("--untested", "outage"), 0), (("--check",), 0)]
)
def test_a_rollback_that_this_tree_configures_asks_for_a_tested_tree_or_a_reason(
    stage: Stage, capsys: pytest.CaptureFixture[str], options: tuple[str, ...], code: int
) -> None:
    stage.attestation = None
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    stage.states["hg1"] = HostState(True, NEW, (NEW, OLD), extensions=extensions, groups=RELEASE)
    stage.after = {
        "hg1": HostState(True, OLD, (NEW, OLD), groups=RELEASE),
        "proxy1": HostState(True, groups=PROXY),
    }
    assert cli.main(["production", "--yes", "--rollback", OLD, *options]) == code
    assert ("--untested REASON" in capsys.readouterr().err) is bool(code)
    assert bool(stage.done) is not bool(code)


def test_an_object_store_goes_back_to_its_program_of_then(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """By its checksum: the file of that name has other content by now."""
    folder = tmp_path / "kept"
    program = tmp_path / "versitygw"
    program.write_bytes(b"then")
    then = trees.keep_program(program, folder)
    program.write_bytes(b"now")
    now = trees.keep_program(program, folder)
    real = trees.find_program
    monkeypatch.setattr(trees, "find_program", lambda checksum: real(checksum, folder))
    monkeypatch.setattr(trees, "keep_program", lambda _path: now)
    monkeypatch.setattr(run, "known_release", lambda version: run.Built(version, None, program))
    monkeypatch.setattr(trees, "find", lambda _way: None)
    stage.hosts["hg1"] = ["objectstore", "release"]
    had = ways.Way(OLD, "tree1", "site1", versitygw=then)
    stage.states["hg1"] = replace(
        stage.states["hg1"],
        groups=RELEASE | {"objectstore"},
        record=ways.done(None, had, 1.0),
    )
    stage.problems = [["hgfleet-objectstore.service is failed"]]
    assert cli.main(["production", "--yes", "--no-plan"]) == 1
    assert [built.version for built in stage.builts] == [NEW, OLD]
    taken_back = stage.builts[-1].versitygw
    assert taken_back is not None
    assert taken_back.read_bytes() == b"then"
    assert stage.kept_records["hg1"]["now"]["versitygw"] == then
    stage.problems.clear()
    assert cli.main(["production", "--yes", "--no-plan"]) == 0
    assert stage.kept_records["hg1"]["now"]["versitygw"] == now
    assert "versitygw" not in stage.kept_records["proxy1"]["now"]


def test_nothing_is_taken_back_where_no_change_is_known(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--yes", "--rollback"]) == 1
    assert stage.steps == []
    assert "--rollback VERSION" in capsys.readouterr().err


def test_a_release_that_did_not_become_current_is_a_failure(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.after = None
    assert cli.main(["production", "--yes"]) == 1
    assert "release_version" in capsys.readouterr().err


def test_a_rollback_builds_nothing_and_touches_only_hosts_with_releases(stage: Stage) -> None:
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    stage.states["hg1"] = HostState(True, NEW, (NEW, OLD), extensions=extensions, groups=RELEASE)
    stage.after = {
        "hg1": HostState(True, OLD, (NEW, OLD), groups=RELEASE),
        "proxy1": HostState(True, groups=PROXY),
    }
    assert cli.main(["production", "--yes", "--rollback", OLD]) == 0
    assert stage.done == ["plan hg1", "apply hg1"]
    assert stage.versions == [OLD, OLD]


def test_a_rollback_to_a_pruned_release_touches_nothing(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["production", "--yes", "--rollback", "0.0.9-gone"]) == 1
    assert stage.done == []
    assert f"hg1 has {OLD}" in capsys.readouterr().err


@pytest.mark.parametrize("version", ["../0.1.0", "0.1.0 -x", "--yes"])
def test_a_rollback_to_what_is_no_version_looks_at_no_host(
    stage: Stage,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    version: str,
) -> None:
    """The version becomes the path of an archive and a name in commands of hosts."""
    monkeypatch.setattr(run, "known_release", pytest.fail)
    monkeypatch.setattr(run, "read_states", pytest.fail)
    assert cli.main(["production", "--yes", f"--rollback={version}"]) == 1
    assert stage.done == []
    assert f"'{version}' is not the version of a release" in capsys.readouterr().err


def test_a_rollback_to_a_release_without_an_extension_of_the_hgrc_touches_nothing(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    extensions = frozenset(f"{OLD}/hgext/{path.name}" for path in (ROOT / "hgext").glob("*.py"))
    stage.states["hg1"] = HostState(
        True, NEW, (NEW, OLD), groups=RELEASE, extensions=extensions - {f"{OLD}/hgext/hardening.py"}
    )
    assert cli.main(["production", "--yes", "--rollback", OLD]) == 1
    assert stage.done == []
    assert f"{OLD} has no hardening.py" in capsys.readouterr().err


def test_two_deploys_do_not_meet(
    stage: Stage, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    site = run.Site("production", tmp_path / "production/hosts.yml")
    with cli._alone(site):
        assert cli.main(["production", "--yes"]) == 1
    assert stage.done == []
    assert "Another ./deploy" in capsys.readouterr().err


def test_ctrl_c_is_answered_with_the_way_to_go_on(
    stage: Stage, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def interrupted() -> run.Built:
        raise KeyboardInterrupt

    monkeypatch.setattr(run, "build", interrupted)
    assert cli.main(["production", "--yes"]) == 130
    assert "same command" in capsys.readouterr().err
    assert stage.done == []


def test_a_refused_variable_stops_before_anything_is_built(
    stage: Stage, capsys: pytest.CaptureFixture[str]
) -> None:
    stage.refused = {"web_title is empty.": ["hg1", "proxy1"]}
    stage.states["proxy1"] = HostState(problem="no route to host")
    assert cli.main(["production", "--yes"]) == 1
    assert stage.done == ["checks"]
    told = capsys.readouterr().err
    assert "hg1 and proxy1: web_title is empty." in told
    assert "proxy1: no route to host" in told
