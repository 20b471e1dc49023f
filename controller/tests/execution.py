"""Runs steps: output into a log, progress as lines, no process left when the run is stopped."""

from __future__ import annotations

import contextlib
import os
import re
import signal
import subprocess
import threading
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from controller import bootstrap
from controller.tests.outcome import Failure, Outcome, duration, of_command, of_junit, plain
from controller.tests.repeated import Repeats

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from controller.tests.processors import Group

T = TypeVar("T")

SECONDS_BETWEEN_SIGNS_OF_LIFE: Final = 15.0
SECONDS_TO_END: Final = 20.0
"""Grace for an interrupted tool before it is killed; molecule and pytest run their teardown."""
SECONDS_TO_CLEAN_UP: Final = 120.0

LOGS: Final = bootstrap.STATE / "logs/tests"

_WORD = r"(?P<word>PASSED|FAILED|ERROR|SKIPPED|XFAIL|XPASS|RERUN)"
# "testing/x.py::test PASSED [ 10%]"; with workers "[gw0] [ 10%] PASSED testing/x.py::test".
_TEST_LINE = re.compile(rf"^(?P<test>\S+::.+) {_WORD}\b")
_WORKER_LINE = re.compile(rf"^\[gw\d+\] (?:\[ *\d+%\] )?{_WORD} (?P<test>\S+::.+?) *$")
# Of ./cluster; its signs of life are not repeated.
_PROGRESS_LINE = re.compile(r"^\[ *\d+ s\] (?P<text>\S+ +(?! |\.\.\. ).*)$")
_MOLECULE_LINE = re.compile(r"^INFO .*?(?:➜|>) ?(?P<action>[a-z_]+)\b.*[Ee]xecuting")


@dataclass(frozen=True)
class Step:
    """A command and how to count it.

    `junit` is where pytest writes its report; without it the step counts as a single check.
    `cleanup` is run when the step has ended, for any reason. `chatty` steps print each test as it
    ends. A step with `skip` is not run, and says why. A step that is `alone` begins when the steps
    before it have ended. A step with a `niceness` (1 to 19) leaves the processors to others that
    want them. The gate may have left out all tests of a `narrowed` step.
    """

    tier: str
    name: str
    command: Sequence[str]
    cwd: Path = bootstrap.ROOT
    env: Mapping[str, str] = field(default_factory=dict)
    junit: Path | None = None
    cleanup: Sequence[str] = ()
    chatty: bool = False
    skip: str = ""
    alone: bool = False
    niceness: int = 0
    narrowed: bool = False

    @property
    def log(self) -> Path:
        """Where its whole output is."""
        return LOGS / f"{self.tier}-{self.name.replace(' ', '-').replace('/', '-')}.log"

    def ending_at_first_failure(self) -> Step:
        """Return the step with pytest told to end at its first failed test."""
        return replace(self, command=[*self.command, "--exitfirst"]) if self.junit else self


say: Callable[[str, str], None] = bootstrap.Step.say


def batches(steps: Sequence[Step]) -> list[list[int]]:
    """Return the numbers of the steps that may run at the same time."""
    groups: list[list[int]] = []
    for number, step in enumerate(steps):
        if not groups or step.alone or steps[number - 1].alone:
            groups.append([])
        groups[-1].append(number)
    return groups


class Room:
    """How many steps of a tier run at a time: `jobs`, and `alone` once no other lane runs."""

    def __init__(self, jobs: int, *, alone: int = 0) -> None:
        self.jobs = jobs
        self.most = max(jobs, alone)
        self._free = threading.Semaphore(jobs)

    def widen(self) -> None:
        """Let as many steps run as a tier may have when no other lane runs."""
        further, self.jobs = self.most - self.jobs, self.most
        if further:
            self._free.release(further)

    def __enter__(self) -> None:
        self._free.acquire()

    def __exit__(self, *_error: object) -> None:
        self._free.release()


