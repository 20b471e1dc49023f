"""What one repository needs: a snapshot, bundles of it, each of them in every store, verified."""

from __future__ import annotations

import contextlib
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

from hgfleet.bundles import repository as hg_side
from hgfleet.bundles.budget import CLONE, SNAPSHOT, estimate, required_ram, room_needed
from hgfleet.bundles.job import each, remove
from hgfleet.bundles.kinds import make_key
from hgfleet.bundles.manifest import Entry, locate, object_url
from hgfleet.bundles.plan import order
from hgfleet.bundles.verify import VerificationError, WrongContentError
from hgfleet.core.errors import HgfleetError, UnavailableError
from hgfleet.core.files import file_name
from hgfleet.core.text import size
from hgfleet.hg.command_server import HgError
from hgfleet.objectstore.bucket import MismatchError
from hgfleet.objectstore.presign import unsigned

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.job import Job
    from hgfleet.bundles.kinds import Key
    from hgfleet.bundles.plan import Plan, State
    from hgfleet.registry.model import Repository


@dataclass(frozen=True, slots=True)
class Workspace:
    """What the threads that work on one repository share.

    `folder` is empty at first, and gone at the end; `snapshot` is the clone to make bundles from,
    `state` what is in it, and `store` the size of its store in bytes.
    """

    repository: Repository
    folder: Path
    snapshot: Path
    state: State
    store: int
    missing: dict[str, HgfleetError] = field(default_factory=dict)


MAX_FAILURES: Final = 3


"""Failures in a row after which a store is left alone for the rest of a run: each costs its time
limit and its retries, and there may be a thousand repositories."""


