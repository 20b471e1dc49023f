"""Generation of the bundles of a repository, and their upload to every store, verified."""

from __future__ import annotations

import time
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.manifest import Entry, object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.hg.budget import estimate, required_ram
from hgfleet.bundles.steps import workspace
from hgfleet.bundles.stores.access import ChangedError
from hgfleet.bundles.stores.parallel import each
from hgfleet.bundles.stores.reader import VerificationError, WrongContentError
from hgfleet.core.errors import HgfleetError, UnavailableError
from hgfleet.core.files import file_name
from hgfleet.core.text import size
from hgfleet.objectstore.bucket import MismatchError

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.decide.names import Key
    from hgfleet.bundles.decide.plan import Plan
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.steps.verify import Verifier
    from hgfleet.bundles.steps.workspace import Workspace
    from hgfleet.registry.model.registry import Repository


class BundleGenerator:
    """Generates bundles and uploads them; the caller publishes them."""

    def __init__(self, job: Job, verifier: Verifier) -> None:
        self._job, self._verifier = job, verifier

    def carry_out(
        self,
        repository: Repository,
        decision: Plan,
        missing: dict[str, HgfleetError],
        done: Callable[[str, Mapping[str, Entry]], None],
    ) -> Mapping[str, Mapping[str, Entry]]:
        """Generate and copy the bundles of a plan, all kinds at once; return the new entries.

        `missing` gets the errors of stores that do without some bundle. `done` is called for each
        kind once it is verified, in its thread, while other kinds may take much longer.
        """
        kinds = [kind for kind in decision.kinds if kind in {*decision.build, *decision.copy}]
        with workspace.opened(self._job, repository, len(kinds)) as work:

            def make(kind: str) -> Mapping[str, Entry]:
                if kind in decision.build:
                    new = self._generate(work, kind)
                else:
                    new = self._copy(work, kind, decision)
                if len(kinds) > 1:
                    done(kind, new)
                return new

            made = each(kinds, make)
            missing.update(work.missing)
            for result in made.values():
                if isinstance(result, HgfleetError):
                    raise result
            return {kind: new for kind, new in made.items() if not isinstance(new, HgfleetError)}

    def _generate(self, work: Workspace, kind: str) -> Mapping[str, Entry]:
        """Generate a bundle and upload it to every store that is up."""
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
            # Changesets that were removed since may be in it.
            made=work.begun,
            required_ram=required_ram(kind, level),
            identity=work.repository.identity,
        )
        key = make_key(work.repository.identity, work.state.tip, bundle.sha256, kind)
        stores = self._job.stores.of(work.repository).up
        made = self._distribute(work, key, entry, stores, bundle.path)
        bundle.path.unlink()
        if not made:
            # No store has the bundle: the repository fails, and not a single store.
            problems = {**self._job.stores.problems(work.repository), **work.missing}
            raise next(iter(problems.values()))
        return made

    def _copy(self, work: Workspace, kind: str, decision: Plan) -> Mapping[str, Entry]:
        """Copy a published bundle from a store that has it to the stores of the plan."""
        path = work.folder / f"{kind}-copy.hg"
        problem: HgfleetError | None = None
        for entry in decision.keep[kind].values():
            store, key = self._job.stores.place(entry)
            try:
                self._job.stores.reader.check(entry, path)
            except (UnavailableError, VerificationError) as error:
                problem = error
                if isinstance(error, WrongContentError):
                    self._job.note_corrupt(store)
                    self._job.schedule.reads.request(file_name(names.of(work.repository)))
                continue
            # The content was cloned before its publication.
            work.trials.of(entry.sha256).is_proved = True
            # The release before may have made the key.
            key = make_key(entry.identity, key.tip, entry.sha256, kind)
            made = self._distribute(work, key, entry, decision.copy[kind], path)
            path.unlink()
            return made
        assert problem is not None
        work.missing.update(dict.fromkeys(decision.copy[kind], problem))
        return {}

    def _distribute(
        self, work: Workspace, key: Key, entry: Entry, stores: Sequence[str], path: Path
    ) -> Mapping[str, Entry]:
        """Upload a bundle to these stores, all at once, and verify it in each.

        The errors are in `work.missing`; a store with an error does without the bundle.
        """
        done = {}
        results = each(stores, lambda store: self._bring(work, store, key, entry, path))
        for store, result in results.items():
            if isinstance(result, ChangedError):
                raise result
            if not isinstance(result, HgfleetError):
                self._job.stores.note_success(store)
                done[store] = result
                continue
            work.missing[store] = result
            self._job.stores.note_failure(store, result)
            self._job.report.step(
                "missing",
                work.repository.path,
                f"{key.kind}: not in {store}: {result}",
                kind=key.kind,
                store=store,
                error=result,
            )
        return done

    def _bring(self, work: Workspace, store: str, key: Key, entry: Entry, path: Path) -> Entry:
        """Upload a bundle to a store and verify it there; return its entry."""
        there = replace(
            entry,
            url=object_url(self._job.stores.urls[store], key),
            private=not work.repository.is_public,
        )
        for last in (False, True):
            created = self._upload(work, store, key, there, path)
            try:
                self._verifier.verify(work, store, there, path)
            except VerificationError as error:
                self._delete_wrong(work.repository, store, key, str(error))
                # An object from an earlier run may be corrupt; a second upload replaces it.
                if created or last or not isinstance(error, WrongContentError):
                    raise
            else:
                break
        return there

    def _upload(self, work: Workspace, store: str, key: Key, entry: Entry, path: Path) -> bool:
        """Upload a bundle to a store; False if it is there already.

        Raises ChangedError, with no object left, if it must not be there any more.
        """
        started = time.monotonic()
        bucket = self._job.stores.buckets[store]
        self._job.access.check(work.repository)
        metadata = {
            "bundlespec": entry.bundlespec,
            "changesets": str(entry.changesets),
            "made": entry.made.isoformat(),
            "required-ram": str(entry.required_ram),
        }
        try:
            created = bucket.upload(str(key), path, entry.sha256, metadata)
        except MismatchError as error:
            self._delete_wrong(work.repository, store, key, str(error))
            created = bucket.upload(str(key), path, entry.sha256, metadata)
        try:
            # An upload takes long enough for another decision of the owner.
            self._job.access.check(work.repository)
        except HgfleetError:
            self._job.delete(store, str(key))
            raise
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

    def _delete_wrong(self, repository: Repository, store: str, key: Key, problem: str) -> None:
        """Withdraw an object whose content does not fit its key, then delete it.

        An upload never overwrites, so the object would be "already in" the store in every run.
        """
        url = object_url(self._job.stores.urls[store], key)
        self._job.publisher.withdraw(repository, {url: problem})
        self._job.stores.buckets[store].delete(str(key))
