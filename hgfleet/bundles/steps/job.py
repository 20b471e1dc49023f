"""A run of the bundle jobs: settings and options, stores, limits, manifests, check times."""

from __future__ import annotations

import threading
import time
import traceback
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import demand, names
from hgfleet.bundles.decide.manifest import Manifests, locate, object_url
from hgfleet.bundles.decide.names import parse_key
from hgfleet.bundles.hg import recent_pushes, scratch
from hgfleet.bundles.hg.budget import Bounds, Gate
from hgfleet.bundles.hg.scratch import Scratch
from hgfleet.bundles.steps.check_times import CheckTimes, reads_per_run
from hgfleet.bundles.stores import corruption, purging
from hgfleet.bundles.stores.access import Access, ChangedError, is_publishable
from hgfleet.bundles.stores.stores import SiteStores, StoreListing, joined
from hgfleet.core import stored_time
from hgfleet.core.errors import HgfleetError, HostError
from hgfleet.hg.command_server import Hg

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.decide.demand import Demand
    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.bundles.decide.plan import Plan
    from hgfleet.bundles.decide.settings import Config
    from hgfleet.core.report import Report
    from hgfleet.objectstore.bucket import Bucket
    from hgfleet.registry.model.registry import Repository


@dataclass(frozen=True, slots=True)
class Options:
    """The choices of the caller: `force` replaces every bundle, `dry_run` changes nothing."""

    force: bool = False
    dry_run: bool = False
    now: datetime = field(default_factory=lambda: datetime.now(UTC))


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a repository's part of a run; `error` is None unless it failed.

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
    """Repositories without an entry in the registry, whose bundles have to go, by their names.

    `purged` are those that were deleted for good; `gone` are these and all others of which a run
    found remains.
    """

    purged: frozenset[str] = frozenset()
    gone: frozenset[str] = frozenset()


