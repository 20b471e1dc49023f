"""Published bundles: whether they answer and are whole, their pruning, and the pages about them."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from itertools import chain, islice
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.bundles.decide import names
from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.decide.plan import misplaced
from hgfleet.bundles.decide.prune import prunable
from hgfleet.bundles.stores import pages
from hgfleet.bundles.stores.parallel import each
from hgfleet.bundles.stores.reader import VerificationError, WrongContentError
from hgfleet.core.errors import HgfleetError, UnavailableError
from hgfleet.core.files import file_name
from hgfleet.core.stored_time import past_moment
from hgfleet.core.text import size

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.steps.job import Job
    from hgfleet.bundles.stores.stores import StoreListing
    from hgfleet.registry.model.registry import Repository


ALWAYS: Final = datetime.max.replace(tzinfo=UTC)
"""Later than the time of any object."""

NEVER: Final = datetime.min.replace(tzinfo=UTC)
"""Before the time of any object."""

WITNESSES: Final = 3
"""Other objects of a store that are requested after an object was not served."""


class Limits(NamedTuple):
    """Objects in a store that stay: the named, and others from a time on, if they are safe."""

    named: set[str]
    before: datetime
    unsafe: set[str]


@dataclass(frozen=True, slots=True)
class ReadResult:
    """The result of a read of all published bundles of a repository.

    `wrong` has the entries whose object has other content, with the difference, or is not served
    while others are, with the error; `unread` has the errors of stores with objects that could not
    be read. `is_due` is False where no read was due.
    """

    is_due: bool = False
    wrong: Mapping[Entry, str] = field(default_factory=dict)
    unread: Mapping[str, HgfleetError] = field(default_factory=dict)


class PublishedBundles:
    """The published bundles of repositories; the caller holds the lock of each repository."""

    def __init__(self, job: Job) -> None:
        self._job = job
        # The lists of stores are from the beginning of the run.
        self._deleted: set[tuple[str, str]] = set()

    def dead(self, repository: Repository, listing: Mapping[str, StoreListing]) -> dict[str, str]:
        """Return the URLs of entries that no client should get any more, with the reasons.

        Such an object is missing, of another size, in a store that is not for the repository, or
        does not answer.
        """
        sizes = {
            store: {item.key: item.size for item in stored.objects}
            for store, stored in listing.items()
        }
        stores = self._job.stores.of(repository)
        published = self._job.manifests.read(names.of(repository))
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

    def read(self, repository: Repository, dead: Mapping[str, str]) -> ReadResult:
        """Read all published bundles as clients do, where that is due, and compare the digests.

        A list of a store, or the headers of an object, do not show that the content is corrupt, or
        that the disk cannot read it. Objects that the prober of this host found dead are read in
        any case. Entries with URLs in `dead` are skipped.
        """
        started = time.monotonic()
        urls = self._job.stores.of(repository).urls
        published = self._job.manifests.read(names.of(repository))
        entries = [entry for entry in published if entry.url not in dead and locate(entry, urls)]
        is_due = self._is_read_due(repository)
        if not (entries and is_due and self._takes_read_slot(repository)):
            is_due = False
            entries = [entry for entry in entries if entry.url in self._suspects()]
        if not entries:
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
        return ReadResult(is_due, wrong, unread)

    def _suspects(self) -> frozenset[str]:
        """Return the URLs of objects that the prober found dead, if this run may repair them."""
        is_reader = not self._job.options.dry_run and self._job.stores.buckets
        return self._job.stores.suspects if is_reader else frozenset()

    def _is_read_due(self, repository: Repository) -> bool:
        """Whether a read is due; the time runs from the first run, even without bundles."""
        if self._job.options.dry_run or not self._job.stores.buckets:
            return False
        return self._job.schedule.reads.due(file_name(names.of(repository)), self._job.options.now)

    def _takes_read_slot(self, repository: Repository) -> bool:
        """Whether this run may still make a read; a requested read is always allowed."""
        name, schedule = file_name(names.of(repository)), self._job.schedule
        return schedule.reads.is_requested(name) or schedule.read_slots.acquire(blocking=False)

    def _compare(
        self, entry: Entry, wrong: dict[Entry, str], unread: dict[str, HgfleetError]
    ) -> None:
        stores = self._job.stores
        store = stores.place(entry)[0]
        problem = stores.down.get(store) or stores.unread.get(store)
        if problem is None:
            problem = self._problem(entry)
            if _may_be_stores(problem) and self._serves_others(store, entry):
                # The store answers: if this object fails again in the same way, it alone is bad.
                first, problem = problem, self._problem(entry)
                if problem is not None and str(problem) == str(first):
                    problem = WrongContentError(f"{problem}; the store serves other objects")
            if isinstance(problem, WrongContentError):
                wrong[entry] = str(problem).removeprefix(f"{entry.url}: ")
                self._job.note_corrupt(store)
                return
            if isinstance(problem, UnavailableError):
                # Each further object would cost the time limit again.
                stores.unread[store] = problem
        if problem is not None:
            unread[store] = problem

    def _problem(self, entry: Entry) -> HgfleetError | None:
        """Download an object as a client does; return the error, or None."""
        try:
            self._job.stores.reader.check(entry)
        except (VerificationError, UnavailableError) as error:
            return error
        return None

    def _serves_others(self, store: str, entry: Entry) -> bool:
        """Whether a store serves some other object."""
        others = (one for one in self._in_store(store) if one.url != entry.url)
        for other in islice(others, WITNESSES):
            try:
                self._job.stores.reader.probe(other)
            except HgfleetError:
                continue
            return True
        return False

    def _in_store(self, store: str) -> Iterator[Entry]:
        """Return the published entries of all repositories in a store."""
        url, manifests = {store: self._job.stores.urls[store]}, self._job.manifests
        published = chain.from_iterable(manifests.read(name) for name in sorted(manifests.all()))
        return (entry for entry in published if locate(entry, url))

    def delete_wrong(
        self, repository: Repository, result: ReadResult
    ) -> Mapping[str, HgfleetError]:
        """Delete the objects with wrong content, after their entries were withdrawn.

        An upload never overwrites, so such an object would stay for ever. Returns the errors of
        reading and deleting, by store.
        """
        problems = {**result.unread, **self.delete(result.wrong)}
        if result.is_due and not result.unread:
            self._job.schedule.reads.done(file_name(names.of(repository)), self._job.options.now)
        return problems

    def delete(self, entries: Iterable[Entry]) -> Mapping[str, HgfleetError]:
        """Delete the objects of entries that were withdrawn; return the errors by store."""
        problems = {}
        for entry in entries:
            store, key = self._job.stores.place(entry)
            try:
                self._job.delete(store, str(key))
            except HgfleetError as error:
                problems[store] = error
        return problems

    def prune(
        self,
        repository: Repository,
        listing: Mapping[str, StoreListing],
        *,
        urgent: bool = False,
    ) -> None:
        """Delete objects that no manifest of the retention time names; `urgent`: only those below.

        An object that a client must no longer have goes at once: of a repository that is private
        now, or purged; made before changesets were removed; or of the release before, if no
        repository took it over.
        """
        job, name = self._job, names.of(repository)
        before = job.options.now - job.config.retention
        # Not the beginning of the run, which may have made some of the bundles.
        now = datetime.now(UTC)
        published, recent = job.manifests.read(name), job.manifests.recent(name, before)
        removal = job.removal(repository) or NEVER
        unsafe = [
            entry for entry in job.manifests.recent(name) if past_moment(entry.made, now) <= removal
        ]
        is_gone = name in job.orphans.gone
        others = () if repository.is_public or is_gone else job.stores.of(repository).others
        purged = name in job.orphans.purged or (is_gone and names.is_former(name))
        for store, stored in listing.items():
            # A client with the URL could still read it, and no run may be about to publish it.
            at_once = purged or store in others
            entries = published if at_once else published + recent
            named = self._keys(
                store, [entry for entry in entries if past_moment(entry.made, now) > removal]
            )
            limit = ALWAYS if at_once else max(removal, NEVER if urgent else before)
            self._prune_store(
                repository, store, stored, Limits(named, limit, self._keys(store, unsafe))
            )
        if listing and not (job.options.dry_run or urgent):
            job.manifests.forget(name, before)

    def _keys(self, store: str, entries: Iterable[Entry]) -> set[str]:
        """Return the keys of those entries that are in a store."""
        places = (locate(entry, self._job.stores.urls) for entry in entries)
        return {str(place[1]) for place in places if place and place[0] == store}

    def _prune_store(
        self, repository: Repository, store: str, listing: StoreListing, limits: Limits
    ) -> None:
        path, dry_run = repository.path, self._job.options.dry_run
        bucket, before = self._job.stores.buckets[store], limits.before
        would = "would delete" if dry_run else "deleted"
        own = self._job.names_in_keys(repository)
        for item in prunable(own, listing.objects, limits.named, before, limits.unsafe):
            if (store, item.key) in self._deleted or self._job.is_taken(repository, item.key):
                continue
            if not dry_run:
                self._job.delete(store, item.key)
                self._deleted.add((store, item.key))
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

    def publish_pages(self, public: Sequence[Repository]) -> None:
        """Renew the pages about public repositories in each store, last: no clone needs them."""
        published = {each.path: self._job.manifests.read(names.of(each)) for each in public}
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


def _may_be_stores(problem: HgfleetError | None) -> bool:
    """Whether an error with an object may be an error of its store."""
    return problem is not None and not isinstance(problem, WrongContentError)
