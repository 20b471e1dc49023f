"""The steps in their order, for one repository and for all of them.

Each step leaves something that the next run finds as it is or makes again, so a run may be killed
anywhere: an object nobody names, an interrupted snapshot, a superfluous copy of a manifest.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import fnmatch
import functools
import os
import shutil
import time
import traceback
from collections import Counter, defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final, TypeVar

from hgfleet import dynamic
from hgfleet.bundles import demand, pages
from hgfleet.bundles import repository as hg_side
from hgfleet.bundles.budget import CLONE, SNAPSHOT, Bounds, Gate, Room, estimate, room_needed
from hgfleet.bundles.hgserver import Hg, HgError
from hgfleet.bundles.kinds import Key, make_key, parse_key
from hgfleet.bundles.known import Checks, Known
from hgfleet.bundles.manifest import Entry, Manifests, locate, object_url, render
from hgfleet.bundles.plan import Action, Plan, State, Stores, order, plan
from hgfleet.bundles.prune import StoredObject, prunable
from hgfleet.bundles.report import size
from hgfleet.bundles.store import MismatchError
from hgfleet.bundles.verify import Reader, VerificationError
from hgfleet.errors import (
    HgfleetError,
    HostError,
    RegistryError,
    TemporaryError,
    UnavailableError,
    UsageError,
)
from hgfleet.registry import Repository, load_compiled
from hgfleet.web import state as files

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.config import Config
    from hgfleet.bundles.demand import Demand
    from hgfleet.bundles.report import Report
    from hgfleet.bundles.store import Bucket, Upload
    from hgfleet.registry import Registry


T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one repository ended; `error` is None unless something failed.

    `lacking` has, by store, why some of its bundles are not there although they are elsewhere: the
    repository is served, and the next run tries again.
    """

    repository: str
    plan: Plan | None = None
    error: HgfleetError | None = None
    lacking: Mapping[str, HgfleetError] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Stock:
    """What the bucket of a store holds for one repository, as listed when the run began."""

    objects: tuple[StoredObject, ...] = ()
    uploads: tuple[Upload, ...] = ()


@dataclass(frozen=True, slots=True)
class Work:
    """What the threads that work on one repository share.

    `folder` is empty at first, and gone at the end; `snapshot` is the clone to make bundles from,
    `state` what is in it, and `store` the size of its store in bytes.
    """

    repository: Repository
    folder: Path
    snapshot: Path
    state: State
    store: int
    lacking: dict[str, HgfleetError] = field(default_factory=dict)