class Schedule:
    """The checks that only some runs make, and how many reads this run may make.

    A run for all repositories takes a slot (`read_slots`) for each repository whose read is due;
    requested reads need no slot.
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
    """Changes manifests and reports it; `has_published` says that some manifest changed."""

    def __init__(self, manifests: Manifests, access: Access, report: Report) -> None:
        self._manifests, self._access, self._report = manifests, access, report
        self.has_published = False

    def publish(self, repository: Repository, entries: Sequence[Entry]) -> bool:
        """Replace the manifest of a repository; return whether it changed; raises as `change`."""
        return self.change(repository, lambda _: entries)

    def change(
        self, repository: Repository, new: Callable[[Sequence[Entry]], Sequence[Entry]]
    ) -> bool:
        """Replace the manifest by `new` of its entries; kinds are worked on in parallel.

        Raises ChangedError, with nothing changed, where that would advertise a bundle of a
        repository that has changed since the work for it began.
        """
        name = names.of(repository)
        with self._manifests.locked():
            before = self._manifests.read(name)
            after = new(before)
            added = [entry for entry in after if entry not in before]
            if added:
                self._access.check(repository)
                if not all(is_publishable(entry, repository) for entry in added):
                    raise ChangedError(f"{repository.path}: its bundles are for other readers")
            changed = self._manifests.publish(name, after, datetime.now(UTC))
            self.has_published |= changed
        return changed

    def withdraw(self, repository: Repository, dead: Mapping[str, str]) -> None:
        """Take the entries with these URLs out of the manifest; the values are the reasons."""
        self.change(
            repository, lambda published: [entry for entry in published if entry.url not in dead]
        )
        for url, problem in dead.items():
            self._report.step(
                "withdrawn",
                repository.path,
                f"withdrawn: {url}: {problem}",
                url=url,
                reason=problem,
            )


class Job:
    """A run, as its steps share it."""

    def __init__(
        self, config: Config, options: Options, report: Report, buckets: Mapping[str, Bucket]
    ) -> None:
        self.config, self.options, self.report = config, options, report
        self.hg = Hg(config.hg, config.hgrc)
        self.stores = SiteStores(config, report, buckets)
        self.manifests = Manifests(config.manifests)
        self.access = Access(config, self.manifests)
        self.publisher = Publisher(self.manifests, self.access, report)
        self.scratch = Scratch(config.scratch, config.scratch_ram, config.scratch_ram_bytes)
        self.gate = Gate(Bounds(config.jobs, config.memory_bytes))
        self.schedule = Schedule(config)
        self.orphans = Orphans()
        self._reading = threading.Lock()
        self._demand: Mapping[str, Demand] | None = None
        self._former_keys: Mapping[str, set[str]] | None = None

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

    def names_in_keys(self, repository: Repository) -> set[str]:
        """Return the names that keys of a repository's objects begin with.

        The release before named objects by the path that the repository had then.
        """
        name = names.of(repository)
        entries = (*self.manifests.read(name), *self.manifests.recent(name))
        places = [locate(entry, self.stores.urls) for entry in entries]
        return {name, repository.path, *(place[1].repository for place in places if place)}

    def is_taken(self, repository: Repository, key: str) -> bool:
        """Whether a key of the release before is named by the manifest of another repository.

        It was taken over by a repository that has another path now.
        """
        parsed = parse_key(key)
        if parsed is None or not parsed.is_former:
            return False
        former = self._former_keys
        if former is None:
            former = {}
            for name in self.manifests.all():
                entries = (*self.manifests.read(name), *self.manifests.recent(name))
                places = [locate(entry, self.stores.urls) for entry in entries]
                keys = {str(place[1]) for place in places if place and place[1].is_former}
                if keys:
                    former[name] = keys
            self._former_keys = former
        # The repository has taken over the state that was named by its path.
        own = {names.of(repository), repository.path}
        return any(key in keys for name, keys in former.items() if name not in own)

    def listing(
        self, repository: Repository, listings: Mapping[str, Mapping[str, StoreListing]]
    ) -> Mapping[str, StoreListing]:
        """Return the objects of a repository by store, under all names that its keys have."""
        keys = sorted(self.names_in_keys(repository))
        return {
            store: joined(listing.get(name, StoreListing()) for name in keys)
            for store, listing in listings.items()
        }

    def failed(self, repository: Repository, problem: Exception, took: float) -> Outcome:
        """Report the failure of a repository."""
        if isinstance(problem, HgfleetError):
            error = problem
        elif isinstance(problem, OSError):
            error = HostError(str(problem))
        else:
            # A mistake in this program; the traceback says where.
            traceback.print_exception(problem)
            error = HgfleetError(f"{type(problem).__name__}: {problem}")
        self.report.step(
            "failed", repository.path, f"FAILED: {error}", error=error, duration_s=took
        )
        return Outcome(repository.path, error=error)

    def removal(self, repository: Repository) -> datetime | None:
        """Return the time at which changesets were last removed from a repository.

        A removal before all of its published bundles does not count.
        """
        name = names.of(repository)
        entries = (*self.manifests.read(name), *self.manifests.recent(name))
        # Not the beginning of the run, which may have made some of them.
        now = datetime.now(UTC)
        times = [stored_time.past_moment(entry.made, now) for entry in entries]
        return recent_pushes.removal(self.source(repository), min(times)) if times else None

    def note_corrupt(self, place: str) -> None:
        """Record the time of a finding of a corrupt bundle for metrics (`bundles.corruption`)."""
        self.keep_findings({place: time.time()})

    def delete(self, store: str, key: str) -> None:
        """Delete an object that clients must not read any more, also from caches.

        Raises HgfleetError.
        """
        if self.config.purge_command and store in self.stores.public_names:
            purging.note(self.config.state, [object_url(self.stores.urls[store], key)])
        self.stores.buckets[store].delete(key)

    def purge(self) -> None:
        """Make caches forget the deleted objects. Raises UnavailableError."""
        if self.config.purge_command:
            count = purging.purge(self.config.state, self.config.purge_command)
            if count:
                self.report.note("purged", f"caches were told of {count} objects", urls=count)

    def keep_findings(self, found: Mapping[str, float]) -> None:
        """Add findings to the findings of former runs; no clone needs them."""
        try:
            corruption.note(self.config.state, found)
        except OSError as error:
            self.report.note("record", f"a finding is lost: {error}", error=error)

    def source(self, repository: Repository) -> Path:
        """Return the place of a repository on this host."""
        return self.config.repositories / repository.path
