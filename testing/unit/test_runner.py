"""The counts and output of ./run-tests, and the processes that it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testing.runner import cli, execution, preparation, tiers
from testing.runner.execution import Executor, Step
from testing.runner.outcome import (
    Failure,
    Outcome,
    chosen,
    duration,
    excerpt,
    of_command,
    of_junit,
    plain,
    summary,
)
from testing.runner.preparation import Preparation

if TYPE_CHECKING:
    from testing.conftest import WaitFor

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep logs of these steps out of those of the run that tests them."""
    monkeypatch.setattr(execution, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


def junit(tmp_path: Path, cases: str, code: int = 0, lines: tuple[str, ...] = ()) -> Outcome:
    report = tmp_path / "report.xml"
    report.write_text(f"<testsuites><testsuite>{cases}</testsuite></testsuites>")
    outcome = Outcome("unit", "pytest")
    of_junit(outcome, code, lines, report)
    return outcome


# Counting.


def test_each_test_of_pytest_counts(tmp_path: Path) -> None:
    outcome = junit(
        tmp_path,
        '<testcase classname="a" name="one"/>'
        '<testcase classname="a" name="two"><failure message="m">E  assert 1</failure></testcase>'
        '<testcase classname="a" name="three"><skipped message="no root"/></testcase>'
        '<testcase classname="a" name="four"><error message="m">boom</error></testcase>',
        code=1,
    )
    assert (outcome.passed, outcome.failed) == (1, 2)
    assert [failure.title for failure in outcome.failures] == ["a::two", "a::four"]
    assert outcome.skipped == [("a::three", "no root")]


def test_words_that_choose_tests_of_one_step_do_not_fail_the_others(tmp_path: Path) -> None:
    empty = Outcome("e2e", "host-a")
    of_junit(empty, 5, ["collected 0 items"], tmp_path / "none.xml")
    good = Outcome("e2e", "service", passed=1)
    bad = Outcome("e2e", "service", failures=[Failure("a test", "")])
    assert chosen([empty, good]) == [good]
    assert chosen([empty, bad]) == [bad]
    assert chosen([empty]) == [empty]
    assert empty.failed


@pytest.mark.parametrize(("code", "words"), [(5, "no test was found"), (0, "no test was found")])
def test_an_empty_run_is_a_failure(tmp_path: Path, code: int, words: str) -> None:
    outcome = junit(tmp_path, "", code)
    assert (outcome.passed, outcome.failed) == (0, 1)
    assert words in outcome.failures[0].title


@pytest.mark.parametrize("code", [1, 2, 3, 4, -9])
def test_a_broken_run_is_a_failure_whatever_its_report_says(tmp_path: Path, code: int) -> None:
    outcome = junit(tmp_path, '<testcase classname="a" name="one"/>', code, ("ImportError: x",))
    assert outcome.failed == 1
    assert f"exit code {code}" in outcome.failures[0].title
    assert "ImportError: x" in outcome.failures[0].text


def test_a_missing_or_broken_report_is_a_failure(tmp_path: Path) -> None:
    for text in (None, "<testsuites><test"):
        if text:
            (tmp_path / "report.xml").write_text(text)
        outcome = Outcome("unit", "pytest")
        of_junit(outcome, 0, [], tmp_path / "report.xml")
        assert outcome.failed == 1


@pytest.mark.parametrize(("code", "counts"), [(0, (1, 0)), (1, (0, 1)), (-15, (0, 1))])
def test_a_linter_counts_as_one(code: int, counts: tuple[int, int]) -> None:
    outcome = Outcome("lint", "ruff")
    of_command(outcome, code, [])
    assert (outcome.passed, outcome.failed) == counts


# The end of a run.


def test_the_last_line_is_the_count_and_nothing_else() -> None:
    text, code = summary(
        [Outcome("lint", "a", passed=3), Outcome("unit", "b", passed=4)],
        {
            "lint": 1.0,
            "unit": 2.0,
        },
    )
    assert text.splitlines()[-1] == "7 passed, 0 failed"
    assert code == 0


def test_a_failure_shows_its_text_its_log_and_the_names_of_the_others() -> None:
    first = Outcome("lint", "ruff", failures=[Failure("ruff (exit code 1)", "a.py:1: bad")])
    first.log = Path("logs/ruff.log")
    second = Outcome("unit", "pytest", passed=9, failures=[Failure("test_x", "long story")])
    text, code = summary([first, second], {"lint": 1, "unit": 1})
    assert code == 1
    assert (
        "First failure, in lint: ruff (exit code 1)\n  | a.py:1: bad\n  log: logs/ruff.log" in text
    )
    assert "  unit: test_x" in text
    assert "long story" not in text
    assert text.endswith("\n9 passed, 2 failed")


def test_a_line_as_long_as_a_page_is_cut() -> None:
    long = Outcome("unit", "pytest", failures=[Failure("test_x", "y" * 5000 + "\nreason")])
    text, _ = summary([long], {"unit": 1})
    assert max(len(line) for line in text.splitlines()) < 350
    assert "  | reason" in text


def test_skips_are_listed_with_their_reason_above_the_last_line() -> None:
    text, code = summary(
        [Outcome("unit", "pytest", passed=1, skipped=[("test_x", "needs root")])], {"unit": 1}
    )
    assert code == 0
    assert "  unit: test_x: needs root" in text.splitlines()[:-1]


@pytest.mark.parametrize(
    "outcomes", [[], [Outcome("roles", "ssh", skipped=[("ssh", "no scenario")])]]
)
def test_a_tier_in_which_nothing_ran_is_red(outcomes: list[Outcome]) -> None:
    text, code = summary(outcomes, {"roles": 0.1})
    assert code == 1
    assert "0 passed, 1 failed" in text


def test_no_tier_at_all_is_red() -> None:
    assert summary([], {}) == (summary([], {})[0], 1)


def test_the_slowest_tests_phases_and_steps_are_in_one_table(tmp_path: Path) -> None:
    cases = "".join(
        f'<testcase classname="testing.unit.test_x" name="t{n}" time="{n}"/>' for n in range(12)
    )
    unit = junit(tmp_path, cases)
    role = Outcome("roles", "web", passed=1, seconds=80, parts=[("web: converge", 60.0)])
    linter = Outcome("lint", "mypy", passed=1, seconds=7.5)
    text, _ = summary([linter, unit, role], {"lint": 8, "unit": 66, "roles": 80})
    table = text.partition("Slowest steps and tests:\n")[2].partition("\n\n")[0].splitlines()
    assert [line.split(maxsplit=3)[2:] for line in table[:3]] == [
        ["roles", "web: converge"],
        ["unit", "test_x::t11"],
        ["unit", "test_x::t10"],
    ]
    assert "7.5 s  lint   mypy" in table[5]
    assert len(table) == 10
    assert text.splitlines()[-1] == "14 passed, 0 failed"


def test_a_run_of_moments_has_no_table_of_the_slowest() -> None:
    assert "Slowest" not in summary([Outcome("lint", "a", passed=1)], {"lint": 0.1})[0]


def test_what_ran_beside_is_shown_and_not_counted() -> None:
    beside = [Outcome("set-up", "cluster up", passed=1, seconds=90)]
    text, code = summary([Outcome("unit", "pytest", passed=4)], {"unit": 1}, beside)
    assert code == 0
    assert "(cluster up, beside)" in text
    assert "90 s  set-up  cluster up" in text
    assert text.splitlines()[-1] == "4 passed, 0 failed"


def test_phases_of_a_scenario_are_timed(logs: Path) -> None:
    line = "INFO     default ➜ {}: Executing"
    step = shell("web", f"echo '{line.format('create')}'; echo '{line.format('converge')}'")
    (outcome,) = Executor().run_all([step], 1, first_only=False)
    assert [name for name, _ in outcome.parts] == ["web: create", "web: converge"]
    assert logs.exists()


@pytest.mark.parametrize(
    ("seconds", "text"), [(0.04, "0.0 s"), (9.94, "9.9 s"), (12, "12 s"), (185.2, "3 min 05 s")]
)
def test_durations(seconds: float, text: str) -> None:
    assert duration(seconds) == text


def test_of_an_ansible_run_the_failed_task_is_shown() -> None:
    lines = [f"TASK [t{n}] ***" if n % 3 == 0 else f"ok: {n}" for n in range(300)]
    lines[250] = "fatal: [hg1]: FAILED! => no space left"
    shown = excerpt(lines).splitlines()
    assert shown[0] == "TASK [t249] ***"
    assert shown[1] == lines[250]


def test_of_a_long_output_the_beginning_and_the_end_are_shown() -> None:
    shown = excerpt([str(n) for n in range(1000)], limit=10).splitlines()
    assert shown == [
        "0",
        "1",
        "2",
        "3",
        "4",
        "... 990 more lines in the log ...",
        *["995", "996", "997", "998", "999"],
    ]


def test_of_a_long_report_of_pytest_the_error_is_shown() -> None:
    code, journal = [f"    line {n}" for n in range(100)], [f"journal {n}" for n in range(900)]
    shown = excerpt([*code, ">   assert 1 <= 0", "E   assert 1 <= 0", *journal], limit=10)
    assert shown.splitlines() == [
        *code[-4:],
        ">   assert 1 <= 0",
        "E   assert 1 <= 0",
        *journal[:4],
    ]


def test_colours_and_links_are_removed() -> None:
    assert plain("\x1b[31mred\x1b[0m \x1b]8;;https://x\x1b\\link\x1b]8;;\x1b\\") == "red link"


# Running.


def shell(name: str, script: str, **options: object) -> Step:
    return Step("lint", name, ["sh", "-c", script], **options)  # type: ignore[arg-type]


def test_output_goes_to_the_log_and_steps_keep_their_order(logs: Path) -> None:
    steps = [shell("slow", "sleep 0.2; echo one"), shell("quick", "echo two; exit 3")]
    outcomes = Executor().run_all(steps, 2, first_only=False)
    assert [(o.name, o.passed, o.failed) for o in outcomes] == [("slow", 1, 0), ("quick", 0, 1)]
    assert (logs / "lint-slow.log").read_text() == "one\n"
    assert outcomes[1].failures[0].text == "two"


def test_after_the_first_failure_nothing_starts_if_so_asked(tmp_path: Path) -> None:
    steps = [shell("bad", "false"), shell("never", f"touch {tmp_path}/ran")]
    assert len(Executor().run_all(steps, 1, first_only=True)) == 1
    assert not (tmp_path / "ran").exists()


def test_a_step_that_is_skipped_says_why() -> None:
    (outcome,) = Executor().run_all([shell("x", "true", skip="nothing to do")], 1, first_only=False)
    assert (outcome.passed, outcome.failed, outcome.skipped) == (0, 0, [("x", "nothing to do")])


def test_a_missing_tool_is_a_failure_and_no_traceback() -> None:
    (outcome,) = Executor().run_all([Step("lint", "x", ["/no-such-tool"])], 1, first_only=False)
    assert outcome.failures[0].text == "/no-such-tool: No such file or directory"


def test_the_first_failure_ends_pytest_too_if_so_asked() -> None:
    counted = Step("unit", "pytest", ["pytest"], junit=Path("report.xml"))
    assert counted.ending_at_first_failure().command == ["pytest", "--exitfirst"]
    linter = Step("lint", "ruff", ["ruff"])
    assert linter.ending_at_first_failure() is linter


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("testing/e2e/test_a.py::test_x[a b] PASSED   [ 10%]", "test_a.py::test_x[a b] ok"),
        ("[gw1] [ 10%] PASSED testing/e2e/test_a.py::test_x[a b] ", "test_a.py::test_x[a b] ok"),
        ("[gw0] [100%] FAILED testing/e2e/test_a.py::test_x ", "test_a.py::test_x failed"),
        ("testing/e2e/test_a.py::test_x ", ""),
        ("[gw0] PASSED", ""),
    ],
)
def test_tests_are_said_as_they_end(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    execution._Watcher(Step("e2e", "service", [], chatty=True), 0.0).line(line)
    printed = capsys.readouterr().err
    assert printed.endswith(f"  {said}\n") if said else not printed


def test_progress_of_the_cluster_is_handed_on(capsys: pytest.CaptureFixture[str]) -> None:
    watcher = execution._Watcher(Step("set-up", "cluster up", []), 0.0)
    watcher.line("[   12 s] converge     ansible/site.yml (log: x)")
    watcher.line("[   27 s] converge     ... ansible/site.yml, 15 s so far")
    watcher.line("The service is up.")
    (line,) = capsys.readouterr().err.splitlines()
    assert line.endswith("set-up         converge ansible/site.yml (log: x)")


# Preparation.


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["lint", "unit", "integration"], []),
        (["unit", "roles"], ["build"]),
        (["faults"], ["build", "up"]),
        (["roles", "e2e", "faults"], ["build", "up"]),
    ],
)
def test_only_what_the_tiers_need_is_prepared(names: list[str], expected: list[str]) -> None:
    assert preparation.stages(names) == expected
    assert set(preparation.NEEDS) <= set(tiers.TIERS)


