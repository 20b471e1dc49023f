"""Steps under way: their output, the stages next to them, and the processes that a stop ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from controller.tests import cli, execution, plan, preparation, tiers
from controller.tests.execution import Executor, Room, Step
from controller.tests.preparation import Preparation
from controller.tests.processors import Group

if TYPE_CHECKING:
    from controller.tests.outcome import Outcome
    from testing.conftest import WaitFor

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep logs of these steps out of the logs of the run that tests them."""
    monkeypatch.setattr(execution, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


# Running.


def shell(name: str, script: str, **options: object) -> Step:
    return Step("lint", name, ["sh", "-c", script], **options)  # type: ignore[arg-type]


def test_output_goes_to_the_log_and_steps_keep_their_order(logs: Path) -> None:
    steps = [shell("slow", "sleep 0.2; echo one"), shell("quick", "echo two; exit 3")]
    outcomes = Executor().run_all(steps, Room(2), first_only=False)
    assert [(o.name, o.passed, o.failed) for o in outcomes] == [("slow", 1, 0), ("quick", 0, 1)]
    assert (logs / "lint-slow.log").read_text() == "one\n"
    assert outcomes[1].failures[0].text == "two"


def test_after_the_first_failure_nothing_starts_if_so_asked(tmp_path: Path) -> None:
    steps = [shell("bad", "false"), shell("never", f"touch {tmp_path}/ran")]
    assert len(Executor().run_all(steps, Room(1), first_only=True)) == 1
    assert not (tmp_path / "ran").exists()


def test_there_is_more_room_when_no_other_lane_runs(tmp_path: Path, wait_for: WaitFor) -> None:
    # Each waits for the other.
    script = "touch $0; while [ ! -e $1 ]; do sleep 0.05; done"
    other = ["timeout", "20", "sh", "-c", script]
    first, second = tmp_path / "first", tmp_path / "second"
    steps = [
        Step("lint", "first", [*other, str(first), str(second)]),
        Step("lint", "second", [*other, str(second), str(first)]),
    ]
    room = Room(1, alone=2)
    with ThreadPoolExecutor() as pool:
        ran = pool.submit(Executor().run_all, steps, room, first_only=False)
        wait_for("the first step begins", first.exists)
        assert not second.exists()
        room.widen()
        room.widen()
        assert [outcome.passed for outcome in ran.result()] == [1, 1]
    assert room.jobs == room.most == 2


def test_roles_get_the_room_of_the_cluster_once_its_tests_have_ended(
    monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    looked = threading.Event()
    beside: list[int] = []

    def run_steps(run: cli.Run, tier: str, _words: str, _niceness: int) -> list[object]:
        room = run.rooms[tier]
        if tier == "e2e":
            assert looked.wait(30)
        else:
            beside.append(room.jobs)
            looked.set()
            wait_for("the room is that of a tier alone", lambda: room.jobs == room.most)
        return []

    monkeypatch.setattr(cli.Run, "_steps", run_steps)
    ready = SimpleNamespace(wait_for=lambda _tier: [])
    options, chosen = cli.parse(["e2e", "roles"])
    ended: list[cli.Ended] = []
    cli.Run(Executor(), ready, plan.named(chosen), options, ended.append).lanes()
    assert beside == [tiers.PROCESSORS]
    assert sorted(tier for tier, _, _ in ended) == ["e2e", "roles"]


def test_a_step_of_which_the_gate_leaves_out_all_tests_is_skipped(tmp_path: Path) -> None:
    report = tmp_path / "report.xml"
    step = shell("host-a", "exit 5", junit=report, narrowed=True)
    ended: list[Outcome] = []
    executor = Executor()
    executor.ended = ended.append
    outcome = executor.run(step)
    assert (outcome.passed, outcome.failed) == (0, 0)
    assert outcome.skipped == [("host-a", "the gate leaves out all of its tests")]
    assert ended == [outcome]
    assert executor.run(replace(step, narrowed=False)).failed
    assert executor.run(replace(step, command=["sh", "-c", "exit 4"])).failed


def test_a_step_that_is_stopped_is_not_told() -> None:
    ended: list[Outcome] = []
    executor = Executor()
    executor.ended = ended.append
    executor.stop()
    executor.run(shell("late", "true"))
    assert ended == []


def test_steps_that_wait_for_room_begin_in_their_order(tmp_path: Path) -> None:
    names = ["one", "two", "three", "four", "five"]
    steps = [shell(name, f"echo {name} >> {tmp_path}/began") for name in names]
    Executor().run_all(steps, Room(1, alone=3), first_only=False)
    assert (tmp_path / "began").read_text().split() == names


def test_a_step_behind_others_has_the_nice_value_for_all_that_it_starts(logs: Path) -> None:
    # It is set once the step has started.
    script = "sleep 0.3; sh -c 'nice; cat /proc/self/autogroup 2>&1'"
    (outcome,) = Executor().run_all(
        [shell("behind", script, niceness=5)], Room(1), first_only=False
    )
    value, group = (logs / "lint-behind.log").read_text().splitlines()
    assert outcome.passed == 1
    assert value == "5"
    assert group.endswith(" nice 5") or "No such file" in group


def test_steps_are_behind_only_while_another_lane_runs(logs: Path, tmp_path: Path) -> None:
    group = Group(tmp_path / "group", "cpu.shares")
    group.folder.mkdir()
    (group.folder / "cgroup.procs").touch()
    executor = Executor(group=group)
    executor.run_all([shell("behind", "nice", niceness=5)], Room(1), first_only=False)
    assert (group.folder / "cpu.shares").read_text() == "336\n"
    executor.lift()
    assert (group.folder / "cpu.shares").read_text() == "1024\n"
    (group.folder / "cgroup.procs").write_text("")
    # The test itself may run in a lane with a nice value, which may end in the meantime.
    before = os.nice(0)
    executor.run_all([shell("after", "nice", niceness=5)], Room(1), first_only=False)
    assert int((logs / "lint-after.log").read_text()) in {before, os.nice(0)}
    assert (group.folder / "cgroup.procs").read_text() == ""


def test_a_lane_without_a_group_gets_its_nice_value_back(
    logs: Path, tmp_path: Path, wait_for: WaitFor
) -> None:
    executor = Executor()
    until = "for i in $(seq 400); do [ $(nice) = {0} ] && break; sleep 0.05; done; nice; "
    script = f"{until.format(5)} touch {tmp_path}/behind; {until.format(0)}"
    step = shell("behind", script, niceness=5)
    thread = threading.Thread(target=lambda: executor.run_all([step], Room(1), first_only=False))
    thread.start()
    wait_for("the step is behind", (tmp_path / "behind").exists)
    executor.lift()
    thread.join()
    assert (logs / "lint-behind.log").read_text() == "5\n0\n"


def test_a_step_has_the_variables_of_the_run_and_its_own(logs: Path) -> None:
    executor = Executor({"TMPDIR": "/dev/shm/hg1", "HGFLEET_X": "of the run"})
    step = shell("x", "echo $TMPDIR, $HGFLEET_X", env={"HGFLEET_X": "of the step"})

    executor.run_all([step], Room(1), first_only=False)

    assert (logs / "lint-x.log").read_text() == "/dev/shm/hg1, of the step\n"


def test_a_step_that_is_skipped_says_why() -> None:
    (outcome,) = Executor().run_all(
        [shell("x", "true", skip="nothing to do")], Room(1), first_only=False
    )
    assert (outcome.passed, outcome.failed, outcome.skipped) == (0, 0, [("x", "nothing to do")])


def test_a_missing_tool_is_a_failure_and_no_traceback() -> None:
    (outcome,) = Executor().run_all(
        [Step("lint", "x", ["/no-such-tool"])], Room(1), first_only=False
    )
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
        ("[gw0] [ 50%] RERUN testing/e2e/test_a.py::test_x ", "test_a.py::test_x rerun"),
        ("testing/e2e/test_a.py::test_x[/a/b] PASSED", "test_a.py::test_x[/a/b] ok"),
        ("testing/e2e/test_a.py::test_x ", ""),
        ("[gw0] PASSED", ""),
    ],
    ids=(
        "alone",
        "of a worker",
        "failed",
        "run again",
        "with slashes",
        "without outcome",
        "without test",
    ),
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
        (["deploys"], ["build"]),
        (["faults"], ["build", "up"]),
        (["rolls"], ["build", "up"]),
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


@pytest.mark.parametrize("code", [0, 3])
def test_a_step_is_cleaned_up_after_however_it_ended(tmp_path: Path, code: int) -> None:
    made, clean = tmp_path / "made", tmp_path / "clean"
    step = shell("one", f"touch {made}; exit {code}", cleanup=["mv", str(made), str(clean)])
    assert bool(Executor().run(step).failed) == bool(code)
    assert clean.exists()


def test_a_cleanup_that_hangs_or_fails_does_not_lose_the_outcome(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(execution, "SECONDS_TO_CLEAN_UP", 0.2)
    for command in (["sleep", "600"], ["false"]):
        assert Executor().run(shell("one", "echo one", cleanup=command)).passed == 1


def test_stopping_ends_whole_process_groups_and_cleans_up(
    tmp_path: Path, wait_for: WaitFor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even a tool that ignores signals, with a child that would outlive it."""
    monkeypatch.setattr(execution, "SECONDS_TO_END", 0.5)
    stubborn = f"trap '' INT TERM; sleep 600 & echo $! > {tmp_path}/child; wait; wait; sleep 600"
    step = shell("stubborn", stubborn, cleanup=["sh", "-c", f"touch {tmp_path}/clean"])
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
    assert (tmp_path / "clean").exists()


def test_an_interrupt_before_every_job_is_submitted_ends_the_steps_that_run(
    logs: Path, monkeypatch: pytest.MonkeyPatch, wait_for: WaitFor
) -> None:
    executor, submit = Executor(), ThreadPoolExecutor.submit

    def interrupted(self: ThreadPoolExecutor, *job: Any) -> None:
        submit(self, *job)
        wait_for("the step", lambda: executor.running, every=0.01)
        raise KeyboardInterrupt

    monkeypatch.setattr(ThreadPoolExecutor, "submit", interrupted)
    with pytest.raises(KeyboardInterrupt):
        executor.run_all([shell("lint", "exec sleep 600")] * 2, Room(1), first_only=False)
    assert executor.running == {}
    assert logs.exists()


def test_ctrl_c_ends_the_run_with_130_and_leaves_nothing(tmp_path: Path, wait_for: WaitFor) -> None:
    # A process in the background of a shell inherits that SIGINT is ignored.
    program = f"""
import signal, sys
signal.signal(signal.SIGINT, signal.default_int_handler)
sys.path.insert(0, {str(ROOT)!r})
from controller import bootstrap
from pathlib import Path
from controller.tests import cli, execution, plan, preparation, tiers
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


def test_phases_of_a_scenario_are_timed(logs: Path) -> None:
    line = "INFO     default ➜ {}: Executing"
    step = shell("web", f"echo '{line.format('create')}'; echo '{line.format('converge')}'")
    (outcome,) = Executor().run_all([step], Room(1), first_only=False)
    assert [name for name, _ in outcome.parts] == ["web: create", "web: converge"]
    assert logs.exists()