class Executor:
    """Runs steps, several at a time, and ends all of them together.

    All of them have the variables of `environment` besides the controller's and their own. Steps
    with a niceness are in the control group `group`, if it is given.
    """

    def __init__(
        self, environment: Mapping[str, str] | None = None, group: Group | None = None
    ) -> None:
        self.environment = environment or {}
        self.group = group
        self.running: dict[subprocess.Popen[str], Step] = {}
        self.lock = threading.Lock()
        self._is_lifted = False
        self.stopping = False
        self.ended: Callable[[Outcome], None] = lambda _outcome: None
        """Called for each step that ended, from the thread that ran it."""

    def run_all(self, steps: Sequence[Step], room: Room, *, first_only: bool) -> list[Outcome]:
        """Run steps in their order, as there is room; with `first_only` none after a failure.

        A step that is `alone` runs with no other.

        Steps still under way when a step fails are finished, so that their hosts are cleaned up.
        """
        outcomes: dict[int, Outcome] = {}
        failed = threading.Event()

        def run_next(waiting: Iterator[int]) -> None:
            # The next step is chosen when there is room: the waiting threads have no order.
            with room:
                number = next(waiting)
                if self.stopping or (first_only and failed.is_set()):
                    return
                outcomes[number] = self.run(steps[number])
                if outcomes[number].failed:
                    failed.set()

        for batch in batches(steps):
            waiting = iter(batch)
            self.in_threads([partial(run_next, waiting)] * len(batch), room.most)
        return [outcomes[number] for number in sorted(outcomes)]

    def in_threads(self, jobs: Sequence[Callable[[], T]], most: int) -> list[T]:
        """Do jobs, so many at a time; an interrupt ends the steps that they run."""
        with ThreadPoolExecutor(max_workers=most) as pool:
            # The first job may run a step before the last job is submitted.
            try:
                futures = [pool.submit(job) for job in jobs]
                wait(futures)
            except KeyboardInterrupt:
                self.stop()
                raise
        return [future.result() for future in futures]

    def run(self, step: Step) -> Outcome:
        """Run a step to its end."""
        outcome = Outcome(step.tier, step.name)
        if step.skip:
            outcome.skipped.append((step.name, step.skip))
            say(step.tier, f"{step.name}: skipped, {step.skip}")
            return outcome
        outcome.log = step.log
        step.log.parent.mkdir(parents=True, exist_ok=True)
        if step.junit:
            step.junit.unlink(missing_ok=True)
        began = time.monotonic()
        say(step.tier, f"{step.name} ...")
        try:
            code, lines, watched = self._watch(step, began)
            outcome.parts, outcome.repeated = watched.phases, watched.repeats.found()
        except OSError as error:
            outcome.failures.append(Failure(step.name, f"{step.command[0]}: {error.strerror}"))
        else:
            if step.junit:
                of_junit(outcome, code, lines, step.junit, narrowed=step.narrowed)
            else:
                of_command(outcome, code, lines)
        outcome.seconds = time.monotonic() - began
        if not self.stopping:
            self._clean_up(step)
            say(step.tier, f"{step.name}: {_verdict(outcome)} in {duration(outcome.seconds)}")
            self.ended(outcome)
        return outcome

    def _environment(self, step: Step) -> dict[str, str]:
        controller = bootstrap.controller_environment()
        return {**controller, "PYTHONUNBUFFERED": "1", **self.environment, **step.env}

    def lift(self) -> None:
        """Let steps with a niceness have processors as others have: no other lane runs."""
        with self.lock:
            self._is_lifted = True
            behind = [process for process, step in self.running.items() if step.niceness]
        if self.group:
            self.group.lift()
        for process in behind if not self.group else ():
            _step_behind(process.pid, 0)

    def _niceness(self, step: Step) -> int:
        return 0 if self._is_lifted else step.niceness

    def _command(self, step: Step) -> list[str]:
        if self.group and self._niceness(step):
            return self.group.enter(step.command, step.niceness)
        return list(step.command)

    def _watch(self, step: Step, began: float) -> tuple[int, list[str], _Watcher]:
        lines: list[str] = []
        watcher = _Watcher(step, began)
        with step.log.open("w", encoding="utf-8") as log:
            # `stop` takes the same lock: a step either is in its list or does not start.
            with self.lock:
                if self.stopping:
                    return -signal.SIGTERM, lines, watcher
                process = subprocess.Popen(
                    self._command(step),
                    cwd=step.cwd,
                    env=self._environment(step),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.STDOUT,
                    encoding="utf-8",
                    errors="replace",
                    start_new_session=True,  # so that Ctrl-C is ours to hand on, once
                )
                self.running[process] = step
                if self._niceness(step):
                    _step_behind(process.pid, step.niceness)
            try:
                with watcher:
                    assert process.stdout is not None
                    for raw in process.stdout:
                        line = plain(raw.rstrip("\n"))
                        lines.append(line)
                        log.write(line + "\n")
                        watcher.line(line)
                return process.wait(), lines, watcher
            finally:
                with self.lock:
                    del self.running[process]

    def stop(self, reason: str = "interrupted") -> None:
        """End every running step: ask, insist, kill; then clean up after each."""
        with self.lock:
            self.stopping = True
            interrupted = dict(self.running)
        if interrupted:
            say("run-tests", f"{reason}; ending what runs (again Ctrl-C: at once)")
        for step in interrupted.values():
            say(step.tier, f"ending {step.name}")
        kill_now = False
        for signum, patience in (
            (signal.SIGINT, SECONDS_TO_END),
            (signal.SIGTERM, 5.0),
            (signal.SIGKILL, 5.0),
        ):
            if kill_now and signum != signal.SIGKILL:
                continue
            for process in interrupted:
                if process.poll() is None:
                    _signal(process, signum)
            try:
                deadline = time.monotonic() + patience
                for process in interrupted:
                    _wait(process, deadline)
            except KeyboardInterrupt:
                kill_now = True
        # A tool may have left children in its group that hold no pipe of ours.
        for process in interrupted:
            _signal(process, signal.SIGKILL)
        for step in interrupted.values():
            if step.cleanup:
                say(step.tier, f"cleaning up after {step.name}")
            self._clean_up(step)

    def _clean_up(self, step: Step) -> None:
        """Run the command that cleans up, which may fail; it is given up after a while."""
        if not step.cleanup:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            subprocess.run(
                list(step.cleanup),
                cwd=step.cwd,
                env=self._environment(step),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,  # Ctrl-C leaves it the time to end
                timeout=SECONDS_TO_CLEAN_UP,
                check=False,
            )


