"""The steps in their order, for one repository and for all of them.

Each step leaves something that the next run finds as it is or makes again, so a run may be killed
anywhere: an object nobody names, an interrupted snapshot, a superfluous copy of a manifest.

What a repository needs is in `making`, what is published in `published`, pull bundles in `pulls`,
what they share in `job`.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import threading
import time
import traceback
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from hgfleet.bundles import repository as hg_side
from hgfleet.bundles.generate import BundleGenerator
from hgfleet.bundles.job import Job, StoreListing, each, remove
from hgfleet.bundles.kinds import parse_key
from hgfleet.bundles.manifest import locate, render
from hgfleet.bundles.plan import Action, Plan, State, misplaced, order, plan
from hgfleet.bundles.published import PublishedBundles
from hgfleet.bundles.pullbundle_chain import Move, heads_to_look_up
from hgfleet.bundles.pullbundle_store import PullbundleStore
from hgfleet.bundles.state_cache import StateCache, reads_per_run
from hgfleet.bundles.verify import VerificationError
from hgfleet.core.errors import HgfleetError, HostError, RegistryError, TemporaryError
from hgfleet.core.files import file_name, repository_of
from hgfleet.hg import fingerprint as files
from hgfleet.registry import user_repositories
from hgfleet.registry.compiled import load_compiled
from hgfleet.registry.model import Repository
from hgfleet.registry.purged import purged

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from datetime import datetime

    from hgfleet.bundles.config import Config
    from hgfleet.bundles.pullbundle_chain import ChainPlan
    from hgfleet.core.report import Report
    from hgfleet.objectstore.bucket import Bucket, StoredObject, Upload
    from hgfleet.registry.model import Registry


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one repository ended; `error` is None unless something failed.

    `missing` has, by store, why some of its bundles are not there although they are elsewhere: the
    repository is served, and the next run tries again. `busy`: another run is at work on it.
    """

    repository: str
    plan: Plan | None = None
    error: HgfleetError | None = None
    missing: Mapping[str, HgfleetError] = field(default_factory=dict)
    busy: bool = False


