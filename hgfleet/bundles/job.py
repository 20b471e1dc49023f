"""One run of the bundle jobs: settings and options, stores, limits, manifests, check times."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.bundles import corruption, demand, scratch
from hgfleet.bundles.budget import Bounds, Gate
from hgfleet.bundles.check_times import CheckTimes, reads_per_run
from hgfleet.bundles.manifest import Manifests
from hgfleet.bundles.scratch import Scratch
from hgfleet.bundles.stores import SiteStores
from hgfleet.hg.command_server import Hg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.config import Config
    from hgfleet.bundles.demand import Demand
    from hgfleet.bundles.manifest import Entry
    from hgfleet.bundles.plan import Plan
    from hgfleet.core.errors import HgfleetError
    from hgfleet.core.report import Report
    from hgfleet.objectstore.bucket import Bucket
    from hgfleet.registry.model import Repository


@dataclass(frozen=True, slots=True)
class Options:
    """The choices of the caller: `force` replaces every bundle, `dry_run` changes nothing."""

    force: bool = False
    dry_run: bool = False
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of one repository; `error` is None unless it failed.

    `missing` has the errors of stores without some of the bundles that other stores have: the
    repository is served, and the next run tries again. `busy`: another run has the lock.
    """

    repository: str
    plan: Plan | None = None
    error: HgfleetError | None = None
    missing: Mapping[str, HgfleetError] = field(default_factory=dict)
    busy: bool = False


@dataclass(slots=True)
class Orphans:
    """Repositories without an entry in the registry, whose bundles have to go.

    `purged` are paths of repositories that were deleted for good; `gone` are these and all others
    of which a run found remains.
    """

    purged: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


class Schedule:
    """The checks that only some runs make, and how many reads this run may make.

    A run for all repositories takes one of `read_slots` for each repository whose read is due;
    requested reads need none.
    """

    def __init__(self, config: Config) -> None:
        self.clones = CheckTimes(config.scratch / scratch.CLONE_CHECKS, config.verify_age)
        self.reads = CheckTimes(config.scratch / scratch.READ_CHECKS, config.read_age)
        self.pull_reads = CheckTimes(config.scratch / scratch.PULL_CHECKS, config.read_age)
        self.read_slots = threading.Semaphore(0)

    def allow_reads(self, repositories: int) -> None:
        """Let this run read its share of so many repositories."""
        self.read_slots = threading.Semaphore(reads_per_run(repositories))


class Publisher:
    """Changes manifests and reports it; `has_published` tells that some manifest changed."""

    def __init__(self, manifests: Manifests, report: Report) -> None:
        self._manifests, self._report = manifests, report
        self._changing = threading.RLock()
        self.has_published = False

    def publish(self, repository: Repository, entries: Sequence[Entry]) -> bool:
        """Replace the manifest of a repository; return whether it changed."""
        with self._changing:
            changed = self._manifests.publish(repository.path, entries, datetime.now(UTC))
            self.has_published |= changed
        return changed

    def change(
        self, repository: Repository, new: Callable[[Sequence[Entry]], Sequence[Entry]]
    ) -> bool:
        """Replace the manifest by `new` of its entries; kinds are worked on in parallel."""
        with self._changing:
            return self.publish(repository, new(self._manifests.read(repository.path)))

    def withdraw(self, repository: Repository, dead: Mapping[str, str]) -> None:
        """Take the entries with these URLs out of the manifest; the values are the reasons."""
        self.change(repository, lambda published: [one for one in published if one.url not in dead])
        for url, problem in dead.items():
            self._report.step(
                "withdrawn",
                repository.path,
                f"withdrawn: {url}: {problem}",
                url=url,
                reason=problem,
            )


class Job:
    """One run, as its steps share it."""

    def __init__(
        self, config: Config, options: Options, report: Report, buckets: Mapping[str, Bucket]
    ) -> None:
        self.config, self.options, self.report = config, options, report
        self.hg = Hg(config.hg, config.hgrc)
        self.stores = SiteStores(config, report, buckets)
        self.manifests = Manifests(config.manifests)
        self.publisher = Publisher(self.manifests, report)
        self.scratch = Scratch(config.scratch, config.scratch_ram, config.scratch_ram_bytes)
        self.gate = Gate(Bounds(config.jobs, config.memory_bytes))
        self.schedule = Schedule(config)
        self.orphans = Orphans()
        self._reading = threading.Lock()
        self._demand: Mapping[str, Demand] | None = None

    @property
    def demand(self) -> Mapping[str, Demand]:
        """The cost of clones and pulls in the last day, by repository.

        The first thread reads the logs, hundreds of MB; the others wait for it. A cached property
        has no lock since Python 3.12.
        """
        with self._reading:
            if self._demand is None:
                logs = (self.config.access_log, self.config.session_log)
                self._demand = demand.read(logs, self.options.now)
            return self._demand

    def note_corrupt(self, place: str) -> None:
        """Leave the time of a finding of a corrupt bundle for metrics (`bundles.corruption`)."""
        self.keep_findings({place: time.time()})

    def keep_findings(self, found: Mapping[str, float]) -> None:
        """Add findings to those of former runs; no clone needs them."""
        try:
            corruption.note(self.config.state, found)
        except OSError as error:
            self.report.note("record", f"a finding is lost: {error}", error=error)

    def source(self, repository: Repository) -> Path:
        """Return the place of a repository on this host."""
        return self.config.repositories / repository.path
