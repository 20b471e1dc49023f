"""Published bundles: whether they answer and are whole, their pruning, and the pages about them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hgfleet.bundles import pages
from hgfleet.bundles.manifest import locate
from hgfleet.bundles.parallel import each
from hgfleet.bundles.plan import misplaced
from hgfleet.bundles.prune import prunable
from hgfleet.bundles.reader import VerificationError, WrongContentError
from hgfleet.core.errors import HgfleetError, UnavailableError
from hgfleet.core.files import file_name
from hgfleet.core.text import size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from datetime import datetime

    from hgfleet.bundles.job import Job
    from hgfleet.bundles.manifest import Entry
    from hgfleet.bundles.stores import StoreListing
    from hgfleet.registry.model import Repository


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read of all published bundles of a repository.

    `wrong` has the entries whose object has other content, with the difference; `unread` has the
    errors of stores with objects that could not be read. `is_due` is False where no read was due.
    """

    is_due: bool = False
    wrong: Mapping[Entry, str] = field(default_factory=dict)
    unread: Mapping[str, HgfleetError] = field(default_factory=dict)


class PublishedBundles:
    """The published bundles of repositories, under the lock of each."""

    def __init__(self, job: Job) -> None:
        self._job = job

    def dead(self, repository: Repository, listing: Mapping[str, StoreListing]) -> dict[str, str]:
        """Return the URLs of entries that no client should get any more, with the reasons.

        Such an object is missing, of another size, in a store that is not for the repository, or
        does not answer.
        """
        sizes = {
            store: {item.key: item.size for item in one.objects} for store, one in listing.items()
        }
        stores = self._job.stores.of(repository)
        published = self._job.manifests.read(repository.path)
        # Without a store for the repository, the plan withdraws all entries.
        dead = misplaced(published, stores) if stores.urls else {}
        for entry in published:
            place = locate(entry, stores.urls)
            if place is None or not self._job.stores.buckets:
                continue
            store, key = place
            # The list is from the beginning of the run; another run may have published since.
            if sizes.get(store, {}).get(str(key)) != entry.size and (
                problem := self._job.stores.problem(store, entry)
            ):
                dead[entry.url] = problem
        return dead

    def read(self, repository: Repository, dead: Collection[str]) -> ReadResult:
        """Read all published bundles as clients do, where that is due, and compare the digests.

        A list of a store, or the headers of an object, do not show that the content is corrupt.
        Entries with URLs in `dead` are skipped.
        """
        started = time.monotonic()
        if not self._is_read_due(repository):
            return ReadResult()
        urls = self._job.stores.of(repository).urls
        published = self._job.manifests.read(repository.path)
        entries = [entry for entry in published if entry.url not in dead and locate(entry, urls)]
        if not entries or not self._takes_read_slot(repository):
            return ReadResult()
        wrong: dict[Entry, str] = {}
        unread: dict[str, HgfleetError] = {}
        for entry in entries:
            self._compare(entry, wrong, unread)
        took = time.monotonic() - started
        self._job.report.step(
            "read",
            repository.path,
            f"read {len(entries)} bundles in {took:.1f} s, {len(wrong)} wrong"
            + "".join(f"; not all of {store}: {error}" for store, error in unread.items()),
            entries=len(entries),
            wrong=len(wrong),
            unread=",".join(unread) or None,
            duration_s=took,
        )
        return ReadResult(True, wrong, unread)

    def _is_read_due(self, repository: Repository) -> bool:
        """Whether a read is due; the time runs from the first run, even without bundles."""
        if self._job.options.dry_run or not self._job.stores.buckets:
            return False
        return self._job.schedule.reads.due(file_name(repository.path), self._job.options.now)

    def _takes_read_slot(self, repository: Repository) -> bool:
        """Whether this run may still make a read; a requested one always."""
        name, schedule = file_name(repository.path), self._job.schedule
        return schedule.reads.is_requested(name) or schedule.read_slots.acquire(blocking=False)

    def _compare(
        self, entry: Entry, wrong: dict[Entry, str], unread: dict[str, HgfleetError]
    ) -> None:
        stores = self._job.stores
        store = stores.place(entry)[0]
        problem = stores.down.get(store) or stores.unread.get(store)
        if problem is None:
            try:
                stores.reader.check(entry)
            except WrongContentError as error:
                wrong[entry] = str(error).removeprefix(f"{entry.url}: ")
                self._job.note_corrupt(store)
            except VerificationError as error:
                problem = error
            except UnavailableError as error:
                # Each further object would cost the time limit again.
                problem = stores.unread[store] = error
        if problem is not None:
            unread[store] = problem

    def delete_wrong(
        self, repository: Repository, result: ReadResult
    ) -> Mapping[str, HgfleetError]:
        """Delete the objects with wrong content, after their entries were withdrawn.

        An upload never overwrites, so such an object would stay for ever. Returns the errors of
        reading and deleting, by store.
        """
        problems = dict(result.unread)
        for entry in result.wrong:
            store, key = self._job.stores.place(entry)
            try:
                self._job.stores.buckets[store].delete(str(key))
            except HgfleetError as error:
                problems[store] = error
        if result.is_due and not result.unread:
            self._job.schedule.reads.done(file_name(repository.path), self._job.options.now)
        return problems

    def prune(self, repository: Repository, listing: Mapping[str, StoreListing]) -> None:
        """Delete the objects that no manifest of the retention time names."""
        now, dry_run = self._job.options.now, self._job.options.dry_run
        before = now - self._job.config.retention
        named = self._job.manifests.read(repository.path)
        recent = self._job.manifests.recent(repository.path, before)
        others = () if repository.is_public else self._job.stores.of(repository).others
        purged = repository.path in self._job.orphans.purged
        for store, one in listing.items():
            # A client with the URL could still read an object that is private now, or purged.
            at_once = purged or store in others
            entries, since = (named, now) if at_once else (named + recent, before)
            places = (locate(entry, self._job.stores.urls) for entry in entries)
            keys = {str(place[1]) for place in places if place and place[0] == store}
            self._prune_store(repository.path, store, one, keys, since)
        if listing and not dry_run:
            self._job.manifests.forget(repository.path, before)

    def _prune_store(
        self, path: str, store: str, listing: StoreListing, keys: Collection[str], before: datetime
    ) -> None:
        dry_run, bucket = self._job.options.dry_run, self._job.stores.buckets[store]
        would = "would delete" if dry_run else "deleted"
        for item in prunable(path, listing.objects, keys, before):
            if not dry_run:
                bucket.delete(item.key)
            self._job.report.step(
                "pruned",
                path,
                f"{would} {item.key} ({size(item.size)}) of {store}",
                store=store,
                key=item.key,
                size_bytes=item.size,
                dry_run=dry_run,
            )
        for upload in listing.uploads:
            if upload.begun < before:
                if not dry_run:
                    bucket.abort(upload)
                self._job.report.step(
                    "aborted",
                    path,
                    f"{would} the unfinished upload of {upload.key} to {store}",
                    store=store,
                    key=upload.key,
                    dry_run=dry_run,
                )

    def publish_pages(self, repositories: Sequence[Repository]) -> None:
        """Renew the pages in each public store; last, because no clone needs them."""
        public = [one for one in repositories if one.is_public]
        published = {one.path: self._job.manifests.read(one.path) for one in public}
        config = self._job.config

        def renew(store: str) -> None:
            url = {store: self._job.stores.urls[store]}
            rows = []
            for repository in public:
                places = [(locate(entry, url), entry) for entry in published[repository.path]]
                bundles = {place[1].kind: entry for place, entry in places if place}
                if bundles:
                    rows.append(pages.Row(repository.path, repository.description, bundles))
            index = pages.index(rows, config.clone_url, config.title)
            data = pages.data(rows, config.clone_url)
            bucket = self._job.stores.buckets[store]
            bucket.put_page(pages.DATA, data, "application/json", pages.MAX_AGE)
            bucket.put_page(pages.INDEX, index, "text/html; charset=utf-8", pages.MAX_AGE)

        for store, result in each(self._job.stores.public(), renew).items():
            if isinstance(result, HgfleetError):
                self._job.report.note(
                    "page", f"the page of {store} is old: {result}", store=store, error=result
                )
