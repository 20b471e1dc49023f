"""What all steps of one run share: settings, stores, the ends of its connections, its bounds."""

from __future__ import annotations

import errno
import functools
import shutil
import threading
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, TypeVar

from hgfleet.bundles import demand
from hgfleet.bundles.budget import Bounds, Gate, Room
from hgfleet.bundles.manifest import Manifests
from hgfleet.bundles.plan import Stores
from hgfleet.bundles.state_cache import Checks
from hgfleet.bundles.verify import Reader
from hgfleet.core.errors import HgfleetError
from hgfleet.core.files import file_name
from hgfleet.hg.command_server import Hg

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.config import Config
    from hgfleet.bundles.demand import Demand
    from hgfleet.bundles.manifest import Entry
    from hgfleet.core.report import Report
    from hgfleet.objectstore.bucket import Bucket, StoredObject, Upload
    from hgfleet.registry.model import Repository


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class StoreListing:
    """What the bucket of a store holds for one repository, as listed when the run began."""

    objects: tuple[StoredObject, ...] = ()
    uploads: tuple[Upload, ...] = ()


class Job:
    """One run. `buckets` is empty for what needs no credentials (`plan`, `status`, `verify`).

    `down` says of stores that gave up why nothing is written to them any more, and `failures`
    counts those in a row; `silent` says it of stores that nobody can read from. `purged` are paths
    of repositories that were deleted for good, `gone` these and all others of which something is
    left although no registry has them. `read_slots` has one for each repository
    that may still be read in this run because its time has come; `unread` says of stores why they
    are not read any more. `has_published` tells that some manifest changed.
    """

    def __init__(
        self,
        config: Config,
        report: Report,
        buckets: Mapping[str, Bucket] | None = None,
        *,
        force: bool = False,
        dry_run: bool = False,
        now: datetime | None = None,
    ) -> None:
        self.config, self.report, self.buckets = config, report, buckets or {}
        self.force, self.dry_run = force, dry_run
        self.now = now or datetime.now(UTC)
        self.hg = Hg(config.hg, config.hgrc)
        self.manifests = Manifests(config.manifests)
        self.reader = Reader(config.ca, config.timeout_seconds, config.signing)
        self.gate = Gate(Bounds(config.jobs, config.memory_bytes))
        self.room = Room(config.scratch_ram_bytes if config.scratch_ram.is_dir() else 0)
        self.checks = Checks(config.scratch / "checked", config.verify_age)
        self.reads = Checks(config.scratch / "read", config.read_age)
        self.read_slots = threading.Semaphore(0)
        self.down: dict[str, HgfleetError] = {}
        self.failures: Counter[str] = Counter()
        self.silent: dict[str, str] = {}
        self.unread: dict[str, HgfleetError] = {}
        self.has_published = False
        self.purged: frozenset[str] = frozenset()
        self.gone: frozenset[str] = frozenset()

    @functools.cached_property
    def demand(self) -> Mapping[str, Demand]:
        """What clones and pulls cost the server in the last day, by repository."""
        return demand.read((self.config.access_log, self.config.session_log), self.now)

    def stores(self, repository: Repository) -> Stores:
        """The stores for bundles of this repository, and which of them have given up."""
        ours = [store for store in self.config.stores if store.private != repository.is_public]
        others = [store for store in self.config.stores if store not in ours]
        return Stores(
            {store.name: store.public_url for store in ours},
            {name: str(error) for name, error in self.problems(repository).items()},
            {store.name: store.public_url for store in others},
        )

    def problems(self, repository: Repository) -> dict[str, HgfleetError]:
        """Why stores for bundles of this repository have given up."""
        stores = self.config.stores
        ours = {store.name for store in stores if store.private != repository.is_public}
        return {name: error for name, error in self.down.items() if name in ours}

    def source(self, repository: Repository) -> Path:
        """Where a repository lies on this host."""
        return self.config.repositories / repository.path

    def snapshot(self, repository: Repository) -> Path:
        """Where the snapshot of a repository lies."""
        return self.config.scratch / "snapshots" / file_name(repository.path)

    def publish(self, repository: Repository, entries: Sequence[Entry]) -> bool:
        """Replace the manifest of a repository; say whether it changed."""
        changed = self.manifests.publish(repository.path, entries, datetime.now(UTC))
        self.has_published |= changed
        return changed

    def withdraw(self, repository: Repository, dead: Mapping[str, str]) -> None:
        """Stop sending clients to what is gone, before the time it takes to make it again."""
        published = self.manifests.read(repository.path)
        self.publish(repository, [entry for entry in published if entry.url not in dead])
        for url, problem in dead.items():
            self.report.step(
                "withdrawn",
                repository.path,
                f"withdrawn: {url}: {problem}",
                url=url,
                reason=problem,
            )


def each(items: Iterable[str], work: Callable[[str], T]) -> dict[str, T | HgfleetError]:
    """Do the same for several items, each in a thread; an error of ours is its item's result."""

    def guarded(item: str) -> T | HgfleetError:
        try:
            return work(item)
        except HgfleetError as error:
            return error

    items = list(items)
    if len(items) == 1:
        return {items[0]: guarded(items[0])}
    with ThreadPoolExecutor(max(1, len(items)), "bundles") as pool:
        return dict(zip(items, pool.map(guarded, items), strict=True))


def remove(folder: Path) -> None:
    """Delete a folder, although an hg that outlived its killed run may still be writing there."""
    for last in (False, False, True):
        try:
            shutil.rmtree(folder)
        except FileNotFoundError:
            if not folder.exists():
                return
        except OSError as error:
            if last or error.errno != errno.ENOTEMPTY:
                raise
        else:
            return
