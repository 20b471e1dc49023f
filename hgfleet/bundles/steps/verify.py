"""Verification of a bundle through its public URL: headers, a range, and a real clone or a digest.

A content that is in several stores is cloned through a single store. Its copies in the other stores
are read whole and compared with the digest, which shows that a clone through them has the same
result.
"""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.plan import order
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.hg.budget import CLONE, estimate
from hgfleet.bundles.hg.scratch import remove
from hgfleet.bundles.steps import workspace
from hgfleet.bundles.stores.reader import VerificationError, WrongContentError
from hgfleet.core.files import file_name
from hgfleet.hg.command_server import HgError
from hgfleet.objectstore.presign import unsigned

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.plan import Plan
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.steps.workspace import Workspace
    from hgfleet.registry.model.registry import Repository


class Verifier:
    """Verifies bundles before their publication, and again later."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def verify(
        self, work: Workspace, store: str, entry: Entry, content: Path | None = None
    ) -> None:
        """Verify an object from outside; `content` is the uploaded file, if it is still there.

        A bundle of a large repository is compared by its digest. Any other bundle is cloned, once
        for each content. Raises HgfleetError.
        """
        started = time.monotonic()
        kind = self._job.stores.place(entry)[1].kind
        try:
            how = self._verify(work, store, entry, content)
        except WrongContentError:
            self._job.note_corrupt(store)
            raise
        took = time.monotonic() - started
        self._job.report.step(
            "verified",
            work.repository.path,
            f"{kind}: {how} from {entry.url} in {took:.1f} s",
            kind=kind,
            store=store,
            url=entry.url,
            duration_s=took,
        )

    def _verify(self, work: Workspace, store: str, entry: Entry, content: Path | None) -> str:
        """Verify an object and return what was done."""
        reader, kind = self._job.stores.reader, self._job.stores.place(entry)[1].kind
        if entry.private:
            reader.check_closed(entry.url)
        reader.probe(entry, content)
        if self._job.config.is_large(work.repository.path):
            reader.check(entry)
            return "compared"
        clone = work.folder / f"{kind}-{store}-clone"
        return self._try_content(work, entry, lambda: self._clone(work, kind, entry, clone))

    def _try_content(self, work: Workspace, entry: Entry, clone: Callable[[], None]) -> str:
        """Clone a content that no store has proved yet, else compare it; return what was done.

        A failed clone proves nothing about the content, so the next store makes its own.
        """
        trial = work.trials.of(entry.sha256)
        is_compared = False
        if not trial.turn.acquire(blocking=False):
            # Another store has the clone at this moment.
            self._job.stores.reader.check(entry)
            is_compared = True
            trial.turn.acquire()
        try:
            if not trial.is_proved:
                clone()
                trial.is_proved = True
                return "verified by a clone"
        finally:
            trial.turn.release()
        if not is_compared:
            self._job.stores.reader.check(entry)
        return "compared"

    def _clone(self, work: Workspace, kind: str, entry: Entry, clone: Path) -> None:
        """Make a clone, compare its heads, and run `hg verify` on it where that is due."""
        reader, schedule, now = self._job.stores.reader, self._job.schedule, self._job.options.now
        # No limit on memory: the bundle is cloned on this host, however little it has.
        line = replace(entry, url=reader.url(entry), required_ram=0).line()
        try:
            with self._job.gate.enter(estimate(CLONE, work.store)):
                try:
                    heads = hg_side.clone_through(self._job.hg, work.snapshot, line, clone)
                except HgError as error:
                    # A wrong download is an error of its own.
                    reader.check(entry)
                    raise HgError(unsigned(str(error))) from None
                if heads != work.state.heads:
                    raise VerificationError(
                        f"{entry.url}: a clone through it has {len(heads)} heads that are not the "
                        f"{len(work.state.heads)} of the repository"
                    )
                if schedule.clones.take(file_name(names.of(work.repository)), now):
                    self._hg_verify(work, kind, clone)
        finally:
            remove(clone)

    def _hg_verify(self, work: Workspace, kind: str, clone: Path) -> None:
        """Run `hg verify` on a clone."""
        started = time.monotonic()
        try:
            hg_side.verify_clone(self._job.hg, clone)
        except BaseException:
            name = file_name(names.of(work.repository))
            self._job.schedule.clones.again(name, self._job.options.now)
            raise
        took = time.monotonic() - started
        self._job.report.step(
            "checked",
            work.repository.path,
            f"{kind}: hg verify found nothing wrong with a clone in {took:.1f} s",
            kind=kind,
            duration_s=took,
        )

    def verify_history(self, repository: Repository, decision: Plan) -> None:
        """Clone the first published bundle again, with `hg verify`, where that is due."""
        name = file_name(names.of(repository))
        if self._job.config.is_large(repository.path) or not self._job.stores.buckets:
            return
        entries = order(decision.kinds, list(self._job.stores.urls), decision.keep)
        if not entries or not self._job.schedule.clones.due(name, self._job.options.now):
            return
        with workspace.opened(self._job, repository, 1) as work:
            self.verify_published(work, entries[0])

    def verify_published(self, work: Workspace, entry: Entry) -> None:
        """Verify a published bundle; after a failure the next run reads the whole repository."""
        try:
            self.verify(work, self._job.stores.place(entry)[0], entry)
        except VerificationError:
            self._job.schedule.reads.request(file_name(names.of(work.repository)))
            raise