GIVE_UP: Final = 3
"""Failures in a row after which a store is left alone for the rest of a run: each costs its time
limit and its retries, and there may be a thousand repositories."""


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
        self.config, self.report, self.buckets = config, report, buckets or {}
        self.force, self.dry_run = force, dry_run
        self.now = now or datetime.now(UTC)
        self.hg = Hg(config.hg, config.hgrc)
        self.manifests = Manifests(config.manifests)
        self.reader = Reader(config.ca, config.timeout)
        self._gate = Gate(Bounds(config.jobs, config.memory))
        self._room = Room(config.scratch_ram_size if config.scratch_ram.is_dir() else 0)
        self.checks = Checks(config.scratch / "checked", config.verify_age)
        self._down: dict[str, HgfleetError] = {}
        self._failures: Counter[str] = Counter()
        self._silent: dict[str, str] = {}
        # Set by `known` where a part of the registry cannot be read.
        self.partial = False

    @functools.cached_property
    def demand(self) -> Mapping[str, Demand]:
        """What clones and pulls cost the server in the last day, by repository."""
        return demand.read(self.config.access_log, self.now)

    @property
    def stores(self) -> Stores:
        """The stores, and which of them have given up."""
        return Stores(
            self.config.public_urls, {name: str(error) for name, error in self._down.items()}
        )

    def source(self, repository: Repository) -> Path:
        """Where a repository lies on this host."""
        return self.config.repositories / repository.path

    def known(self) -> tuple[Registry, list[Repository]]:
        """Read the registry; return it and the archived repositories, as nobody's to read.

        Raises RegistryError. A damaged dynamic part is reported, and nothing is said of what it
        would have had: its bundles stay as they are.
        """
        static = load_compiled(self.config.registry)
        try:
            entries = dynamic.load(self.config.dynamic)
        except RegistryError as problem:
            self.report.step("registry", "-", f"left out: {problem}", error=problem)
            self.partial = True
            return static, []
        return dynamic.merged(static, entries), dynamic.withdrawn(static, entries)

    # -- all repositories ------------------------------------------------------------------------

    def run(self, repositories: Sequence[Repository], *, everything: bool = False) -> list[Outcome]:
        """Bring the bundles of these repositories up to date.

        `everything` says that these are all there are: what is left of others is withdrawn and
        deleted, and the pages beside the bundles are renewed. Raises UnavailableError, having
        changed nothing, if no store even lists its objects. Whatever else fails is in the outcome
        of its repository.
        """
        outcomes = self._for_each(repositories, self._one, everything)
        if everything and not self.dry_run:
            self._publish_pages(repositories)
        return outcomes

    def prune(self, repositories: Sequence[Repository], *, everything: bool) -> list[Outcome]:
        """Delete what is outdated, orphaned or nobody's, and make nothing; raises as `run`.

        With `everything`, also objects of repositories that this host never knew: whoever runs it
        says that the stores are this host's alone.
        """

        def one(repository: Repository, stock: Mapping[str, Stock]) -> Outcome:
            decision = None
            if not (repository.is_public and repository.bundles):
                decision = self.plan(repository)[0]
                if not self.dry_run:
                    self._carry_out(repository, decision, State())
            self._prune(repository, stock)
            return Outcome(repository.path, decision)

        return self._for_each(repositories, one, everything, strangers=everything)

    def _for_each(
        self,
        repositories: Sequence[Repository],
        work: Callable[[Repository, Mapping[str, Stock]], Outcome],
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
            contextlib.closing(self.hg),
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
        self, repositories: Sequence[Repository], stocks: Mapping[str, Mapping[str, Stock]]
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
        found = self.manifests.all().union(*stocks.values())
        for scratch in (self.config.scratch, self.config.scratch_ram):
            for folder in ("work", "snapshots", "known", "checked"):
                with contextlib.suppress(OSError):
                    names = {path.name for path in (scratch / folder).iterdir()}
                    found |= {_path(name) for name in names if not name.startswith(".")}
        return [
            Repository(path, "", "public", (), publishing=True, bundles=())
            for path in sorted(found - known)
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

    def _stocks(self, prefix: str) -> Mapping[str, Mapping[str, Stock]]:
        """List what the buckets have under a prefix: a thousand objects a request.

        A store that does not answer is left out, and out of the run.
        """
        stocks = {}
        for store, stock in each(
            self.buckets, lambda store: self._stock(self.buckets[store], prefix)
        ).items():
            if isinstance(stock, HgfleetError):
                self._down[store] = stock
                self.report.note("store-down", f"left out: {stock}", store=store, error=stock)
            else:
                stocks[store] = stock
        if self.buckets and not stocks:
            raise next(iter(self._down.values()))
        return stocks

    def _stock(self, bucket: Bucket, prefix: str) -> Mapping[str, Stock]:
        objects: dict[str, list[StoredObject]] = defaultdict(list)
        uploads: dict[str, list[Upload]] = defaultdict(list)
        for item in bucket.objects(prefix):
            if key := parse_key(item.key):
                objects[key.repository].append(item)
        for upload in bucket.uploads(prefix):
            if key := parse_key(upload.key):
                uploads[key.repository].append(upload)
        return {
            path: Stock(tuple(objects[path]), tuple(uploads[path])) for path in {*objects, *uploads}
        }

    def _guarded(
        self,
        repository: Repository,
        stocks: Mapping[str, Mapping[str, Stock]],
        work: Callable[[Repository, Mapping[str, Stock]], Outcome],
    ) -> Outcome:
        started = time.monotonic()
        try:
            with self._locked(repository) as mine:
                if not mine:
                    self.report.step("busy", repository.path, "another run is at work on it")
                    return Outcome(repository.path)
                stock = {store: one.get(repository.path, Stock()) for store, one in stocks.items()}
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
            _remove(scratch / "work" / file_name(repository.path))

    @contextlib.contextmanager
    def _at_work(self, repository: Repository, seen: State, copies: int) -> Iterator[Work]:
        """Bring the snapshot up to date and give a folder to work in.

        Both are in RAM if all that will be made there fits, else on disk, where the snapshot stays
        for the next run. `copies` is the number of bundles that will be made or cloned.
        """
        name, size = file_name(repository.path), hg_side.store_size(self.source(repository))
        room = room_needed(size, copies, len(self.config.stores))
        in_ram = self._room.take(room)
        folder = (self.config.scratch_ram if in_ram else self.config.scratch) / "work" / name
        snapshot = folder / "source" if in_ram else self.snapshot(repository)
        try:
            folder.mkdir(parents=True, exist_ok=True)
            started = time.monotonic()
            with self._gate.enter(estimate(SNAPSHOT, size)):
                state = hg_side.refresh_snapshot(
                    self.hg, self.source(repository), seen, snapshot, folder
                )
            took = time.monotonic() - started
            self.report.step(
                "snapshot",
                repository.path,
                f"snapshot of {state.changesets:,} changesets in {took:.1f} s",
                changesets=state.changesets,
                tip=state.tip,
                scratch="ram" if in_ram else "disk",
                duration_s=took,
            )
            yield Work(repository, folder, snapshot, state, size)
        finally:
            if in_ram:
                _remove(folder)
                self._room.give(room)

    # -- one repository --------------------------------------------------------------------------

    def plan(
        self,
        repository: Repository,
        *,
        dead: Mapping[str, str] | None = None,
        remember: bool = False,
    ) -> tuple[Plan, State]:
        """Look at a repository and decide; reads only, but for what it may `remember`."""
        published = self.manifests.read(repository.path)
        state = State()
        if repository.is_public and repository.bundles:
            places = [locate(entry, self.config.public_urls) for entry in published]
            state = self._look(repository, {place[1].tip for place in places if place}, remember)
        decision = plan(
            repository,
            state,
            published,
            stores=self.stores,
            refresh=self.config.refresh,
            now=self.now,
            dead=dead,
            demand=self.demand.get(repository.path),
            foreign=render(published) != self.manifests.read_text(repository.path),
            force=self.force,
        )
        return decision, state

    def _look(self, repository: Repository, tips: set[str], remember: bool) -> State:
        """Ask hg, unless nothing has changed since it was asked the same."""
        known, name = Known(self.config.scratch / "known"), file_name(repository.path)
        source = self.source(repository)
        seen = files.read_repository(files.paths(source / ".hg"))
        state = known.recall(name, seen, tips)
        if state is None:
            state = hg_side.look(self.hg, source, tips)
            if remember:
                known.remember(name, seen, tips, state)
        return state

    def _one(self, repository: Repository, stock: Mapping[str, Stock]) -> Outcome:
        dead = self._dead(repository, stock)
        decision, state = self.plan(repository, dead=dead, remember=not self.dry_run)
        self.report.step(
            "plan",
            repository.path,
            f"{decision.action.value}: {'; '.join(decision.reasons)}",
            action=decision.action.value,
            reason="; ".join(decision.reasons),
        )
        lacking: Mapping[str, HgfleetError] = {}
        if not self.dry_run:
            if dead:
                self._withdraw(repository, dead)
            lacking = self._carry_out(repository, decision, state)
        if decision.action is not Action.SKIP:
            self._prune(repository, stock)
        if decision.kinds:
            lacking = {**self._down, **lacking}
        return Outcome(repository.path, decision, lacking=lacking)

    def _dead(self, repository: Repository, stock: Mapping[str, Stock]) -> dict[str, str]:
        """Find published bundles that are gone, or not whole, or do not answer."""
        sizes = {
            store: {item.key: item.size for item in one.objects} for store, one in stock.items()
        }
        dead = {}
        for entry in self.manifests.read(repository.path):
            place = locate(entry, self.config.public_urls)
            if place is None or not self.buckets:
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
        if store not in self._silent:
            try:
                return self.reader.problem(entry)
            except UnavailableError as error:
                self._silent[store] = str(error)
        return self._silent[store]

    def _withdraw(self, repository: Repository, dead: Mapping[str, str]) -> None:
        """Stop sending clients to what is gone, before the time it takes to make it again."""
        published = self.manifests.read(repository.path)
        self.manifests.publish(
            repository.path,
            [entry for entry in published if entry.url not in dead],
            datetime.now(UTC),
        )
        for url, problem in dead.items():
            self.report.step(
                "withdrawn",
                repository.path,
                f"withdrawn: {url}: {problem}",
                url=url,
                reason=problem,
            )

    def _carry_out(
        self, repository: Repository, decision: Plan, seen: State
    ) -> Mapping[str, HgfleetError]:
        """Do what was decided; say what could not be brought to which store."""
        entries = {kind: dict(kept) for kind, kept in decision.keep.items()}
        lacking: dict[str, HgfleetError] = {}
        match decision.action:
            case Action.KEEP:
                self._verify_history(repository, decision, seen)
                if not decision.kinds:
                    self._forget(repository)
                return lacking
            case Action.SKIP:
                return lacking
            case Action.GENERATE | Action.COPY:
                for kind, made in self._make(repository, decision, seen, lacking).items():
                    entries.setdefault(kind, {}).update(made)
            case Action.WITHDRAW:
                pass
        if not decision.kinds:
            self._forget(repository)
        manifest = order(decision.kinds, list(self.config.public_urls), entries)
        if self.manifests.publish(repository.path, manifest, datetime.now(UTC)):
            what = ", ".join(decision.kinds) or "no bundles"
            self.report.step(
                "published",
                repository.path,
                f"published: {what}",
                kinds=",".join(decision.kinds),
                entries=len(manifest),
            )
        return lacking

    def _forget(self, repository: Repository) -> None:
        """Delete what the scratch folder has for a repository without bundles."""
        _remove(self.snapshot(repository))
        for folder in ("known", "checked"):
            name = file_name(repository.path)
            (self.config.scratch / folder / name).unlink(missing_ok=True)

    def snapshot(self, repository: Repository) -> Path:
        """Where the snapshot of a repository lies."""
        return self.config.scratch / "snapshots" / file_name(repository.path)

    def _make(
        self,
        repository: Repository,
        decision: Plan,
        seen: State,
        lacking: dict[str, HgfleetError],
    ) -> Mapping[str, Mapping[str, Entry]]:
        """Generate and copy what was decided, all kinds at once; return the new entries."""
        kinds = [kind for kind in decision.kinds if kind in {*decision.build, *decision.copy}]
        with self._at_work(repository, seen, len(kinds)) as work:

            def make(kind: str) -> Mapping[str, Entry]:
                if kind in decision.build:
                    return self._generate(work, kind)
                return self._copy(work, kind, decision)

            made = each(kinds, make)
            lacking.update(work.lacking)
            for result in made.values():
                if isinstance(result, HgfleetError):
                    raise result
            return {kind: one for kind, one in made.items() if not isinstance(one, HgfleetError)}

    def _generate(self, work: Work, kind: str) -> Mapping[str, Entry]:
        """Generate one bundle and bring it to every store that is up."""
        started = time.monotonic()
        with self._gate.enter(estimate(kind, work.store, self.config.zstd_level)):
            bundle = hg_side.generate(
                self.hg, work.snapshot, kind, work.folder, self.config.zstd_level
            )
        took = time.monotonic() - started
        self.report.step(
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
            made=datetime.now(UTC).replace(microsecond=0),
        )
        key = make_key(work.repository.path, work.state.tip, bundle.sha256, kind)
        made = self._spread(work, key, entry, self.stores.up, bundle.path)
        bundle.path.unlink()
        if not made:
            # Nothing to publish: a failure, and not a matter of one store.
            raise next(iter({**self._down, **work.lacking}.values()))
        return made

    def _copy(self, work: Work, kind: str, decision: Plan) -> Mapping[str, Entry]:
        """Bring a published bundle to the stores that lack it, from one that has it."""
        kept = decision.keep[kind]
        path = work.folder / f"{kind}-copy.hg"
        problem: HgfleetError | None = None
        for entry in kept.values():
            place = locate(entry, self.config.public_urls)
            assert place is not None
            try:
                self.reader.check(entry, path)
            except (UnavailableError, VerificationError) as error:
                problem = error
                continue
            made = self._spread(work, place[1], entry, decision.copy[kind], path)
            path.unlink()
            return made
        assert problem is not None
        work.lacking.update(dict.fromkeys(decision.copy[kind], problem))
        return {}

    def _spread(
        self, work: Work, key: Key, entry: Entry, stores: Sequence[str], path: Path
    ) -> Mapping[str, Entry]:
        """Upload a bundle to these stores, all at once, and verify it in each.

        What fails is noted in `work.lacking`, and the store does without.
        """

        def bring(store: str) -> Entry:
            there = replace(entry, url=object_url(self.config.public_urls[store], key))
            self._upload(work, store, key, there, path)
            try:
                self._verify(work, store, there, path)
            except VerificationError as error:
                self._discard(work.repository, store, key, str(error))
                raise
            return there

        done = {}
        for store, result in each(stores, bring).items():
            if not isinstance(result, HgfleetError):
                self._failures[store] = 0
                done[store] = result
                continue
            work.lacking[store] = result
            self._failures[store] += 1
            if self._failures[store] >= GIVE_UP and isinstance(result, UnavailableError):
                self._down[store] = result
            self.report.step(
                "lacking",
                work.repository.path,
                f"{key.kind}: not in {store}: {result}",
                kind=key.kind,
                store=store,
                error=result,
            )
        return done

    def _upload(self, work: Work, store: str, key: Key, entry: Entry, path: Path) -> None:
        started = time.monotonic()
        bucket = self.buckets[store]
        metadata = {
            "bundlespec": entry.bundlespec,
            "changesets": str(entry.changesets),
            "made": entry.made.isoformat(),
        }
        try:
            created = bucket.upload(str(key), path, entry.sha256, metadata)
        except MismatchError as error:
            self._discard(work.repository, store, key, str(error))
            created = bucket.upload(str(key), path, entry.sha256, metadata)
        took = time.monotonic() - started
        self.report.step(
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

    def _discard(self, repository: Repository, store: str, key: Key, problem: str) -> None:
        """Delete an object that is not what its name says, after nobody is sent to it any more.

        Left there, it would be "already there" in every later run.
        """
        self._withdraw(repository, {object_url(self.config.public_urls[store], key): problem})
        self.buckets[store].delete(str(key))

    def _verify(self, work: Work, store: str, entry: Entry, content: Path | None = None) -> None:
        """Look at an object from outside, and make a real clone through it; raises what is wrong.

        `content` is the file that was uploaded, where there is one.
        """
        started = time.monotonic()
        place = locate(entry, self.config.public_urls)
        assert place is not None
        kind, path = place[1].kind, work.repository.path
        self.reader.probe(entry, content)
        if any(fnmatch.fnmatchcase(path, pattern) for pattern in self.config.digest_only):
            self.reader.check(entry)
            how = "compared"
        else:
            self._clone(work, kind, entry, work.folder / f"{kind}-{store}-clone")
            how = "verified by a clone"
        took = time.monotonic() - started
        self.report.step(
            "verified",
            path,
            f"{kind}: {how} from {entry.url} in {took:.1f} s",
            kind=kind,
            store=store,
            url=entry.url,
            duration_s=took,
        )

    def _clone(self, work: Work, kind: str, entry: Entry, clone: Path) -> None:
        """Make a clone and compare its heads, and now and then all of it; leaves nothing."""
        name = file_name(work.repository.path)
        try:
            with self._gate.enter(estimate(CLONE, work.store)):
                try:
                    heads = hg_side.clone_through(self.hg, work.snapshot, entry.line(), clone)
                except HgError:
                    # Is it hg, or is it what was downloaded?
                    self.reader.check(entry)
                    raise
                if heads != work.state.heads:
                    raise VerificationError(
                        f"{entry.url}: a clone through it has {len(heads)} heads that are not the "
                        f"{len(work.state.heads)} of the repository"
                    )
                if self.checks.take(name, self.now):
                    self._verify_clone(work, kind, clone, name)
        finally:
            _remove(clone)

    def _verify_clone(self, work: Work, kind: str, clone: Path, name: str) -> None:
        started = time.monotonic()
        try:
            hg_side.verify_clone(self.hg, clone)
        except BaseException:
            self.checks.again(name, self.now)
            raise
        took = time.monotonic() - started
        self.report.step(
            "checked",
            work.repository.path,
            f"{kind}: hg verify found nothing wrong with a clone in {took:.1f} s",
            kind=kind,
            duration_s=took,
        )

    def _verify_history(self, repository: Repository, decision: Plan, seen: State) -> None:
        """Clone again, with `hg verify`, what has been published for long."""
        entries = order(decision.kinds, list(self.config.public_urls), decision.keep)
        if not entries or not self.buckets:
            return
        if not self.checks.due(file_name(repository.path), self.now):
            return
        with self._at_work(repository, seen, 1) as work:
            place = locate(entries[0], self.config.public_urls)
            assert place is not None
            self._verify(work, place[0], entries[0])

    def _prune(self, repository: Repository, stock: Mapping[str, Stock]) -> None:
        """Delete what no manifest of the retention time names. Only called when all went well."""
        before = self.now - self.config.retention
        named = [*self.manifests.read(repository.path)]
        if repository.is_public:
            named += self.manifests.recent(repository.path, before)
        else:
            # Anybody who knows a URL could still read what is to be private now.
            before = self.now
        places = {locate(entry, self.config.public_urls) for entry in named}
        for store, one in stock.items():
            keys = {str(place[1]) for place in places if place and place[0] == store}
            self._prune_store(repository.path, store, one, keys, before)
        if stock and not self.dry_run:
            self.manifests.forget(repository.path, before)

    def _prune_store(
        self, path: str, store: str, stock: Stock, keys: Collection[str], before: datetime
    ) -> None:
        would = "would delete" if self.dry_run else "deleted"
        for item in prunable(path, stock.objects, keys, before):
            if not self.dry_run:
                self.buckets[store].delete(item.key)
            self.report.step(
                "pruned",
                path,
                f"{would} {item.key} ({size(item.size)}) of {store}",
                store=store,
                key=item.key,
                size_bytes=item.size,
                dry_run=self.dry_run,
            )
        for upload in stock.uploads:
            if upload.begun < before:
                if not self.dry_run:
                    self.buckets[store].abort(upload)
                self.report.step(
                    "aborted",
                    path,
                    f"{would} the unfinished upload of {upload.key} to {store}",
                    store=store,
                    key=upload.key,
                    dry_run=self.dry_run,
                )

    def _publish_pages(self, repositories: Sequence[Repository]) -> None:
        """Renew the pages beside the bundles of each store, last; no bundle depends on them."""
        public = [one for one in repositories if one.is_public]
        published = {one.path: self.manifests.read(one.path) for one in public}

        def renew(store: str) -> None:
            url = {store: self.config.public_urls[store]}
            rows = []
            for repository in public:
                places = [(locate(entry, url), entry) for entry in published[repository.path]]
                bundles = {place[1].kind: entry for place, entry in places if place}
                if bundles:
                    rows.append(pages.Row(repository.path, repository.description, bundles))
            index = pages.index(rows, self.config.clone_url, self.config.title)
            data = pages.data(rows, self.config.clone_url)
            bucket = self.buckets[store]
            bucket.put_page(pages.DATA, data, "application/json", pages.MAX_AGE)
            bucket.put_page(pages.INDEX, index, "text/html; charset=utf-8", pages.MAX_AGE)

        for store, result in each(self.stores.up, renew).items():
            if isinstance(result, HgfleetError):
                self.report.note(
                    "page", f"the page of {store} is old: {result}", store=store, error=result
                )

    # -- what is published -----------------------------------------------------------------------

    def verify(self, repository: Repository) -> Outcome:
        """Verify every published bundle again, as before its publication; changes nothing."""
        started = time.monotonic()
        try:
            with self._locked(repository) as mine:
                if not mine:
                    raise TemporaryError("another run is at work on it")
                published = self.manifests.read(repository.path)
                if not published:
                    self.report.step("unpublished", repository.path, "no bundles are published")
                    return Outcome(repository.path)
                seen = hg_side.look(self.hg, self.source(repository))
                with self._at_work(repository, seen, 1) as work:
                    for entry in published:
                        place = locate(entry, self.config.public_urls)
                        if place is None:
                            raise VerificationError(f"{entry.url}: lies in no store of ours")
                        self._verify(work, place[0], entry)
        except Exception as problem:
            return self._failed(repository, problem, time.monotonic() - started)
        return Outcome(repository.path)

    def publish(self, repositories: Sequence[Repository]) -> list[Outcome]:
        """Make the manifests of these repositories anew from what the stores hold, verified."""
        return self._for_each(repositories, self._rebuild, everything=False)

    def _rebuild(self, repository: Repository, stock: Mapping[str, Stock]) -> Outcome:
        if not repository.is_public or not repository.bundles:
            raise UsageError(f"{repository.path}: the registry gives it no bundles")
        found = self._stored_entries(stock)
        tips = {key.tip for _, key, _ in found}
        seen = hg_side.look(self.hg, self.source(repository), tips)
        entries: dict[str, dict[str, Entry]] = {}
        with self._at_work(repository, seen, len(repository.bundles)) as work:
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
                        self._verify(work, store, entry)
                    except HgfleetError as error:
                        work.lacking[store] = error
                        self.report.step(
                            "lacking", repository.path, f"{key}: {error}", store=store, error=error
                        )
                    else:
                        chosen[store] = entry
        manifest = order(repository.bundles, list(self.config.public_urls), entries)
        if not manifest:
            raise next(
                iter(work.lacking.values()),
                HgfleetError(
                    "the stores hold no bundle of it that could be published; "
                    "`hgfleet bundles run` makes them"
                ),
            )
        self.manifests.publish(repository.path, manifest, datetime.now(UTC))
        self.report.step(
            "published",
            repository.path,
            f"published: {len(manifest)} entries from what the stores hold",
            entries=len(manifest),
        )
        return Outcome(repository.path, lacking=work.lacking)

    def _stored_entries(self, stock: Mapping[str, Stock]) -> list[tuple[str, Key, Entry]]:
        """Read back the entry of each object: store, key, entry."""
        found = []
        for store, one in stock.items():
            for item in one.objects:
                key, there = parse_key(item.key), self.buckets[store].head(item.key)
                if key is None or there is None:
                    continue
                sha256 = there.metadata.get("sha256", "")
                try:
                    entry = Entry(
                        url=object_url(self.config.public_urls[store], key),
                        bundlespec=there.metadata["bundlespec"],
                        sha256=sha256,
                        size=there.size,
                        changesets=int(there.metadata["changesets"]),
                        made=datetime.fromisoformat(there.metadata["made"]),
                    )
                except (KeyError, ValueError):
                    continue
                if sha256.startswith(key.digest):
                    found.append((store, key, entry))
        return found


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


def _path(name: str) -> str:
    """The path of a repository, from `_file_name`."""
    return name.replace("+", "/")


def file_name(repository: str) -> str:
    """A name for a repository that is no path; '+' occurs in no repository's path."""
    return repository.replace("/", "+")


def _remove(folder: Path) -> None:
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
