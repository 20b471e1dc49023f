"""Runs over the repositories of the registry: update, prune, verify, republish.

A failure of a repository never stops the others.
"""

from __future__ import annotations

import contextlib
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from hgfleet.bundles.decide import activity, demand, names
from hgfleet.bundles.decide.manifest import locate
from hgfleet.bundles.decide.plan import NO_IDENTITY, Action, Plan
from hgfleet.bundles.hg import recent_pushes
from hgfleet.bundles.steps import adoption, run_record, workspace
from hgfleet.bundles.steps.generate import BundleGenerator
from hgfleet.bundles.steps.job import Job, Options, Outcome
from hgfleet.bundles.steps.published import PublishedBundles
from hgfleet.bundles.steps.pullbundle_store import PullbundleStore
from hgfleet.bundles.steps.republish import republish
from hgfleet.bundles.steps.survey import Planner
from hgfleet.bundles.steps.update import Updater
from hgfleet.bundles.steps.verify import Verifier
from hgfleet.bundles.steps.withdrawal import FirstPass, Forgetter
from hgfleet.bundles.stores import corruption
from hgfleet.bundles.stores.access import ChangedError
from hgfleet.bundles.stores.reader import VerificationError
from hgfleet.core.errors import HgfleetError, RegistryError, TemporaryError
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model.compiled import load_compiled
from hgfleet.registry.model.registry import Repository

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from hgfleet.bundles.decide.activity import Activity
    from hgfleet.bundles.decide.plan import State
    from hgfleet.bundles.decide.pullbundle_chain import ChainPlan
    from hgfleet.bundles.decide.settings import Config
    from hgfleet.bundles.stores.stores import StoreListing
    from hgfleet.core.report import Report
    from hgfleet.objectstore.bucket import Bucket
    from hgfleet.registry.model.registry import Registry

    Work = Callable[[Repository, Mapping[str, StoreListing]], Outcome]


