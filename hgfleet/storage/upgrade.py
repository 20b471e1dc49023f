"""Several repositories at the same time, each in a process of its own."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HgfleetError, HostError, TemporaryError
from hgfleet.core.text import size
from hgfleet.storage import repository_formats, work_folder
from hgfleet.storage.plan import Candidate, Disk, Ledger, order
from hgfleet.storage.repository_formats import Action, Decision

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hgfleet.core.report import Report

DAY_SECONDS: Final = 86_400

_PHASES: Final = {
    "measure-before": "measuring",
    "copy": "copying",
    "verify": "comparing the copy",
    "measure-after": "measuring the copy",
    "swap": "adding new pushes, and exchanging",
}


class WorkerError(HgfleetError):
    """The error of a worker, with its exit code."""

    def __init__(self, message: str, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a repository's upgrade; `figures` are the worker's, empty without an upgrade."""

    path: str
    before: frozenset[str] = frozenset()
    figures: Mapping[str, Any] = field(default_factory=dict)
    error: HgfleetError | None = None


@dataclass(frozen=True, slots=True)
class Fleet:
    """The repositories of a host, and how to run hg for them."""

    root: Path
    hgrc: Path

    def control(self, path: str) -> Path:
        """Return the .hg of a repository."""
        return self.root / path / ".hg"

    def environment(self) -> dict[str, str]:
        """Return the environment of a worker."""
        return {
            "HGRCPATH": str(self.hgrc),
            "HGPLAIN": "1",
            "HGENCODING": "utf-8",
            "HGFLEET_USER": "operator:storage-upgrade",
            "HOME": "/nonexistent",
            "LANG": "C.UTF-8",
            "PATH": os.environ.get("PATH", os.defpath),
            "PYTHONPATH": str(Path(__file__).parents[2]),
        }

    def command(self, *arguments: str) -> list[str]:
        """Return the command of a worker with the lowest priority on the disk.

        The class "idle" would get no disk time on a busy host, and pushes would wait for the
        worker's lock for ever.
        """
        last = ["ionice", "-c", "2", "-n", "7"] if shutil.which("ionice") else []
        return [*last, sys.executable, "-m", "hgfleet.storage.worker", *arguments]

    def wanted(self) -> frozenset[str]:
        """Ask hg for the format of a new repository. Raises HostError."""
        done = subprocess.run(
            self.command("wanted"),
            env=self.environment(),
            cwd="/",
            capture_output=True,
            text=True,
            check=False,
        )
        try:
            requirements = frozenset(json.loads(done.stdout)["requirements"])
        except (ValueError, KeyError, TypeError) as error:
            raise HostError(f"hg does not start: {done.stderr.strip()[-1000:]}") from error
        if problem := repository_formats.problem(requirements):
            raise HostError(problem)
        return requirements

    def candidate(self, path: str, wanted: frozenset[str], identity: str = "") -> Candidate:
        """Examine the repository of an entry; an unreadable repository is refused."""
        control = self.control(path)
        try:
            decision = repository_formats.decide(work_folder.requirements(control), wanted)
        except HgfleetError as error:
            return Candidate(path, Decision(Action.REFUSE, (str(error),)), 0, 0)
        return Candidate(path, decision, *work_folder.measure(control / "store"), identity)

    def disk(self, path: str) -> Disk:
        """Return the file system of a repository."""
        status = os.statvfs(self.control(path))
        return Disk(
            status.f_blocks * status.f_frsize,
            status.f_bavail * status.f_frsize,
            status.f_files,
            status.f_favail,
        )


