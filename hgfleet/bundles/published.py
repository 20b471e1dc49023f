"""What is published: whether it answers, how it is rebuilt from the stores, pruning, the pages."""

from __future__ import annotations

import time
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import TYPE_CHECKING

from hgfleet.bundles import pages
from hgfleet.bundles import repository as hg_side
from hgfleet.bundles.job import StoreListing, each
from hgfleet.bundles.kinds import parse_key
from hgfleet.bundles.manifest import Entry, locate, object_url
from hgfleet.bundles.plan import misplaced, order
from hgfleet.bundles.prune import prunable
from hgfleet.bundles.verify import VerificationError, WrongContentError
from hgfleet.core.errors import HgfleetError, UnavailableError, UsageError
from hgfleet.core.files import file_name
from hgfleet.core.text import size

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from hgfleet.bundles.generate import BundleGenerator
    from hgfleet.bundles.job import Job
    from hgfleet.bundles.kinds import Key
    from hgfleet.registry.model import Repository


@dataclass(frozen=True, slots=True)
class Reading:
    """What came of reading all that is published of a repository.

    `wrong` says of entries what is there instead, `unread` of stores why something in them could
    not be read. `is_due` is False where nothing was to be read.
    """

    is_due: bool = False
    wrong: Mapping[Entry, str] = field(default_factory=dict)
    unread: Mapping[str, HgfleetError] = field(default_factory=dict)