class BundleGenerator:
    """Makes the bundles of repositories, and brings them to the stores; publishes nothing."""

    def __init__(self, job: Job) -> None:
        self._job = job

    @contextlib.contextmanager
    def workspace(self, repository: Repository, seen: State, copies: int) -> Iterator[Workspace]:
        """Bring the snapshot up to date and give a folder to work in.

        Both are in RAM if all that will be made there fits, else on disk, where the snapshot stays
        for the next run. `copies` is the number of bundles that will be made or cloned.
        """
        name, size = file_name(repository.path), hg_side.store_size(self._job.source(repository))
        room = room_needed(size, copies, len(self._job.config.stores))
        in_ram = self._job.room.take(room)
        folder = (
            (self._job.config.scratch_ram if in_ram else self._job.config.scratch) / "work" / name
        )
        snapshot = folder / "source" if in_ram else self._job.snapshot(repository)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            started = time.monotonic()
            with self._job.gate.enter(estimate(SNAPSHOT, size)):
                state = hg_side.refresh_snapshot(
                    self._job.hg, self._job.source(repository), seen, snapshot, folder
                )
            took = time.monotonic() - started
            self._job.report.step(
                "snapshot",
                repository.path,
                f"snapshot of {state.changesets:,} changesets in {took:.1f} s",
                changesets=state.changesets,
                tip=state.tip,
                scratch="ram" if in_ram else "disk",
                duration_s=took,
            )
            yield Workspace(repository, folder, snapshot, state, size)
        finally:
            if in_ram:
                remove(folder)
                self._job.room.give(room)

    def make(
        self,
        repository: Repository,
        decision: Plan,
        seen: State,
        missing: dict[str, HgfleetError],
    ) -> Mapping[str, Mapping[str, Entry]]:
        """Generate and copy what was decided, all kinds at once; return the new entries."""
        kinds = [kind for kind in decision.kinds if kind in {*decision.build, *decision.copy}]
        with self.workspace(repository, seen, len(kinds)) as work:

            def make(kind: str) -> Mapping[str, Entry]:
                if kind in decision.build:
                    return self._generate(work, kind)
                return self._copy(work, kind, decision)

            made = each(kinds, make)
            missing.update(work.missing)
            for result in made.values():
                if isinstance(result, HgfleetError):
                    raise result
            return {kind: one for kind, one in made.items() if not isinstance(one, HgfleetError)}

    def _generate(self, work: Workspace, kind: str) -> Mapping[str, Entry]:
        """Generate one bundle and bring it to every store that is up."""
        started = time.monotonic()
        level = self._job.config.zstd_level_of(work.repository.path)
        with self._job.gate.enter(estimate(kind, work.store, level)):
            bundle = hg_side.generate(self._job.hg, work.snapshot, kind, work.folder, level)
        took = time.monotonic() - started
        self._job.report.step(
            "generated",
            work.repository.path,
            f"{kind}: {size(bundle.size)} in {took:.1f} s",
            kind=kind,
            size_bytes=bundle.size,
            duration_s=took,
        )
        entry = Entry(
            url="",
            bundlespec=bundle.bundlespec,
            sha256=bundle.sha256,
            size=bundle.size,
            changesets=work.state.changesets,
            made=datetime.now(UTC).replace(microsecond=0),
            required_ram=required_ram(kind, level),
        )
        key = make_key(work.repository.path, work.state.tip, bundle.sha256, kind)
        stores = self._job.stores(work.repository).up
        made = self._spread(work, key, entry, stores, bundle.path)
        bundle.path.unlink()
        if not made:
            # Nothing to publish: a failure, and not a matter of one store.
            raise next(iter({**self._job.problems(work.repository), **work.missing}.values()))
        return made

    def _copy(self, work: Workspace, kind: str, decision: Plan) -> Mapping[str, Entry]:
        """Bring a published bundle to the stores that lack it, from one that has it."""
        kept = decision.keep[kind]
        path = work.folder / f"{kind}-copy.hg"
        problem: HgfleetError | None = None
        for entry in kept.values():
            place = locate(entry, self._job.config.public_urls)
            assert place is not None
            try:
                self._job.reader.check(entry, path)
            except (UnavailableError, VerificationError) as error:
                problem = error
                if isinstance(error, WrongContentError):
                    self._job.reads.ask(file_name(work.repository.path))
                continue
            made = self._spread(work, place[1], entry, decision.copy[kind], path)
            path.unlink()
            return made
        assert problem is not None
        work.missing.update(dict.fromkeys(decision.copy[kind], problem))
        return {}

    def _spread(
        self, work: Workspace, key: Key, entry: Entry, stores: Sequence[str], path: Path
    ) -> Mapping[str, Entry]:
        """Upload a bundle to these stores, all at once, and verify it in each.

        What fails is noted in `work.missing`, and the store does without.
        """

        def bring(store: str) -> Entry:
            there = replace(
                entry,
                url=object_url(self._job.config.public_urls[store], key),
                private=not work.repository.is_public,
            )
            for last in (False, True):
                created = self._upload(work, store, key, there, path)
                try:
                    self.verify(work, store, there, path)
                except VerificationError as error:
                    self._discard(work.repository, store, key, str(error))
                    # What was there already may be spoilt; what is brought there now is right.
                    if created or last or not isinstance(error, WrongContentError):
                        raise
                else:
                    break
            return there

        done = {}
        for store, result in each(stores, bring).items():
            if not isinstance(result, HgfleetError):
                self._job.failures[store] = 0
                done[store] = result
                continue
            work.missing[store] = result
            self._job.failures[store] += 1
            if self._job.failures[store] >= MAX_FAILURES and isinstance(result, UnavailableError):
                self._job.down[store] = result
            self._job.report.step(
                "missing",
                work.repository.path,
                f"{key.kind}: not in {store}: {result}",
                kind=key.kind,
                store=store,
                error=result,
            )
        return done

    def _upload(self, work: Workspace, store: str, key: Key, entry: Entry, path: Path) -> bool:
        """Bring a bundle to a store; False if it is there already."""
        started = time.monotonic()
        bucket = self._job.buckets[store]
        metadata = {
            "bundlespec": entry.bundlespec,
            "changesets": str(entry.changesets),
            "made": entry.made.isoformat(),
            "required-ram": str(entry.required_ram),
        }
        try:
            created = bucket.upload(str(key), path, entry.sha256, metadata)
        except MismatchError as error:
            self._discard(work.repository, store, key, str(error))
            created = bucket.upload(str(key), path, entry.sha256, metadata)
        took = time.monotonic() - started
        self._job.report.step(
            "uploaded" if created else "present",
            work.repository.path,
            f"{key.kind}: {'uploaded to' if created else 'already in'} {store} as {key}"
            f" in {took:.1f} s",
            kind=key.kind,
            store=store,
            key=key,
            size_bytes=entry.size,
            duration_s=took,
        )
        return created

    def _discard(self, repository: Repository, store: str, key: Key, problem: str) -> None:
        """Delete an object that is not what its name says, after nobody is sent to it any more.

        Left there, it would be "already there" in every later run.
        """
        self._job.withdraw(
            repository, {object_url(self._job.config.public_urls[store], key): problem}
        )
        self._job.buckets[store].delete(str(key))

    def verify(
        self, work: Workspace, store: str, entry: Entry, content: Path | None = None
    ) -> None:
        """Look at an object from outside, and make a real clone through it; raises what is wrong.

        `content` is the file that was uploaded, where there is one.
        """
        started = time.monotonic()
        place = locate(entry, self._job.config.public_urls)
        assert place is not None
        kind = place[1].kind
        if entry.private:
            self._job.reader.check_closed(entry.url)
        self._job.reader.probe(entry, content)
        if self._job.config.is_large(work.repository.path):
            self._job.reader.check(entry)
            how = "compared"
        else:
            self._clone(work, kind, entry, work.folder / f"{kind}-{store}-clone")
            how = "verified by a clone"
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

    def _clone(self, work: Workspace, kind: str, entry: Entry, clone: Path) -> None:
        """Make a clone and compare its heads, and now and then all of it; leaves nothing."""
        name = file_name(work.repository.path)
        # Whatever memory this host has, the bundle is to be tried.
        line = replace(entry, url=self._job.reader.url(entry), required_ram=0).line()
        try:
            with self._job.gate.enter(estimate(CLONE, work.store)):
                try:
                    heads = hg_side.clone_through(self._job.hg, work.snapshot, line, clone)
                except HgError as error:
                    # Is it hg, or is it what was downloaded?
                    self._job.reader.check(entry)
                    raise HgError(unsigned(str(error))) from None
                if heads != work.state.heads:
                    raise VerificationError(
                        f"{entry.url}: a clone through it has {len(heads)} heads that are not the "
                        f"{len(work.state.heads)} of the repository"
                    )
                if self._job.checks.take(name, self._job.now):
                    self._verify_clone(work, kind, clone, name)
        finally:
            remove(clone)

    def _verify_clone(self, work: Workspace, kind: str, clone: Path, name: str) -> None:
        started = time.monotonic()
        try:
            hg_side.verify_clone(self._job.hg, clone)
        except BaseException:
            self._job.checks.again(name, self._job.now)
            raise
        took = time.monotonic() - started
        self._job.report.step(
            "checked",
            work.repository.path,
            f"{kind}: hg verify found nothing wrong with a clone in {took:.1f} s",
            kind=kind,
            duration_s=took,
        )

    def verify_history(self, repository: Repository, decision: Plan, seen: State) -> None:
        """Clone again, with `hg verify`, what has been published for long."""
        if self._job.config.is_large(repository.path):
            return
        entries = order(decision.kinds, list(self._job.config.public_urls), decision.keep)
        if not entries or not self._job.buckets:
            return
        if not self._job.checks.due(file_name(repository.path), self._job.now):
            return
        with self.workspace(repository, seen, 1) as work:
            place = locate(entries[0], self._job.config.public_urls)
            assert place is not None
            try:
                self.verify(work, place[0], entries[0])
            except VerificationError:
                self._job.reads.ask(file_name(repository.path))
                raise