def _step_behind(leader: int, niceness: int) -> None:
    """Give a process and all that it will start a smaller share of busy processors."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.setpriority(os.PRIO_PGRP, leader, niceness)
    # Where Linux groups sessions and there is no control group, the group of this session has the
    # value, not those that its processes begin. The file is absent when the process has ended.
    with contextlib.suppress(OSError):
        Path(f"/proc/{leader}/autogroup").write_text(str(niceness), encoding="ascii")


def _signal(process: subprocess.Popen[str], signum: int) -> None:
    # Its process group, of which it was started as the leader.
    try:
        os.killpg(process.pid, signum)
    except (ProcessLookupError, PermissionError):
        return


def _wait(process: subprocess.Popen[str], deadline: float) -> None:
    try:
        process.wait(timeout=max(0.0, deadline - time.monotonic()))
    except subprocess.TimeoutExpired:
        return


def _verdict(outcome: Outcome) -> str:
    skipped = f", {len(outcome.skipped)} skipped" if outcome.skipped else ""
    if outcome.failed:
        return f"FAILED ({outcome.passed} passed, {outcome.failed} failed{skipped})"
    return "ok" if outcome.passed == 1 and not skipped else f"{outcome.passed} passed{skipped}"


class _Watcher:
    """Prints the progress of a step: each test of a chatty step, else a sign of life."""

    def __init__(self, step: Step, began: float) -> None:
        self.step = step
        self.began = began
        self.tests = 0
        self.doing = ""
        self.phases: list[tuple[str, float]] = []
        self.repeats = Repeats()
        self.phase = ("", 0.0)
        self.done = threading.Event()
        self.thread = threading.Thread(target=self._signs_of_life, daemon=True)

    def __enter__(self) -> _Watcher:
        self.thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.done.set()
        self._enter_phase("")

    def _enter_phase(self, name: str) -> None:
        before, since = self.phase
        if before:
            self.phases.append((f"{self.step.name}: {before}", time.monotonic() - since))
        self.phase = (name, time.monotonic())

    def line(self, line: str) -> None:
        if self.repeats.line(line):
            return
        if match := _WORKER_LINE.match(line) or _TEST_LINE.match(line):
            word = match["word"]
            if word == "RERUN":
                self.repeats.begin(match["test"])
            else:
                self.tests += 1
            if self.step.chatty or word in ("FAILED", "ERROR", "RERUN"):
                # The folder says little; a parameter may have slashes of its own.
                path, _, name = match["test"].partition("::")
                test = f"{path.rpartition('/')[2]}::{name}"
                say(self.step.tier, f"  {test} {'ok' if word == 'PASSED' else word.lower()}")
        elif match := _MOLECULE_LINE.match(line):
            self.doing = match["action"]
            self._enter_phase(self.doing)
            say(self.step.tier, f"  {self.step.name}: {self.doing}")
        elif match := _PROGRESS_LINE.match(line):
            self.doing = " ".join(match["text"].split())
            say(self.step.tier, f"  {self.doing}")
        elif line.startswith("TASK ["):
            self.doing = line[6 : line.find("]")]

    def _signs_of_life(self) -> None:
        while not self.done.wait(SECONDS_BETWEEN_SIGNS_OF_LIFE):
            spent = duration(time.monotonic() - self.began)
            what = f", {self.tests} tests so far" if self.tests else ""
            what += f", at: {self.doing}" if self.doing else ""
            say(self.step.tier, f"... {self.step.name}, {spent}{what}")