class Upgrade:
    """A run. `keep_days` is how long an old store stays; None: until its last reader ends.

    `prune` removes old stores before the time that an earlier run gave them.
    """

    def __init__(
        self,
        fleet: Fleet,
        report: Report,
        *,
        jobs: int = 1,
        measure: bool = True,
        keep_days: float | None = None,
        prune: bool = False,
    ) -> None:
        self.fleet, self.report, self.jobs, self.measure = fleet, report, jobs, measure
        self.keep_seconds = None if keep_days is None else keep_days * DAY_SECONDS
        self.prune = prune
        self._ledger = Ledger()
        self._changed = threading.Condition()

    def run(self, candidates: Iterable[Candidate]) -> list[Outcome]:
        """Upgrade repositories; a failure is in the outcome of its repository."""
        ordered = order(candidates)
        with ThreadPoolExecutor(self.jobs, "storage") as pool:
            try:
                return list(pool.map(self._guarded, ordered))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _guarded(self, candidate: Candidate) -> Outcome:
        before: frozenset[str] = frozenset()
        try:
            if candidate.decision.action is Action.REFUSE:
                raise HostError("; ".join(candidate.decision.reasons))
            control = self.fleet.control(candidate.path)
            before = work_folder.requirements(control)
            if candidate.decision.action is Action.CURRENT:
                self._tidy(candidate.path, control)
                return Outcome(candidate.path)
            figures = self._upgrade(candidate)
        except (HgfleetError, OSError) as problem:
            error = problem if isinstance(problem, HgfleetError) else HostError(str(problem))
            self.report.step("failed", candidate.path, f"FAILED: {error}", error=error)
            return Outcome(candidate.path, before, error=error)
        self._report(candidate, figures)
        return Outcome(candidate.path, before, figures)

    def _tidy(self, path: str, control: Path) -> None:
        """Remove the old store of a repository that is current."""
        if not (control / work_folder.WORK).exists() and not (control / work_folder.AWAY).exists():
            return
        with work_folder.claimed(control):
            work_folder.remove(control / work_folder.AWAY)
            gone = work_folder.remove_old(control, self.keep_seconds, prune=self.prune)
        text = "its old store is removed" if gone else "its old store stays for now"
        self.report.step("tidied", path, text, removed=gone)

    def _upgrade(self, candidate: Candidate) -> Mapping[str, Any]:
        self._begin(candidate)
        try:
            return self._work(candidate)
        finally:
            with self._changed:
                self._ledger.release(candidate.path)
                self._changed.notify_all()

    def _begin(self, candidate: Candidate) -> None:
        """Wait for room; raises HostError if no running upgrade will free any."""
        with self._changed:
            while problem := self._ledger.shortage(candidate, self.fleet.disk(candidate.path)):
                if not self._ledger.promised:
                    raise HostError(f"{problem}; make room, or move it to a larger disk")
                self._changed.wait()
            self._ledger.take(candidate)

    def _work(self, candidate: Candidate) -> Mapping[str, Any]:
        keep = "" if self.keep_seconds is None else str(self.keep_seconds)
        where = str(self.fleet.root / candidate.path)
        prune = ["prune"] if self.prune else []
        with subprocess.Popen(
            self.fleet.command(
                *("upgrade", where, candidate.identity),
                *("yes" if self.measure else "no", keep, *prune),
            ),
            env=self.fleet.environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            errors="replace",
        ) as process:
            assert process.stdout is not None
            assert process.stderr is not None
            complaints: list[str] = []
            reader = threading.Thread(
                target=lambda: complaints.extend(process.stderr or ()), daemon=True
            )
            reader.start()
            last: Mapping[str, Any] = {}
            for last in _events(process.stdout):
                self._follow(candidate.path, last)
            process.wait()
            reader.join()
        if last.get("event") == "done":
            return last
        if last.get("event") == "failed":
            raise WorkerError(str(last["error"]), int(last["code"]))
        said = "".join(complaints).strip()[-500:] or f"exit code {process.returncode}"
        raise TemporaryError(f"its process ended early ({said}); the next run goes on")

    def _follow(self, path: str, said: Mapping[str, Any]) -> None:
        if said["event"] == "phase":
            phase = said["phase"]
            self.report.step("phase", path, _PHASES.get(phase, phase), phase=phase)
        elif said["event"] == "progress":
            share = float(said["share"])
            self.report.step("progress", path, f"{share:.0%} copied", share=share)
        elif said["event"] == "again":
            self.report.step("again", path, said["text"])

    def _report(self, candidate: Candidate, figures: Mapping[str, Any]) -> None:
        if not figures.get("changed"):
            self.report.step("current", candidate.path, "is current")
            return
        self.report.step(
            "upgraded",
            candidate.path,
            f"upgraded in {figures['seconds']:.1f} s, pushes waited for at most "
            f"{figures['locked_seconds']:.2f} s: {size(figures['size_before'])} -> "
            f"{size(figures['size_after'])}"
            + ("" if figures["removed"] else "; the old store stays for now"),
            duration_s=figures["seconds"],
            locked_s=figures["locked_seconds"],
            size_before_bytes=figures["size_before"],
            size_after_bytes=figures["size_after"],
            removed=figures["removed"],
        )


def _events(lines: Iterable[str]) -> Iterator[Mapping[str, Any]]:
    for line in lines:
        try:
            event = json.loads(line)
        except ValueError:
            continue
        if isinstance(event, dict) and "event" in event:
            yield event


def table(outcomes: Sequence[Outcome], wanted: frozenset[str]) -> list[str]:
    """Return a table of figures before and after, a line for each upgraded repository."""
    head = ("REPOSITORY", "FORMAT", "SIZE", "", "BUNDLE", "", "READ", "", "TOOK", "LOCKED")
    rows: list[tuple[str, ...]] = [head]
    for outcome in outcomes:
        figures = outcome.figures
        if not figures.get("changed"):
            continue
        before, after = figures["before"] or {}, figures["after"] or {}
        row = [
            outcome.path,
            f"{repository_formats.summary(outcome.before)} -> {repository_formats.summary(wanted)}",
        ]
        row += _pair(figures["size_before"], figures["size_after"], size)
        for name in ("bundle", "read"):
            row += _pair(before.get(name), after.get(name), _seconds)
        row += [f"{figures['seconds']:.1f} s", f"{figures['locked_seconds']:.2f} s"]
        rows.append(tuple(row))
    if len(rows) == 1:
        return []
    widths = [max(len(row[column]) for row in rows) for column in range(len(head))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
        for row in rows
    ]


def _seconds(value: float) -> str:
    return f"{value:.2f} s"


def _pair(before: Any, after: Any, shown: Any) -> list[str]:
    if before is None or after is None:
        return ["-", ""]
    share = f"{after / before - 1:+.0%}" if before else ""
    return [f"{shown(before)} -> {shown(after)}", share]
