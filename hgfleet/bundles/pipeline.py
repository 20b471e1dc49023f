"""The steps in their order, for one repository and for all of them.

Each step leaves something that the next run finds as it is or makes again, so a run may be killed
anywhere: an object nobody names, an interrupted snapshot, a superfluous copy of a manifest.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
import traceback
from collections import defaultdict
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet import dynamic
from hgfleet.bundles import repository as hg_side
from hgfleet.bundles.kinds import Key, make_key, parse_key
from hgfleet.bundles.known import Known
from hgfleet.bundles.manifest import Entry, Manifests, object_url, render
from hgfleet.bundles.plan import Action, Plan, State, plan
from hgfleet.bundles.prune import StoredObject, prunable
from hgfleet.bundles.report import size
from hgfleet.bundles.store import MismatchError
from hgfleet.bundles.verify import Reader, VerificationError
from hgfleet.errors import HgfleetError, HostError, RegistryError, TemporaryError
from hgfleet.registry import load_compiled
from hgfleet.web import state as files

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.config import Config
    from hgfleet.bundles.report import Report
    from hgfleet.bundles.store import Bucket, Upload
    from hgfleet.registry import Registry, Repository


@dataclass(frozen=True, slots=True)
class Outcome:
    """How one repository ended; `error` is None unless something failed."""

    repository: str
    plan: Plan | None = None
    error: HgfleetError | None = None


@dataclass(frozen=True, slots=True)
class Stock:
    """What the bucket holds for one repository, as listed when the run began."""

    objects: tuple[StoredObject, ...] = ()
    uploads: tuple[Upload, ...] = ()


@dataclass(frozen=True)
class Pipeline:
    """One run. `bucket` is None for what needs no credentials (`plan`, `status`, `verify`)."""

    config: Config
    report: Report
    bucket: Bucket | None = None
    force: bool = False
    dry_run: bool = False
    now: datetime = field(default_factory=lambda: datetime.now(UTC))

    @property
    def hg(self) -> hg_side.Hg:
        """How to run hg."""
        return hg_side.Hg(self.config.hg, self.config.hgrc)

    @property
    def manifests(self) -> Manifests:
        """The folder of manifests."""
        return Manifests(self.config.manifests)

    @property
    def reader(self) -> Reader:
        """The store as everybody sees it."""
        return Reader(self.config.ca, self.config.timeout)

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
            return static, []
        return dynamic.merged(static, entries), dynamic.withdrawn(static, entries)

    # -- all repositories ------------------------------------------------------------------------

    def run(self, repositories: Sequence[Repository]) -> list[Outcome]:
        """Bring the bundles of these repositories up to date.

        Raises UnavailableError, having changed nothing, if the store does not even list its
        objects. Whatever else fails is in the outcome of its repository.
        """
        self.check_scratch()
        stock = self._stock(repositories)
        with ThreadPoolExecutor(self.config.jobs, "bundles") as pool:
            try:
                return list(pool.map(lambda one: self._guarded(one, stock), repositories))
            except BaseException:
                pool.shutdown(cancel_futures=True)
                raise

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

    def _stock(self, repositories: Sequence[Repository]) -> Mapping[str, Stock]:
        """List the bucket: whole in a few requests, or the part of the one repository."""
        if self.bucket is None:
            return {}
        prefix = f"{repositories[0].path}/" if len(repositories) == 1 else ""
        objects: dict[str, list[StoredObject]] = defaultdict(list)
        uploads: dict[str, list[Upload]] = defaultdict(list)
        for item in self.bucket.objects(prefix):
            if key := parse_key(item.key):
                objects[key.repository].append(item)
        for upload in self.bucket.uploads(prefix):
            if key := parse_key(upload.key):
                uploads[key.repository].append(upload)
        return {
            path: Stock(tuple(objects[path]), tuple(uploads[path])) for path in {*objects, *uploads}
        }

    def _guarded(self, repository: Repository, stock: Mapping[str, Stock]) -> Outcome:
        started = time.monotonic()
        try:
            with self._locked(repository) as work:
                if work is None:
                    self.report.step("busy", repository.path, "another run is at work on it")
                    return Outcome(repository.path)
                return self._one(repository, stock.get(repository.path, Stock()), work)
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
    def _locked(self, repository: Repository) -> Iterator[Path | None]:
        """Hold the repository's lock and give an empty folder; None if another run holds it.

        The kernel frees the lock of a killed run.
        """
        name = _file_name(repository.path)
        locks, work = self.config.scratch / "locks", self.config.scratch / "work" / name
        locks.mkdir(parents=True, exist_ok=True)
        with (locks / name).open("w") as file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield None
                return
            # What a killed run left.
            _remove(work)
            work.mkdir(parents=True)
            try:
                yield work
            finally:
                _remove(work)

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
        public_url = self.config.store.public_url
        state = State()
        if repository.is_public and repository.bundles:
            keys = [entry.key(public_url) for entry in published]
            tips = {key.tip for key in keys if key is not None}
            state = self._look(repository, tips, remember)
        decision = plan(
            repository,
            state,
            published,
            public_url=public_url,
            refresh=self.config.refresh,
            now=self.now,
            dead=dead,
            foreign=render(published) != self.manifests.read_text(repository.path),
            force=self.force,
        )
        return decision, state

    def _look(self, repository: Repository, tips: set[str], remember: bool) -> State:
        """Ask hg, unless nothing has changed since it was asked the same."""
        known, name = Known(self.config.scratch / "known"), _file_name(repository.path)
        source = self.source(repository)
        seen = files.read_repository(files.paths(source / ".hg"))
        state = known.recall(name, seen, tips)
        if state is None:
            state = hg_side.look(self.hg, source, tips)
            if remember:
                known.remember(name, seen, tips, state)
        return state

    def _one(self, repository: Repository, stock: Stock, work: Path) -> Outcome:
        dead = self._dead(repository, stock)
        decision, state = self.plan(repository, dead=dead, remember=not self.dry_run)
        self.report.step(
            "plan",
            repository.path,
            f"{decision.action.value}: {'; '.join(decision.reasons)}",
            action=decision.action.value,
            reason="; ".join(decision.reasons),
        )
        if not self.dry_run:
            if dead:
                self._withdraw(repository, dead)
            self._carry_out(repository, decision, state, work)
        if decision.action is not Action.SKIP:
            self._prune(repository, stock)
        return Outcome(repository.path, decision)

    def _dead(self, repository: Repository, stock: Stock) -> dict[str, str]:
        """Find published bundles that are gone, or not whole."""
        sizes = {item.key: item.size for item in stock.objects}
        dead = {}
        for entry in self.manifests.read(repository.path):
            key = entry.key(self.config.store.public_url)
            if key is None or sizes.get(str(key)) == entry.size:
                continue
            # The list was made when the run began; another run may have published since.
            if problem := self.reader.problem(entry):
                dead[entry.url] = problem
        return dead

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

    def _carry_out(self, repository: Repository, decision: Plan, seen: State, work: Path) -> None:
        entries = dict(decision.keep)
        match decision.action:
            case Action.KEEP | Action.SKIP:
                return
            case Action.GENERATE:
                entries |= self._make(repository, decision.build, seen, work)
            case Action.WITHDRAW:
                _remove(self.snapshot(repository))
        manifest = [entries[kind] for kind in decision.kinds]
        if self.manifests.publish(repository.path, manifest, datetime.now(UTC)):
            what = ", ".join(decision.kinds) or "no bundles"
            self.report.step(
                "published", repository.path, f"published: {what}", kinds=",".join(decision.kinds)
            )

    def snapshot(self, repository: Repository) -> Path:
        """Where the snapshot of a repository lies."""
        return self.config.scratch / "snapshots" / _file_name(repository.path)

    def _refresh_snapshot(self, repository: Repository, seen: State, work: Path) -> State:
        started = time.monotonic()
        state = hg_side.refresh_snapshot(
            self.hg, self.source(repository), seen, self.snapshot(repository), work
        )
        took = time.monotonic() - started
        self.report.step(
            "snapshot",
            repository.path,
            f"snapshot of {state.changesets:,} changesets in {took:.1f} s",
            changesets=state.changesets,
            tip=state.tip,
            duration_s=took,
        )
        return state

    def _make(
        self, repository: Repository, kinds: Sequence[str], seen: State, work: Path
    ) -> dict[str, Entry]:
        """Generate, upload and verify bundles of these kinds; return their manifest entries."""
        state = self._refresh_snapshot(repository, seen, work)
        entries = {}
        for kind in kinds:
            key, entry = self._generate_and_upload(repository, state, kind, work)
            try:
                self._verify(repository, entry, kind, state, work)
            except VerificationError as error:
                self._discard(repository, key, str(error))
                raise
            entries[kind] = entry
        return entries

    def _generate_and_upload(
        self, repository: Repository, state: State, kind: str, work: Path
    ) -> tuple[Key, Entry]:
        assert self.bucket is not None
        started = time.monotonic()
        bundle = hg_side.generate(
            self.hg, self.snapshot(repository), kind, work, self.config.zstd_level
        )
        made = datetime.now(UTC).replace(microsecond=0)
        took = time.monotonic() - started
        self.report.step(
            "generated",
            repository.path,
            f"{kind}: {size(bundle.size)} in {took:.1f} s",
            kind=kind,
            size_bytes=bundle.size,
            duration_s=took,
        )
        key = make_key(repository.path, state.tip, bundle.sha256, kind)
        started = time.monotonic()
        metadata = {"bundlespec": bundle.bundlespec, "changesets": str(state.changesets)}
        try:
            created = self.bucket.upload(str(key), bundle.path, bundle.sha256, metadata)
        except MismatchError as error:
            self._discard(repository, key, str(error))
            created = self.bucket.upload(str(key), bundle.path, bundle.sha256, metadata)
        bundle.path.unlink()
        took = time.monotonic() - started
        self.report.step(
            "uploaded" if created else "present",
            repository.path,
            f"{kind}: {'uploaded' if created else 'already there'} as {key} in {took:.1f} s",
            kind=kind,
            key=key,
            size_bytes=bundle.size,
            duration_s=took,
        )
        return key, Entry(
            url=object_url(self.config.store.public_url, key),
            bundlespec=bundle.bundlespec,
            sha256=bundle.sha256,
            size=bundle.size,
            changesets=state.changesets,
            made=made,
        )

    def _discard(self, repository: Repository, key: Key, problem: str) -> None:
        """Delete an object that is not what its name says, after nobody is sent to it any more.

        Left there, it would be "already there" in every later run.
        """
        assert self.bucket is not None
        self._withdraw(repository, {object_url(self.config.store.public_url, key): problem})
        self.bucket.delete(str(key))

    def _verify(
        self, repository: Repository, entry: Entry, kind: str, state: State, work: Path
    ) -> None:
        """Download, compare, and make a real clone; raises what is wrong."""
        started = time.monotonic()
        self.reader.check(entry)
        clone = work / f"{kind}-clone"
        try:
            heads = hg_side.clone_through(self.hg, self.snapshot(repository), entry.line(), clone)
        finally:
            _remove(clone)
        if heads != state.heads:
            raise VerificationError(
                f"{entry.url}: a clone through it has {len(heads)} heads that are not the "
                f"{len(state.heads)} of the repository"
            )
        took = time.monotonic() - started
        self.report.step(
            "verified",
            repository.path,
            f"{kind}: verified by a clone from {entry.url} in {took:.1f} s",
            kind=kind,
            url=entry.url,
            duration_s=took,
        )

    def _prune(self, repository: Repository, stock: Stock) -> None:
        """Delete what no manifest of the retention time names. Only called when all went well."""
        if self.bucket is None:
            return
        before = self.now - self.config.retention
        public_url = self.config.store.public_url
        named = [*self.manifests.read(repository.path)]
        if repository.is_public:
            named += self.manifests.recent(repository.path, before)
        else:
            # Anybody who knows a URL could still read what is to be private now.
            before = self.now
        keys = {str(entry.key(public_url)) for entry in named}
        for item in prunable(repository.path, stock.objects, keys, before):
            if not self.dry_run:
                self.bucket.delete(item.key)
            self.report.step(
                "pruned",
                repository.path,
                f"{'would delete' if self.dry_run else 'deleted'} {item.key} ({size(item.size)})",
                key=item.key,
                size_bytes=item.size,
                dry_run=self.dry_run,
            )
        if self.dry_run:
            return
        for upload in stock.uploads:
            if upload.begun < before:
                self.bucket.abort(upload)
                self.report.step(
                    "aborted",
                    repository.path,
                    f"deleted the unfinished upload of {upload.key}",
                    key=upload.key,
                )
        self.manifests.forget(repository.path, before)

    # -- what is published -----------------------------------------------------------------------

    def verify(self, repository: Repository) -> Outcome:
        """Verify every published bundle again, as before its publication; changes nothing."""
        started = time.monotonic()
        try:
            with self._locked(repository) as work:
                if work is None:
                    raise TemporaryError("another run is at work on it")
                published = self.manifests.read(repository.path)
                if not published:
                    self.report.step("unpublished", repository.path, "no bundles are published")
                    return Outcome(repository.path)
                seen = hg_side.look(self.hg, self.source(repository))
                state = self._refresh_snapshot(repository, seen, work)
                for entry in published:
                    key = entry.key(self.config.store.public_url)
                    kind = key.kind if key else "other"
                    self._verify(repository, entry, kind, state, work)
        except Exception as problem:
            return self._failed(repository, problem, time.monotonic() - started)
        return Outcome(repository.path)


def _file_name(repository: str) -> str:
    """A name for a repository that is no path; '+' occurs in no repository's path."""
    return repository.replace("/", "+")


def _remove(folder: Path) -> None:
    if folder.exists():
        shutil.rmtree(folder)