def prepare(monkeypatch: pytest.MonkeyPatch, names: list[str], **scripts: str) -> Preparation:
    monkeypatch.setattr(preparation, "step", lambda stage: shell(stage, scripts[stage]))
    prepared = Preparation(Executor(), names)
    prepared.start()
    prepared.controller_ready.set()
    return prepared


def test_a_tier_waits_for_its_stage_alone(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    go = tmp_path / "go"
    waits = f"until test -e {go}; do sleep 0.1; done"
    prepared = prepare(monkeypatch, ["roles", "e2e"], build="true", up=waits)
    assert prepared.wait_for("unit") == []
    assert prepared.wait_for("roles") == []
    assert [outcome.name for outcome in prepared.finished()] == ["build"]
    go.touch()
    assert prepared.wait_for("e2e") == []
    assert [outcome.name for outcome in prepared.finished()] == ["build", "up"]


def test_the_cluster_waits_for_the_controller_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    ready = tmp_path / "ready"
    scripts = {"build": "true", "up": f"test -e {ready}"}
    monkeypatch.setattr(preparation, "step", lambda stage: shell(stage, scripts[stage]))
    prepared = Preparation(Executor(), ["e2e"])
    prepared.start()
    prepared.ended["build"].wait(10)
    ready.touch()
    prepared.controller_ready.set()
    assert prepared.wait_for("e2e") == []


def test_a_failed_stage_fails_the_tiers_that_need_it(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    script = "echo cluster: no network; exit 1"
    prepared = prepare(monkeypatch, ["roles", "e2e"], build=script, up=f"touch {tmp_path}/ran")
    for tier in ("roles", "e2e"):
        (failure,) = prepared.wait_for(tier)
        assert failure.text == "cluster: no network"
    assert not (tmp_path / "ran").exists()


def test_a_step_that_is_alone_waits_for_those_before_and_keeps_out_those_after() -> None:
    steps = [Step("e2e", name, [], alone=name == "alone") for name in ("a", "b", "alone", "c")]
    assert execution.batches(steps) == [[0, 1], [2], [3]]
    assert execution.batches([]) == []


def test_nothing_starts_once_the_run_is_stopped(tmp_path: Path) -> None:
    executor = Executor()
    executor.stop()
    outcome = executor.run(shell("late", f"touch {tmp_path}/ran"))
    assert outcome.failed == 1
    assert not (tmp_path / "ran").exists()


def alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    # A zombie has ended; its parent has not asked yet.
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"


def test_stopping_ends_whole_process_groups_and_cleans_up(
    tmp_path: Path, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a tool that ignores signals, with a child that would outlive it."""
    monkeypatch.setattr(execution, "SECONDS_TO_END", 0.5)
    stubborn = f"trap '' INT TERM; sleep 600 & echo $! > {tmp_path}/child; wait; wait; sleep 600"
    step = shell("stubborn", stubborn, undo=["sh", "-c", f"touch {tmp_path}/undone"])
    executor = Executor()
    thread = threading.Thread(target=executor.run, args=[step])
    thread.start()
    child = tmp_path / "child"
    wait_for("the child of the step", lambda: child.exists() and child.read_text().strip())
    pid = int(child.read_text())
    began = time.monotonic()
    executor.stop()
    thread.join(10)
    assert not thread.is_alive()
    assert time.monotonic() - began < 20
    wait_for("the end of the child", lambda: not alive(pid), seconds=5)
    assert (tmp_path / "undone").exists()


def test_ctrl_c_ends_the_run_with_130_and_leaves_nothing(tmp_path: Path, wait_for: WaitFor) -> None:
    # A process in the background of a shell inherits that SIGINT is ignored.
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path[0:0] = [{str(ROOT)!r}, {str(ROOT / "docker")!r}]
import bootstrap
from pathlib import Path
from testing.runner import cli, execution, preparation, tiers
bootstrap.ensure_controller = lambda: None
execution.LOGS = Path({str(tmp_path)!r})
script = "echo $$ > {tmp_path}/pid; exec sleep 600"
tiers.TIERS["lint"] = lambda words, only: [execution.Step("lint", "long", ["sh", "-c", script])]
sys.exit(cli.main(["lint"]))
"""
    file = tmp_path / "pid"
    for signum in (signal.SIGINT, signal.SIGTERM):
        process = subprocess.Popen(
            [sys.executable, "-c", program],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        wait_for("the step", lambda: file.exists() and file.read_text().strip())
        pid = int(file.read_text())
        process.send_signal(signum)
        out, err = process.communicate(timeout=40)
        assert process.returncode == 130, err
        assert "interrupted; nothing is left running" in err
        assert "Traceback" not in err
        assert out == ""
        assert not alive(pid)
        file.unlink()


# The command line.


def test_all_tiers_in_their_order_unless_some_are_named() -> None:
    _, chosen = cli.parse([])
    assert [tier for tier, _ in chosen] == list(tiers.TIERS)
    assert list(tiers.TIERS) == ["lint", "unit", "integration", "roles", "e2e", "faults"]
    _, chosen = cli.parse(["e2e", "unit:registry", "unit:keys", "lint"])
    assert chosen == [("lint", ""), ("unit", "registry"), ("unit", "keys"), ("e2e", "")]


@pytest.mark.parametrize("arguments", [["units"], ["--jobs", "0"], ["--nonsense"]])
def test_a_wrong_command_line_is_a_usage_error(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        cli.parse(arguments)
    assert caught.value.code == 2


def test_shell_scripts_are_found_by_name_or_first_line(tmp_path: Path) -> None:
    for name, text, expected in (
        ("a.sh", "", True),
        ("b", "#!/bin/sh\n", True),
        ("c", "#!/usr/bin/env bash\n", True),
        ("d", "#!/usr/bin/python3\n", False),
        ("e.sh.j2", "#!/bin/sh\n", False),
        ("f", "\x00\xff", False),
    ):
        (tmp_path / name).write_text(text)
        assert tiers.is_shell(tmp_path / name) is expected, name
    assert not tiers.is_shell(tmp_path / "missing")


def test_the_variables_of_the_cluster_are_read_as_a_shell_would() -> None:
    assert tiers.parse_exports("# x\nexport A=1\nexport B='two words'\necho no\n") == {
        "A": "1",
        "B": "two words",
    }


def test_each_host_is_checked_for_every_role_it_has() -> None:
    inventory: dict[str, dict[str, object]] = {
        "_meta": {"hostvars": {"hg1": {"ansible_host": "c-hg1"}, "ldap1": {}}},
        "all": {"children": ["mercurial", "directory"]},
        "mercurial": {"children": ["ssh", "web"]},
        "ssh": {"hosts": ["hg1"]},
        "web": {"hosts": ["hg1"]},
        "directory": {"hosts": ["ldap1"]},
    }
    assert tiers.tests_of_hosts(inventory, "c", lambda name: "web" not in name) == [
        (
            "hg1",
            "c-hg1",
            [
                f"testing/roles/test_{role}.py"
                for role in ("base", "mercurial", "ssh", "directory_replica")
            ],
        ),
        ("ldap1", "c-ldap1", [f"testing/roles/test_{role}.py" for role in ("base", "directory")]),
    ]


def test_every_step_has_a_log_of_its_own() -> None:
    steps = tiers.lint("") + tiers.unit("") + tiers.integration("")
    assert len({step.log for step in steps}) == len(steps)
    assert all(" " not in step.log.name for step in steps)
