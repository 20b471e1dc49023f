"""The unit tests of a mutant, in a fork of this process, which has pytest loaded.

The fork has only modules of the copy: modules of the checkout, which this process runs from, are
removed. Compiled files are written only without a mutation; the mutated file has a time of its own,
so that Python uses no compiled file for it.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import signal
import sys
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

import hypothesis  # noqa: F401  (loaded before the fork)
import pytest

from controller.checks.mutants.mutations import apply, witness

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from controller.checks.mutants.choosing import Mutant

KILLED: Final = "killed"
SURVIVED: Final = "survived"
NOT_RUN: Final = "not run"
"""Outcomes; `not run`: it survived, and no unit test runs the changed code."""

MOST_BYTES: Final = 3 * 1024**3
"""For a mutant that allocates without end."""

LEAST_SECONDS: Final = 20.0
TIMES: Final = 5.0
"""The time limit is the time of the tests without a mutation, times TIMES, and LEAST_SECONDS more:
the machine may be busier than it was."""

OPTIONS: Final = ("-q", "-p", "no:cacheprovider", "-m", "not slow", "--hypothesis-seed=0")
PASSED: Final = (0, 5)
"""Exit codes of pytest: all passed, no test was collected."""


class ControlError(Exception):
    """The tests of an unchanged copy came to no result; the log of pytest is the message."""


@dataclass(eq=False)
class Seen:
    """The report of pytest: the seconds of each file of tests, and the files that failed."""

    seconds: dict[str, float] = field(default_factory=dict)
    failed: set[str] = field(default_factory=set)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Record a phase of a test."""
        file = report.nodeid.partition("::")[0]
        self.seconds[file] = self.seconds.get(file, 0.0) + report.duration
        if report.failed:
            self.failed.add(file)

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Record a file that cannot be imported."""
        if report.failed:
            self.failed.add(report.nodeid)


class Tests:
    """The tests of a copy of the checkout."""

    def __init__(self, folder: Path, checkout: Path) -> None:
        self.folder, self.checkout = folder, checkout
        self.copy, self.report = folder / "copy", folder / "report.json"
        self.seconds: dict[str, float] = {}
        """Files of tests that pass without a mutation."""
        self.left_out: set[str] = set()
        """Files of tests that fail without a mutation."""

    def learn(self, files: Sequence[str]) -> None:
        """Run the files of tests that were not run yet, without a mutation.

        Raises ControlError if pytest itself fails.
        """
        new = [file for file in files if file not in self.seconds and file not in self.left_out]
        if not new:
            return
        code = self._run(new, 60.0 * len(new), compile_files=True)
        seen = self._seen()
        if code not in PASSED and not seen.failed:
            # Every mutant would be taken for killed.
            raise ControlError((self.folder / "log").read_text("utf-8", "replace")[-4000:])
        self.left_out |= seen.failed & set(new)
        for file in set(new) - self.left_out:
            self.seconds[file] = seen.seconds.get(file, 0.0)

    def outcome(self, mutant: Mutant, files: Sequence[str]) -> str:
        """Run tests on a mutant; return its outcome."""
        self.learn(files)
        able = [file for file in files if file in self.seconds]
        if not able:
            return NOT_RUN
        limit = LEAST_SECONDS + TIMES * sum(self.seconds[file] for file in able)
        source = (self.copy / mutant.file).read_text("utf-8")
        with self._changed(mutant.file, apply(source, mutant.mutation)):
            is_killed = self._run(["-x", *able], limit) not in PASSED
            failed = self._seen().failed & set(able)
        if is_killed:
            if self._run(sorted(failed) or able, limit) in PASSED:
                return KILLED
            # The test sometimes fails without the mutation as well, or the machine is busy.
            self.left_out |= failed
            self.seconds = {
                file: 2 * seconds + 1
                for file, seconds in self.seconds.items()
                if file not in failed
            }
            return self.outcome(mutant, files)
        mark = self.folder / "tmp/reached"
        mark.unlink(missing_ok=True)
        with self._changed(mutant.file, witness(source, mutant.mutation, str(mark))):
            self._run(able, limit)
        return SURVIVED if mark.exists() else NOT_RUN

    @contextlib.contextmanager
    def _changed(self, name: str, text: str) -> Iterator[None]:
        place = self.copy / name
        before, times = place.read_bytes(), place.stat()
        place.write_text(text, "utf-8")
        os.utime(place, (1, 1))
        try:
            yield
        finally:
            place.write_bytes(before)
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))

    def _seen(self) -> Seen:
        """Return the report of the last run; it is empty after the time limit."""
        if not self.report.exists():
            return Seen()
        report = json.loads(self.report.read_text())
        return Seen(report["seconds"], set(report["failed"]))

    def _run(self, words: Sequence[str], seconds: float, *, compile_files: bool = False) -> int:
        """Run pytest in a fork; return its exit code (after the time limit: of a signal)."""
        self.report.unlink(missing_ok=True)
        child = os.fork()
        if child == 0:
            try:
                self._be_pytest(words, compile_files=compile_files)
            except BaseException:
                traceback.print_exc(file=sys.__stderr__)
            finally:
                os._exit(3)
        deadline = time.monotonic() + seconds
        while True:
            ended, status = os.waitpid(child, os.WNOHANG)
            if ended:
                break
            if time.monotonic() > deadline:
                _kill_group(child)
                os.kill(child, signal.SIGKILL)  # it may have no group of its own yet
                _, status = os.waitpid(child, 0)
                break
            time.sleep(0.02)
        _kill_group(child)  # processes that tests left behind
        return os.waitstatus_to_exitcode(status)

    def _be_pytest(self, words: Sequence[str], *, compile_files: bool) -> NoReturn:
        os.setsid()
        resource.setrlimit(resource.RLIMIT_DATA, (MOST_BYTES, MOST_BYTES))
        os.chdir(self.copy)
        log = os.open(self.folder / "log", os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        for number in (1, 2):
            os.dup2(log, number)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        self._forget_the_checkout()
        # Ansible keeps temporary files at home.
        os.environ["TMPDIR"] = os.environ["HOME"] = str(self.folder / "tmp")
        if not compile_files:
            sys.dont_write_bytecode = True
            os.environ["PYTHONDONTWRITEBYTECODE"] = "1"
        seen = Seen()
        code = int(pytest.main([*OPTIONS, *words], plugins=[seen]))
        told = {"seconds": seen.seconds, "failed": sorted(seen.failed)}
        self.report.write_text(json.dumps(told))
        sys.stdout.flush()
        os._exit(code)

    def _forget_the_checkout(self) -> None:
        # First all places: a folder without __init__.py asks its parent for its place.
        places = {name: _place_of(module) for name, module in list(sys.modules.items())}
        for name, place in places.items():
            inside = place.startswith(f"{self.checkout}/") and "/.venv/" not in place
            if inside and name != "__main__":
                del sys.modules[name]
        others = [place for place in sys.path if not _is_of(place, self.checkout)]
        sys.path[:] = [str(self.copy), *others]


def _place_of(module: object) -> str:
    """Return the folder of a package, the file of a module, "" if it has neither."""
    file = getattr(module, "__file__", None) or ""
    return str(next(iter(getattr(module, "__path__", [])), file))


def _is_of(place: str, checkout: Path) -> bool:
    resolved = Path(place or ".").absolute()
    return resolved.is_relative_to(checkout) and ".venv" not in resolved.parts


def _kill_group(group: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(group, signal.SIGKILL)
