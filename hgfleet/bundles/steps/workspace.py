"""Workspace: the snapshot of a repository, up to date, and a folder to make bundles in."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.hg.budget import SNAPSHOT, estimate, room_needed
from hgfleet.bundles.hg.scratch import remove
from hgfleet.core.errors import HgfleetError
from hgfleet.hg import store_size

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.bundles.decide.plan import State
    from hgfleet.bundles.steps.job import Job
    from hgfleet.registry.model.registry import Repository


@dataclass(slots=True)
class Trial:
    """Trial clone of a content: the thread with `turn` makes it; `is_proved` once it is right."""

    turn: threading.Lock = field(default_factory=threading.Lock)
    is_proved: bool = False


class Trials:
    """Trial clones of a repository, by the sha256 of the bundle."""

    def __init__(self) -> None:
        self._changing = threading.Lock()
        self._trials: defaultdict[str, Trial] = defaultdict(Trial)

    def of(self, sha256: str) -> Trial:
        """Return the trial of a content, the same for all stores."""
        with self._changing:
            return self._trials[sha256]


@dataclass(frozen=True, slots=True)
class Workspace:
    """The parts that the threads of a repository share.

    `folder` is empty at first, and gone at the end. `snapshot` is the clone that bundles are made
    from, `state` its state, no older than `begun`, and `store` the size of its store in bytes.
    `missing` gets the errors of stores that a bundle could not be brought to. `trials` has the
    contents that were cloned.
    """

    repository: Repository
    folder: Path
    snapshot: Path
    state: State
    store: int
    begun: datetime
    missing: dict[str, HgfleetError] = field(default_factory=dict)
    trials: Trials = field(default_factory=Trials)


@contextlib.contextmanager
def opened(job: Job, repository: Repository, copies: int) -> Iterator[Workspace]:
    """Bring the snapshot up to date and open a workspace with it.

    The workspace is in RAM if everything fits there; else on disk, where the snapshot stays for the
    next run. `copies` is the number of bundles that will be made or cloned.
    """
    store = store_size.size(f"{job.source(repository)}/.hg/store")
    room = room_needed(store, copies)
    in_ram = job.scratch.room.take(room)
    folder = job.scratch.work(names.of(repository), in_ram=in_ram)
    snapshot = folder / "source" if in_ram else job.scratch.snapshot(names.of(repository))
    try:
        folder.mkdir(parents=True, exist_ok=True)
        started, begun = time.monotonic(), datetime.now(UTC).replace(microsecond=0)
        # After `begun`: changesets that were removed before that time are not in the snapshot.
        seen = hg_side.look(job.hg, job.source(repository))
        with job.gate.enter(estimate(SNAPSHOT, store)):
            source = hg_side.Source(job.source(repository), repository.publishing)
            state = hg_side.refresh_snapshot(job.hg, source, seen, snapshot, folder)
        try:
            # hg opened the repository by its path, several times.
            job.access.check(repository)
        except HgfleetError:
            remove(snapshot)
            raise
        took = time.monotonic() - started
        job.report.step(
            "snapshot",
            repository.path,
            f"snapshot of {state.changesets:,} changesets in {took:.1f} s",
            changesets=state.changesets,
            tip=state.tip,
            scratch="ram" if in_ram else "disk",
            duration_s=took,
        )
        yield Workspace(repository, folder, snapshot, state, store, begun)
    finally:
        if in_ram:
            remove(folder)
            job.scratch.room.give(room)