class PublishedBundles:
    """The published bundles of repositories, under the lock of each."""

    def __init__(self, job: Job, generator: BundleGenerator) -> None:
        self._job, self._generator = job, generator

    def dead(self, repository: Repository, stock: Mapping[str, StoreListing]) -> dict[str, str]:
        """Find published bundles that are gone, not whole, in no store for it, or do not answer."""
        sizes = {
            store: {item.key: item.size for item in one.objects} for store, one in stock.items()
        }
        stores = self._job.stores(repository)
        published = self._job.manifests.read(repository.path)
        # With no store to go to, it is no matter of single bundles: the plan withdraws all.
        dead = misplaced(published, stores) if stores.urls else {}
        for entry in published:
            place = locate(entry, stores.urls)
            if place is None or not self._job.buckets:
                continue
            store, key = place
            # The list was made when the run began; another run may have published since.
            if sizes.get(store, {}).get(str(key)) != entry.size and (
                problem := self._problem(store, entry)
            ):
                dead[entry.url] = problem
        return dead

    def _problem(self, store: str, entry: Entry) -> str:
        """Ask everybody's side of a store for an entry; once silent, it is not asked again."""
        if store not in self._job.silent:
            try:
                return self._job.reader.problem(entry)
            except UnavailableError as error:
                self._job.silent[store] = str(error)
        return self._job.silent[store]

    def read(self, repository: Repository, dead: Collection[str]) -> Reading:
        """Read all that is published, if it is time, like everybody would, and compare it.

        Whoever lists a store, or asks for headers, does not see that its disk has turned a bit.
        What is `dead` is known to be.
        """
        name, started = file_name(repository.path), time.monotonic()
        if self._job.dry_run or not self._job.buckets:
            return Reading()
        if not self._job.reads.due(name, self._job.now):
            return Reading()
        urls = self._job.stores(repository).urls
        published = self._job.manifests.read(repository.path)
        entries = [entry for entry in published if entry.url not in dead and locate(entry, urls)]
        if not entries:
            return Reading()
        if not (self._job.reads.is_asked(name) or self._job.read_slots.acquire(blocking=False)):
            return Reading()
        wrong: dict[Entry, str] = {}
        unread: dict[str, HgfleetError] = {}
        for entry in entries:
            place = locate(entry, urls)
            assert place is not None
            store = place[0]
            problem = self._job.down.get(store) or self._job.unread.get(store)
            if problem is None:
                try:
                    self._job.reader.check(entry)
                except WrongContentError as error:
                    wrong[entry] = str(error).removeprefix(f"{entry.url}: ")
                except VerificationError as error:
                    problem = error
                except UnavailableError as error:
                    # Each further object would cost the time limit again.
                    problem = self._job.unread[store] = error
            if problem is not None:
                unread[store] = problem
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
        return Reading(True, wrong, unread)

    def discard(self, repository: Repository, reading: Reading) -> Mapping[str, HgfleetError]:
        """Delete what was read and is wrong; nobody may be sent there any more.

        Left there, it would be "already there" when it is made again. Returns, by store, why
        something could not be read or deleted.
        """
        problems = dict(reading.unread)
        for entry in reading.wrong:
            place = locate(entry, self._job.config.public_urls)
            assert place is not None
            store, key = place
            try:
                self._job.buckets[store].delete(str(key))
            except HgfleetError as error:
                problems[store] = error
        if reading.is_due and not reading.unread:
            self._job.reads.done(file_name(repository.path), self._job.now)
        return problems

    def prune(self, repository: Repository, stock: Mapping[str, StoreListing]) -> None:
        """Delete what no manifest of the retention time names. Only called when all went well."""
        before = self._job.now - self._job.config.retention
        named = self._job.manifests.read(repository.path)
        recent = self._job.manifests.recent(repository.path, before)
        others = () if repository.is_public else self._job.stores(repository).others
        purged = repository.path in self._job.purged
        for store, one in stock.items():
            # Anybody who knows a URL could still read what is to be private now, or nobody's.
            at_once = purged or store in others
            entries, since = (named, self._job.now) if at_once else (named + recent, before)
            places = (locate(entry, self._job.config.public_urls) for entry in entries)
            keys = {str(place[1]) for place in places if place and place[0] == store}
            self._prune_store(repository.path, store, one, keys, since)
        if stock and not self._job.dry_run:
            self._job.manifests.forget(repository.path, before)

    def check_closed(self, store: str) -> None:
        """Refuse a private store that is open, or closed to us, before anything is brought there.

        A page of no worth is what everybody is refused. Raises HgfleetError with what is wrong.
        """
        url = f"{self._job.config.public_urls[store]}/{pages.CANARY}"
        if not self._job.dry_run:
            self._job.buckets[store].put_page(
                pages.CANARY, pages.CANARY_TEXT, "text/plain; charset=utf-8", 0
            )
        self._job.reader.check_closed(url)
        self._job.reader.check_signed(url)

    def _prune_store(
        self, path: str, store: str, stock: StoreListing, keys: Collection[str], before: datetime
    ) -> None:
        would = "would delete" if self._job.dry_run else "deleted"
        for item in prunable(path, stock.objects, keys, before):
            if not self._job.dry_run:
                self._job.buckets[store].delete(item.key)
            self._job.report.step(
                "pruned",
                path,
                f"{would} {item.key} ({size(item.size)}) of {store}",
                store=store,
                key=item.key,
                size_bytes=item.size,
                dry_run=self._job.dry_run,
            )
        for upload in stock.uploads:
            if upload.begun < before:
                if not self._job.dry_run:
                    self._job.buckets[store].abort(upload)
                self._job.report.step(
                    "aborted",
                    path,
                    f"{would} the unfinished upload of {upload.key} to {store}",
                    store=store,
                    key=upload.key,
                    dry_run=self._job.dry_run,
                )

    def publish_pages(self, repositories: Sequence[Repository]) -> None:
        """Renew the pages beside the bundles of each public store, last; no bundle needs them."""
        public = [one for one in repositories if one.is_public]
        published = {one.path: self._job.manifests.read(one.path) for one in public}

        def renew(store: str) -> None:
            url = {store: self._job.config.public_urls[store]}
            rows = []
            for repository in public:
                places = [(locate(entry, url), entry) for entry in published[repository.path]]
                bundles = {place[1].kind: entry for place, entry in places if place}
                if bundles:
                    rows.append(pages.Row(repository.path, repository.description, bundles))
            index = pages.index(rows, self._job.config.clone_url, self._job.config.title)
            data = pages.data(rows, self._job.config.clone_url)
            bucket = self._job.buckets[store]
            bucket.put_page(pages.DATA, data, "application/json", pages.MAX_AGE)
            bucket.put_page(pages.INDEX, index, "text/html; charset=utf-8", pages.MAX_AGE)

        stores = [store.name for store in self._job.config.stores if not store.private]
        up = [store for store in stores if store not in self._job.down]
        for store, result in each(up, renew).items():
            if isinstance(result, HgfleetError):
                self._job.report.note(
                    "page", f"the page of {store} is old: {result}", store=store, error=result
                )

    def rebuild(
        self, repository: Repository, stock: Mapping[str, StoreListing]
    ) -> Mapping[str, HgfleetError]:
        """Make the manifest anew from what the stores hold, verified; say what which store lacks.

        Raises what is wrong if nothing can be published.
        """
        stores = self._job.stores(repository).urls
        if not stores or not repository.bundles:
            raise UsageError(f"{repository.path}: the registry gives it no bundles")
        found = self._stored_entries({store: stock[store] for store in stores if store in stock})
        found = [
            (store, key, replace(one, private=not repository.is_public))
            for store, key, one in found
        ]
        tips = {key.tip for _, key, _ in found}
        seen = hg_side.look(self._job.hg, self._job.source(repository), tips)
        entries: dict[str, dict[str, Entry]] = {}
        with self._generator.workspace(repository, seen, len(repository.bundles)) as work:
            for kind in repository.bundles:
                # Newest first; a tip that the repository no longer has is no candidate.
                candidates = sorted(
                    (one for one in found if one[1].kind == kind and one[1].tip in seen.covered),
                    key=lambda one: (seen.covered[one[1].tip], one[2].made, one[2].sha256),
                    reverse=True,
                )
                for store, key, entry in candidates:
                    chosen = entries.setdefault(kind, {})
                    if chosen and next(iter(chosen.values())).sha256 != entry.sha256:
                        continue
                    try:
                        self._generator.verify(work, store, entry)
                    except HgfleetError as error:
                        work.missing[store] = error
                        self._job.report.step(
                            "missing", repository.path, f"{key}: {error}", store=store, error=error
                        )
                    else:
                        chosen[store] = entry
        manifest = order(repository.bundles, list(self._job.config.public_urls), entries)
        if not manifest:
            raise next(
                iter(work.missing.values()),
                HgfleetError(
                    "the stores hold no bundle of it that could be published; "
                    "`hgfleet bundles run` makes them"
                ),
            )
        self._job.publish(repository, manifest)
        self._job.report.step(
            "published",
            repository.path,
            f"published: {len(manifest)} entries from what the stores hold",
            entries=len(manifest),
        )
        return work.missing

    def _stored_entries(self, stock: Mapping[str, StoreListing]) -> list[tuple[str, Key, Entry]]:
        """Read back the entry of each object: store, key, entry."""
        found = []
        for store, one in stock.items():
            for item in one.objects:
                key, there = parse_key(item.key), self._job.buckets[store].head(item.key)
                if key is None or there is None:
                    continue
                sha256 = there.metadata.get("sha256", "")
                try:
                    entry = Entry(
                        url=object_url(self._job.config.public_urls[store], key),
                        bundlespec=there.metadata["bundlespec"],
                        sha256=sha256,
                        size=there.size,
                        changesets=int(there.metadata["changesets"]),
                        made=datetime.fromisoformat(there.metadata["made"]),
                        required_ram=int(there.metadata.get("required-ram", 0)),
                    )
                except (KeyError, ValueError):
                    continue
                if sha256.startswith(key.digest):
                    found.append((store, key, entry))
        return found