class Pipeline:
    """A run. `buckets` is empty for commands without credentials (`plan`, `status`, `verify`)."""

    def __init__(
        self,
        config: Config,
        report: Report,
        buckets: Mapping[str, Bucket] | None = None,
        options: Options | None = None,
    ) -> None:
        job = self.job = Job(config, options or Options(), report, buckets or {})
        self.config, self.report, self.manifests = config, report, job.manifests
        self.pullbundles = PullbundleStore(job)
        self._verifier = Verifier(job)
        self._published = PublishedBundles(job)
        self._first = FirstPass(job, self._published)
        self._planner = Planner(job, self.pullbundles)
        self._updater = Updater(
            job,
            self._planner,
            BundleGenerator(job, self._verifier),
            self._verifier,
            self._published,
            self.pullbundles,
        )
        # Set by `known` where a part of the registry cannot be read.
        self.partial = False

    def known(self) -> tuple[Registry, list[Repository]]:
        """Read the registry; return it and the archived repositories, without readers.

        Raises RegistryError. A damaged list of user repositories is reported and left out: the
        bundles of user repositories stay as they are.
        """
        static = load_compiled(self.config.registry)
        try:
            served, entries = self.job.access.read()
        except RegistryError as problem:
            self.report.step("registry", "-", f"left out: {problem}", error=problem)
            self.partial = True
            return static, []
        if self.config.dynamic.exists() and not self.job.options.dry_run:
            self.manifests.note_user_repositories()
        archived = user_repositories.withdrawn(static, entries)
        self.job.orphans.purged = self.job.access.purged()
        return served, archived

    def plan(self, repository: Repository, *, remember: bool = False) -> tuple[Plan, State]:
        """Decide about the clone bundles of a repository; see `Planner.plan`."""
        return self._planner.plan(repository, remember=remember)

    def plan_pullbundles(self, repository: Repository, decision: Plan, state: State) -> ChainPlan:
        """Decide about the pull bundles of a repository; see `Planner.plan_pullbundles`."""
        return self._planner.plan_pullbundles(repository, decision, state)

    def run(self, repositories: Sequence[Repository], *, everything: bool = False) -> list[Outcome]:
        """Bring the bundles of these repositories up to date.

        `everything` says that no other repositories exist: remains of others are withdrawn and
        deleted, and the pages about the bundles are renewed. Raises UnavailableError, with nothing
        changed, if no store lists its objects. Any other failure is in the outcome of its
        repository.
        """
        started = time.time()
        if everything:
            self.job.schedule.allow_reads(len(repositories))
        outcomes = self._purged(
            self._for_each(repositories, self._updater.update, everything, withdraws=True)
        )
        if everything and not self.job.options.dry_run:
            self._publish_pages(repositories)
            self._keep_record(outcomes, repositories, started)
        return outcomes

    def renew_pages(self, repositories: Sequence[Repository]) -> None:
        """Renew the pages if a run for some of the repositories changed a manifest."""
        if self.job.publisher.has_published:
            self._publish_pages(repositories)

    def _publish_pages(self, repositories: Sequence[Repository]) -> None:
        if self.partial:
            # Repositories that cannot be read from the registry would be missing on the pages.
            return
        try:
            self._published.publish_pages(self._public(repositories))
        except (OSError, RegistryError) as error:
            self.report.note("page", f"the pages are old: {error}", error=error)

    def _public(self, repositories: Sequence[Repository]) -> list[Repository]:
        """Return the repositories that are public now, as they are now. Raises RegistryError."""
        now = [self.job.access.decide(repository) for repository in repositories]
        return [repository for repository in now if repository.is_public]

    def _keep_record(
        self, outcomes: Sequence[Outcome], repositories: Sequence[Repository], started: float
    ) -> None:
        """Leave the figures of the run for metrics; no clone needs them."""
        figures = run_record.of(
            outcomes,
            repositories,
            {each.path: self.manifests.read(names.of(each)) for each in repositories},
            self.job.stores.urls,
            self._busiest(repositories),
            started=started,
            ended=time.time(),
        )
        try:
            run_record.save(figures, self.config.state)
        except OSError as error:
            self.report.note("record", f"no figures of this run: {error}", error=error)
        places = [*self.job.stores.urls, corruption.PULL_BUNDLES]
        self.job.keep_findings(dict.fromkeys(places, 0.0))

    def _busiest(self, repositories: Sequence[Repository]) -> Mapping[str, Activity]:
        since = self.job.options.now - demand.WINDOW
        activities = {
            each.path: activity.of(
                recent_pushes.count(self.job.source(each), since), self.job.demand.get(each.path)
            )
            for each in repositories
        }
        try:
            public = {repository.path for repository in self._public(repositories)}
        except RegistryError:
            public = set()
        return activity.busiest(activities, public)

    def prune(self, repositories: Sequence[Repository], *, everything: bool) -> list[Outcome]:
        """Delete outdated and orphaned objects, and generate nothing; raises as `run`.

        With `everything`, also objects of repositories that this host never knew: the caller says
        that no other host has bundles in the stores.
        """
        return self._for_each(repositories, self._updater.prune, everything, foreign=everything)

    def publish(self, repositories: Sequence[Repository]) -> list[Outcome]:
        """Write the manifests of these repositories again from the objects in the stores."""

        def republished(repository: Repository, listing: Mapping[str, StoreListing]) -> Outcome:
            missing = republish(self.job, self._verifier, repository, listing)
            return Outcome(repository.path, missing=missing)

        return self._for_each(repositories, republished, everything=False)

    def check_scratch(self) -> None:
        """Refuse to run as another user than the owner of the scratch folder."""
        self.job.scratch.check_owner()

    def _for_each(
        self,
        repositories: Sequence[Repository],
        work: Work,
        everything: bool,
        *,
        withdraws: bool = False,
        foreign: bool = False,
    ) -> list[Outcome]:
        """Do the work for each repository; `foreign`: also for those that only stores have.

        `withdraws`: their bundles that must go are withdrawn first.
        """
        self.check_scratch()
        if withdraws:
            # Whether or not a store answers. The next pass reports failures.
            for repository in repositories:
                with contextlib.suppress(HgfleetError, OSError):
                    self._first.entries([repository])
        is_one = len(repositories) == 1 and not everything
        names_in_keys = self.job.names_in_keys(repositories[0]) if is_one else ()
        listings = self.job.stores.listings(names_in_keys, dry_run=self.job.options.dry_run)
        gone = self._gone(repositories, listings if foreign else {}) if everything else []
        # More threads than hg processes: some of them wait for a store.
        with (
            contextlib.closing(self.job.hg),
            ThreadPoolExecutor(2 * self.config.jobs + 2, "bundles") as pool,
        ):
            try:
                if withdraws:
                    self._first.withdraw([*repositories, *gone], listings)
                return list(
                    pool.map(
                        lambda each: self._guarded(each, listings, work), [*repositories, *gone]
                    )
                )
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def withdraw(self, repositories: Sequence[Repository], *, everything: bool) -> list[Outcome]:
        """Only withdraw and delete bundles, also during another run; raises as `run`.

        State of the release before is taken over, so that clients have its bundles again.
        """
        for repository in repositories:
            self._adopt(repository)
        gone = self._gone(repositories, {}) if everything else []
        return self._purged(self._first.due([*repositories, *gone]))

    def _adopt(self, repository: Repository) -> None:
        """Take over state of the release before, unless another run does that."""
        started = time.monotonic()
        try:
            now = self.job.access.decide(repository)
            if adoption.is_due(self.job, now):
                with self.job.scratch.locked(names.of(now)) as has_lock:
                    if has_lock:
                        adoption.adopt(self.job, now)
        except Exception as problem:
            self.job.failed(repository, problem, time.monotonic() - started)

    def forget(self, repository: Repository) -> Outcome:
        """Delete all bundles of a repository, of both sorts; see `Forgetter`."""
        started = time.monotonic()
        try:
            Forgetter(self.job).forget(repository)
        except Exception as problem:
            return self.job.failed(repository, problem, time.monotonic() - started)
        return self._purged([Outcome(repository.path)])[-1]

    def _purged(self, outcomes: list[Outcome]) -> list[Outcome]:
        """Make caches forget the deleted objects; a failure is a failure of the run."""
        started = time.monotonic()
        try:
            if not self.job.options.dry_run:
                self.job.purge()
        except HgfleetError as problem:
            caches = Repository("caches", "", (), (), publishing=True, bundles=())
            failed = self.job.failed(caches, problem, time.monotonic() - started)
            return [*outcomes, failed]
        return outcomes

    def _gone(
        self,
        repositories: Sequence[Repository],
        listings: Mapping[str, Mapping[str, StoreListing]],
    ) -> list[Repository]:
        """Find repositories without a registry entry that have something published or stored.

        `listings` has the stores whose objects all belong to this host; other hosts may keep
        bundles in the same buckets. The result counts as repositories without bundles, so their
        objects go when the retention time of their manifests has passed.
        """
        # A repository takes over the state that the release before named by its path.
        known = {name for each in repositories for name in (names.of(each), each.path)}
        if self.partial:
            return []
        present = self.manifests.all().union(self.job.orphans.purged, *listings.values())
        present |= self.pullbundles.repositories() | self.job.scratch.repositories()
        if not known:
            # An empty registry does not prove that a repository is gone; its deletion is noted.
            present &= self.job.orphans.purged
        self.job.orphans.gone = frozenset(present - known)
        return [
            Repository(
                *(name, "", (), ()),
                publishing=True,
                bundles=(),
                identity="" if names.is_former(name) else name,
            )
            for name in sorted(self.job.orphans.gone)
        ]

    def _guarded(
        self,
        repository: Repository,
        listings: Mapping[str, Mapping[str, StoreListing]],
        work: Work,
    ) -> Outcome:
        started = time.monotonic()
        try:
            with self.job.scratch.locked(names.of(repository)) as has_lock:
                if not has_lock:
                    self.report.step("busy", repository.path, "another run is at work on it")
                    return Outcome(repository.path, busy=True)
                try:
                    return self._decided(repository, listings, work)
                except ChangedError as problem:
                    self._report_changed(repository, problem)
                # As it is now, with the objects that were uploaded before it changed.
                listings = self.job.stores.listings(
                    self.job.names_in_keys(repository), dry_run=self.job.options.dry_run
                )
                try:
                    return self._decided(repository, listings, work)
                except ChangedError as problem:
                    self._report_changed(repository, problem)
                    return Outcome(repository.path, busy=True)
        except Exception as problem:
            return self.job.failed(repository, problem, time.monotonic() - started)

    def _decided(
        self,
        repository: Repository,
        listings: Mapping[str, Mapping[str, StoreListing]],
        work: Work,
    ) -> Outcome:
        """Do the work for a repository as the registry has it at this moment, under its lock."""
        now = self.job.access.decide(repository)
        if now.identity:
            adoption.adopt(self.job, now)
        elif now.read or now.bundles:
            self.report.step("plan", now.path, f"skip: {NO_IDENTITY}", action="skip")
            return Outcome(now.path, Plan(now.path, Action.SKIP, (NO_IDENTITY,)))
        return work(now, self.job.listing(now, listings))

    def _report_changed(self, repository: Repository, problem: ChangedError) -> None:
        self.report.step(
            "changed", repository.path, f"changed during the run: {problem}", error=problem
        )

    def verify(self, repository: Repository) -> Outcome:
        """Verify every published bundle again, as before its publication; changes nothing.

        A wrong bundle makes the next run read all bundles of the repository.
        """
        started = time.monotonic()
        try:
            with self.job.scratch.locked(names.of(repository)) as has_lock:
                if not has_lock:
                    raise TemporaryError("another run is at work on it")
                self.pullbundles.verify(repository)
                published = self.manifests.read(names.of(repository))
                if not published:
                    self.report.step("unpublished", repository.path, "no bundles are published")
                    return Outcome(repository.path)
                with workspace.opened(self.job, repository, 1) as work:
                    for entry in published:
                        if locate(entry, self.job.stores.urls) is None:
                            raise VerificationError(
                                f"{entry.url}: lies in no store of ours; the next run withdraws it"
                            )
                        self._verifier.verify_published(work, entry)
        except Exception as problem:
            return self.job.failed(repository, problem, time.monotonic() - started)
        return Outcome(repository.path)
