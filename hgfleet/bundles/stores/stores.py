"""The object stores of a site during a run: which of them answer, and the bundles they hold.

A store that fails is left out of the rest of the run. Each failure costs a time limit with its
retries, and there may be a thousand repositories.
"""

from __future__ import annotations

import functools
from collections import Counter, defaultdict
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.decide.names import parse_key
from hgfleet.bundles.decide.plan import Stores
from hgfleet.bundles.stores import pages
from hgfleet.bundles.stores.parallel import each
from hgfleet.bundles.stores.reader import Reader
from hgfleet.core.errors import HgfleetError, UnavailableError

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.names import Key
    from hgfleet.bundles.decide.settings import Config
    from hgfleet.core.report import Report
    from hgfleet.objectstore.bucket import Bucket, StoredObject, Upload
    from hgfleet.registry.model.registry import Repository

MAX_FAILURES: Final = 3
"""Failures in a row after which a run uploads nothing more to a store."""


@dataclass(frozen=True, slots=True)
class StoreListing:
    """The objects and unfinished uploads of a repository in a store, when the run began."""

    objects: tuple[StoredObject, ...] = ()
    uploads: tuple[Upload, ...] = ()


def read_suspects(findings: Path) -> frozenset[str]:
    """Return the URLs of dead objects in the findings of the prober (hgfleet/steering/health.py).

    Without a file, or with a damaged line, nothing is suspect: a run reads each object in its turn.
    """
    try:
        lines = findings.read_text("utf-8", "replace").splitlines()
    except OSError:
        return frozenset()
    words = (line.split(" ", 2) for line in lines)
    return frozenset(url for url, *state in words if state[:1] == ["dead"])


def joined(listings: Iterable[StoreListing]) -> StoreListing:
    """Join several listings."""
    every = list(listings)
    return StoreListing(
        tuple(item for listing in every for item in listing.objects),
        tuple(upload for listing in every for upload in listing.uploads),
    )


class SiteStores:
    """The stores of the site, with the failures that this run met.

    `buckets` is empty for commands without credentials (`plan`, `status`, `verify`). `down` has the
    error of each store that takes no more uploads, `unread` of each store whose objects are read no
    more.
    """

    def __init__(self, config: Config, report: Report, buckets: Mapping[str, Bucket]) -> None:
        self._config, self._report, self.buckets = config, report, buckets
        self.urls = config.public_urls
        self.reader = Reader(config.ca, config.timeout_seconds, config.signing)
        self.down: dict[str, HgfleetError] = {}
        self.unread: dict[str, HgfleetError] = {}
        self._failures: Counter[str] = Counter()
        self._silent: dict[str, str] = {}

    def of(self, repository: Repository) -> Stores:
        """Return the stores for bundles of a repository, and which of them are down."""
        ours = [store for store in self._config.stores if store.private != repository.is_public]
        others = [store for store in self._config.stores if store not in ours]
        return Stores(
            {store.name: store.public_url for store in ours},
            {name: str(error) for name, error in self.problems(repository).items()},
            {store.name: store.public_url for store in others},
        )

    def problems(self, repository: Repository) -> dict[str, HgfleetError]:
        """Return the errors of the stores for a repository that are down."""
        stores = self._config.stores
        ours = {store.name for store in stores if store.private != repository.is_public}
        return {name: error for name, error in self.down.items() if name in ours}

    @property
    def public_names(self) -> list[str]:
        """The names of the public stores."""
        return [store.name for store in self._config.stores if not store.private]

    def public(self) -> list[str]:
        """Return the names of the public stores that are up."""
        return [name for name in self.public_names if name not in self.down]

    @functools.cached_property
    def suspects(self) -> frozenset[str]:
        """The URLs of objects that the prober of this host found dead."""
        return read_suspects(self._config.findings)

    def place(self, entry: Entry) -> tuple[str, Key]:
        """Return the store and the key of an entry that is known to be in a store of the site."""
        place = locate(entry, self.urls)
        assert place is not None
        return place

    def note_success(self, store: str) -> None:
        """Record an upload that worked."""
        self._failures[store] = 0

    def note_failure(self, store: str, error: HgfleetError) -> None:
        """Record an upload that failed; give up on the store after several in a row."""
        self._failures[store] += 1
        if self._failures[store] >= MAX_FAILURES and isinstance(error, UnavailableError):
            self.down[store] = error

    def problem(self, store: str, entry: Entry) -> str:
        """Request the headers of an entry as a client does; return the problem, or "".

        A store whose public URL did not answer once is not requested again.
        """
        if store not in self._silent:
            try:
                return self.reader.problem(entry)
            except UnavailableError as error:
                self._silent[store] = str(error)
        return self._silent[store]

    def listings(
        self, names: Collection[str] = (), *, dry_run: bool
    ) -> Mapping[str, Mapping[str, StoreListing]]:
        """List the objects, a thousand a request: by store, then by the name that their keys have.

        `names` restricts the list to those names.

        A store that does not answer goes down. Raises its error if that leaves no store.
        """
        private = {store.name for store in self._config.stores if store.private}

        def look(store: str) -> Mapping[str, StoreListing]:
            if store in private:
                self._check_closed(store, dry_run=dry_run)
            return _listing(self.buckets[store], [f"{name}/" for name in sorted(names)] or [""])

        listed = {}
        for store, listing in each(self.buckets, look).items():
            if isinstance(listing, HgfleetError):
                self.down[store] = listing
                self._report.note("store-down", f"left out: {listing}", store=store, error=listing)
            else:
                listed[store] = listing
        if self.buckets and not listed:
            raise next(iter(self.down.values()))
        return listed

    def _check_closed(self, store: str, *, dry_run: bool) -> None:
        """Refuse a private store that is open, or closed to our key, before any upload to it.

        Requests a page without secrets. Raises HgfleetError.
        """
        url = f"{self.urls[store]}/{pages.CANARY}"
        if not dry_run:
            self.buckets[store].put_page(
                pages.CANARY, pages.CANARY_TEXT, "text/plain; charset=utf-8", 0
            )
        self.reader.check_closed(url)
        self.reader.check_signed(url)


def _listing(bucket: Bucket, prefixes: Iterable[str]) -> Mapping[str, StoreListing]:
    objects: dict[str, list[StoredObject]] = defaultdict(list)
    uploads: dict[str, list[Upload]] = defaultdict(list)
    for prefix in prefixes:
        for item in bucket.objects(prefix):
            if key := parse_key(item.key):
                objects[key.repository].append(item)
        for upload in bucket.uploads(prefix):
            if key := parse_key(upload.key):
                uploads[key.repository].append(upload)
    return {
        name: StoreListing(tuple(objects[name]), tuple(uploads[name]))
        for name in {*objects, *uploads}
    }