class Pipeline:
    """One run. `buckets` is empty for what needs no credentials (`plan`, `status`, `verify`)."""

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
        self.job = Job(config, report, buckets, force=force, dry_run=dry_run, now=now)
        self.config, self.report, self.manifests = config, report, self.job.manifests
        self._generator = BundleGenerator(self.job)
        self._published = PublishedBundles(self.job, self._generator)
        self.pullbundles = PullbundleStore(self.job, self._generator)
        # Set by `known` where a part of the registry cannot be read.
        self.partial = False

    def known(self) -> tuple[Registry, list[Repository]]:
        """Read the registry; return it and the archived repositories, as nobody's to read.

        Raises RegistryError. A damaged dynamic part is reported, and nothing is said of what it
        would have had: its bundles stay as they are.
        """
        static = load_compiled(self.config.registry)
        try:
            entries = user_repositories.load(self.config.dynamic)
            deleted = purged(self.config.dynamic)
        except RegistryError as problem:
            self.report.step("registry", "-", f"left out: {problem}", error=problem)
            self.partial = True
            return static, []
        served, archived = (
            user_repositories.merged(static, entries),
            user_repositories.withdrawn(static, entries),
        )
        self.job.purged = deleted.difference(served.repositories, (one.path for one in archived))
        return served, archived

    # -- all repositories ------------------------------------------------------------------------

    def run(self, repositories: Sequence[Repository], *, everything: bool = False) -> list[Outcome]:
        """Bring the bundles of these repositories up to date.

        `everything` says that these are all there are: what is left of others is withdrawn and
        deleted, and the pages beside the bundles are renewed. Raises UnavailableError, having
        changed nothing, if no store even lists its objects. Whatever else fails is in the outcome
        of its repository.
        """
        if everything:
            self.job.read_slots = threading.Semaphore(reads_per_run(len(repositories)))
        outcomes = self._for_each(repositories, self._one, everything)
        if everything and not self.job.dry_run:
            self._publish_pages(repositories)
        return outcomes

    def renew_pages(self, repositories: Sequence[Repository]) -> None:
        """Renew the pages if a run for some of the repositories changed what is published."""
        if self.job.has_published:
            self._publish_pages(repositories)

    def _publish_pages(self, repositories: Sequence[Repository]) -> None:
        if self.partial:
            # They would lack what the registry cannot tell of.
            return
        try:
            self._published.publish_pages(repositories)
        except OSError as error:
            self.report.note("page", f"the pages are old: {error}", error=error)

    def prune(self, repositories: Sequence[Repository], *, everything: bool) -> list[Outcome]:
        """Delete what is outdated, orphaned or nobody's, and make nothing; raises as `run`.

        With `everything`, also objects of repositories that this host never knew: whoever runs it
        says that the stores are this host's alone.
        """

        def one(repository: Repository, stock: Mapping[str, StoreListing]) -> Outcome:
            decision, stores = None, self.job.stores(repository)
            if not (stores.urls and repository.bundles):
                decision = self.plan(repository)[0]
                if not self.job.dry_run:
                    self._carry_out(repository, decision, State())
            elif not self.job.dry_run:
                wrong = misplaced(self.manifests.read(repository.path), stores)
                if wrong:
                    self.job.withdraw(repository, wrong)
            self._published.prune(repository, stock)
            if not (self.job.dry_run or self.pullbundles.wanted(repository)):
                self.pullbundles.carry_out(
                    repository, self.pullbundles.plan(repository, State()), State()
                )
            self.pullbundles.prune(repository)
            return Outcome(repository.path, decision)

        return self._for_each(repositories, one, everything, strangers=everything)

    def _for_each(
        self,
        repositories: Sequence[Repository],
        work: Callable[[Repository, Mapping[str, StoreListing]], Outcome],
        everything: bool,
        *,
        strangers: bool = False,
    ) -> list[Outcome]:
        self.check_scratch()
        one = len(repositories) == 1 and not everything
        stock = self._stocks(f"{repositories[0].path}/" if one else "")
        gone = self._gone(repositories, stock if strangers else {}) if everything else []
        # More than work at the same time: some of them wait for a store.
        with (
            contextlib.closing(self.job.hg),
            ThreadPoolExecutor(2 * self.config.jobs + 2, "bundles") as pool,
        ):
            try:
                return list(
                    pool.map(lambda one: self._guarded(one, stock, work), [*repositories, *gone])
                )
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

    def _gone(
        self, repositories: Sequence[Repository], stocks: Mapping[str, Mapping[str, StoreListing]]
    ) -> list[Repository]:
        """Find what is published, stored or on its way for repositories that nobody knows.

        Of what the stores hold, `stocks` has all that may be ours: another host may have its
        bundles in the same buckets. They count as repositories without bundles, so that their
        objects go once nobody can have been sent to them any more.
        """
        known = {repository.path for repository in repositories}
        if not known or self.partial:
            # A registry that is empty or damaged says nothing about who is gone.
            return []
        found = self.manifests.all().union(self.job.purged, *stocks.values())
        found |= set(map(repository_of, self.pullbundles.all()))
        for scratch in (self.config.scratch, self.config.scratch_ram):
            for folder in ("work", "snapshots", "known", "checked", "read"):
                with contextlib.suppress(OSError):
                    names = {path.name for path in (scratch / folder).iterdir()}
                    found |= {repository_of(name) for name in names if not name.startswith(".")}
        self.job.gone = frozenset(found - known)
        return [
            Repository(path, "", "public", (), publishing=True, bundles=())
            for path in sorted(self.job.gone)
        ]

    def check_scratch(self) -> None:
        """Refuse to leave files in the scratch folder that the service could not remove."""
        scratch = self.config.scratch
        try:
            owner = scratch.stat().st_uid
        except OSError as error:
            raise HostError(
                f"{scratch}: no scratch folder ({error.strerror}); the role `bundles` makes it"
            ) from error
        if owner != os.geteuid():
            raise HostError(
                f"{scratch} belongs to user id {owner}, and this runs as {os.geteuid()}; "
                "use `systemctl start hgfleet-bundles.service`, which runs as the right one"
            )

    def _stocks(self, prefix: str) -> Mapping[str, Mapping[str, StoreListing]]:
        """List what the buckets have under a prefix: a thousand objects a request.

        A store that does not answer is left out, and out of the run.
        """
        private = {store.name for store in self.config.stores if store.private}

        def look(store: str) -> Mapping[str, StoreListing]:
            if store in private:
                self._published.check_closed(store)
            return self._stock(self.job.buckets[store], prefix)

        stocks = {}
        for store, stock in each(self.job.buckets, look).items():
            if isinstance(stock, HgfleetError):
                self.job.down[store] = stock
                self.report.note("store-down", f"left out: {stock}", store=store, error=stock)
            else:
                stocks[store] = stock
        if self.job.buckets and not stocks:
            raise next(iter(self.job.down.values()))
        return stocks

    def _stock(self, bucket: Bucket, prefix: str) -> Mapping[str, StoreListing]:
        objects: dict[str, list[StoredObject]] = defaultdict(list)
        uploads: dict[str, list[Upload]] = defaultdict(list)
        for item in bucket.objects(prefix):
            if key := parse_key(item.key):
                objects[key.repository].append(item)
        for upload in bucket.uploads(prefix):
            if key := parse_key(upload.key):
                uploads[key.repository].append(upload)
        return {
            path: StoreListing(tuple(objects[path]), tuple(uploads[path]))
            for path in {*objects, *uploads}
        }

    def _guarded(
        self,
        repository: Repository,
        stocks: Mapping[str, Mapping[str, StoreListing]],
        work: Callable[[Repository, Mapping[str, StoreListing]], Outcome],
    ) -> Outcome:
        started = time.monotonic()
        try:
            with self._locked(repository) as mine:
                if not mine:
                    self.report.step("busy", repository.path, "another run is at work on it")
                    return Outcome(repository.path, busy=True)
                stock = {
                    store: one.get(repository.path, StoreListing()) for store, one in stocks.items()
                }
                return work(repository, stock)
        except Exception as problem:
            return self._failed(repository, problem, time.monotonic() - started)

    def _failed(self, repository: Repository, problem: Exception, took: float) -> Outcome:
        """Report a failure of one repository, which is never a reason to stop for the others."""
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

    @contextlib.contextmanager
    def _locked(self, repository: Repository) -> Iterator[bool]:
        """Hold the repository's lock; False if another run holds it.

        The kernel frees the lock of a killed run.
        """
        locks = self.config.scratch / "locks"
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / file_name(repository.path)).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
                return
            # What a killed run left.
            self._sweep(repository)
            try:
                yield True
            finally:
                self._sweep(repository)

    def _sweep(self, repository: Repository) -> None:
        for scratch in (self.config.scratch, self.config.scratch_ram):
            remove(scratch / "work" / file_name(repository.path))

    # -- one repository --------------------------------------------------------------------------

    def plan(
        self,
        repository: Repository,
        *,
        dead: Mapping[str, str] | None = None,
        remember: bool = False,
    ) -> tuple[Plan, State]:
        """Look at a repository and decide; reads only, but for what it may `remember`."""
        published, stores = self.manifests.read(repository.path), self.job.stores(repository)
        state = State()
        if (stores.urls and repository.bundles) or self.pullbundles.wanted(repository):
            state = self._look(repository, self._tips(repository), remember)
        decision = plan(
            repository,
            state,
            published,
            stores=stores,
            refresh=self.config.refresh,
            now=self.job.now,
            dead=dead,
            demand=self.job.demand.get(repository.path),
            foreign=render(published) != self.manifests.read_text(repository.path),
            force=self.job.force,
        )
        return decision, state

    def plan_pullbundles(self, repository: Repository, decision: Plan, state: State) -> ChainPlan:
        """Decide about the pull bundles; `decision` and `state` are from `plan`."""
        tips, aligned = self._tips(repository), bool(decision.build)
        return self.pullbundles.plan(repository, state, tips=tips, aligned=aligned)

    def _tips(self, repository: Repository) -> set[str]:
        """The tips of the published bundles."""
        published = self.manifests.read(repository.path)
        places = [locate(entry, self.config.public_urls) for entry in published]
        return {place[1].tip for place in places if place}

    def _look(self, repository: Repository, tips: set[str], remember: bool) -> State:
        """Ask for the state, also for what the pull bundles go by."""
        chain = self.pullbundles.chain(repository)
        asked = heads_to_look_up(chain)
        state = self._ask(repository, tips | asked, remember)
        if state.exists and not asked <= {*state.covered}:
            # History was removed: which links still stand?
            every = {head for link in chain for head in link.heads}
            state = self._ask(repository, tips | every, remember)
        return state

    def _ask(self, repository: Repository, tips: set[str], remember: bool) -> State:
        """Ask hg, unless nothing has changed since it was asked the same."""
        known, name = StateCache(self.config.scratch / "known"), file_name(repository.path)
        source = self.job.source(repository)
        seen = files.read_repository(files.paths(source / ".hg"))
        state = known.get(name, seen, tips)
        if state is None:
            state = hg_side.look(self.job.hg, source, tips)
            if remember:
                known.put(name, seen, tips, state)
        return state

    def _one(self, repository: Repository, stock: Mapping[str, StoreListing]) -> Outcome:
        dead = self._published.dead(repository, stock)
        reading = self._published.read(repository, dead)
        dead |= {entry.url: problem for entry, problem in reading.wrong.items()}
        try:
            decision, state = self.plan(repository, dead=dead, remember=not self.job.dry_run)
        except HgfleetError:
            if dead and not self.job.dry_run:
                self.job.withdraw(repository, dead)
            raise
        self.report.step(
            "plan",
            repository.path,
            f"{decision.action.value}: {'; '.join(decision.reasons)}",
            action=decision.action.value,
            reason="; ".join(decision.reasons),
        )
        pulls = self.plan_pullbundles(repository, decision, state)
        if pulls.move is not Move.KEEP:
            self.report.step(
                "pull-plan",
                repository.path,
                f"pull bundles: {pulls.move.value}: {pulls.reason}",
                action=pulls.move.value,
                reason=pulls.reason,
            )
        missing: dict[str, HgfleetError] = {}
        if not self.job.dry_run:
            if dead:
                self.job.withdraw(repository, dead)
            missing.update(self._published.discard(repository, reading))
            try:
                if decision.build and not self.job.stores(repository).up:
                    # There is nowhere to bring what would be made.
                    raise next(iter(self.job.problems(repository).values()))
                missing.update(self._carry_out(repository, decision, state))
            except HgfleetError:
                # Pull bundles need no store.
                self.pullbundles.carry_out(repository, pulls, state)
                raise
            self.pullbundles.carry_out(repository, pulls, state)
        if decision.action is not Action.SKIP:
            self._published.prune(repository, stock)
            self.pullbundles.prune(repository)
        if decision.kinds:
            missing = {**self.job.problems(repository), **missing}
        return Outcome(repository.path, decision, missing=missing)

    def _carry_out(
        self, repository: Repository, decision: Plan, seen: State
    ) -> Mapping[str, HgfleetError]:
        """Do what was decided; say what could not be brought to which store."""
        entries = {kind: dict(kept) for kind, kept in decision.keep.items()}
        missing: dict[str, HgfleetError] = {}
        match decision.action:
            case Action.KEEP:
                self._generator.verify_history(repository, decision, seen)
                if not decision.kinds:
                    self._forget(repository)
                return missing
            case Action.SKIP:
                return missing
            case Action.GENERATE | Action.COPY:
                for kind, made in self._generator.make(repository, decision, seen, missing).items():
                    entries.setdefault(kind, {}).update(made)
            case Action.WITHDRAW:
                pass
        if not decision.kinds:
            self._forget(repository)
        manifest = order(decision.kinds, list(self.config.public_urls), entries)
        if self.job.publish(repository, manifest):
            what = ", ".join(decision.kinds) or "no bundles"
            self.report.step(
                "published",
                repository.path,
                f"published: {what}",
                kinds=",".join(decision.kinds),
                entries=len(manifest),
            )
        return missing

    def _forget(self, repository: Repository) -> None:
        """Delete what the scratch folder has for a repository without bundles of either kind."""
        has_readers = self.pullbundles.wanted(repository)
        if not (has_readers and self.pullbundles.chain(repository)):
            remove(self.job.snapshot(repository))
        if not has_readers:
            for folder in ("known", "checked", "read"):
                name = file_name(repository.path)
                (self.config.scratch / folder / name).unlink(missing_ok=True)

    def verify(self, repository: Repository) -> Outcome:
        """Verify every published bundle again, as before its publication; changes nothing.

        What is wrong is left to the next run, which is asked to read all that is published.
        """
        started = time.monotonic()
        try:
            with self._locked(repository) as mine:
                if not mine:
                    raise TemporaryError("another run is at work on it")
                self.pullbundles.verify(repository)
                published = self.manifests.read(repository.path)
                if not published:
                    self.report.step("unpublished", repository.path, "no bundles are published")
                    return Outcome(repository.path)
                seen = hg_side.look(self.job.hg, self.job.source(repository))
                with self._generator.workspace(repository, seen, 1) as work:
                    for entry in published:
                        place = locate(entry, self.config.public_urls)
                        if place is None:
                            raise VerificationError(
                                f"{entry.url}: lies in no store of ours; the next run withdraws it"
                            )
                        try:
                            self._generator.verify(work, place[0], entry)
                        except VerificationError:
                            self.job.reads.ask(file_name(repository.path))
                            raise
        except Exception as problem:
            return self._failed(repository, problem, time.monotonic() - started)
        return Outcome(repository.path)

    def publish(self, repositories: Sequence[Repository]) -> list[Outcome]:
        """Make the manifests of these repositories anew from what the stores hold, verified."""

        def one(repository: Repository, stock: Mapping[str, StoreListing]) -> Outcome:
            return Outcome(repository.path, missing=self._published.rebuild(repository, stock))

        return self._for_each(repositories, one, everything=False)
