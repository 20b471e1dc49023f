"""A primary with its bundle jobs, two stores, two caches, and clients: for a model of identities.

The registry, the files of identity, manifests and the scratch folder are files; withdrawal and the
decisions about access, uploads, publication and pruning are the service's own. Stores and clock are
simple: a store is a dictionary, and the content of an object is the set of its changesets.
"""

from __future__ import annotations

import io
import shutil
from collections import Counter
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final, Self

import yaml

from hgfleet.bundles.decide import advertised, names
from hgfleet.bundles.decide.manifest import Entry, Manifests
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.decide.plan import Refresh, order
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.steps.job import Options, Outcome
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core import identity as identities
from hgfleet.core.report import Report
from hgfleet.objectstore.bucket import CACHE_SECONDS, StoredObject
from hgfleet.objectstore.settings import Store
from hgfleet.registry.dynamic.effective import EffectiveRegistry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.permissions import may_read
from testing.support.identity_world import CLOSED, OPEN, STAFF, STATIC, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from hgfleet.bundles.stores.stores import StoreListing
    from hgfleet.registry.model.registry import Repository

    Content = frozenset[int]
    Moment = tuple[str, int]
    """A step of a run, and how often it was there."""

STORES: Final = (
    Store("open", "https://s3.example", "open", OPEN),
    Store("closed", "https://s3.example", "closed", CLOSED, private=True),
)
MOMENTS: Final = (
    *("known", "list", "begun", "read", "made", "uploaded", "verified", "delete", "deleted"),
)
"""Steps of a run between which the world goes on."""

PURGE: Final = ("purge",)

_DEFAULTS: Final = Path(__file__).parents[3] / "ansible/roles/cdn/defaults/main.yml"
REVALIDATE_S: Final = yaml.safe_load(_DEFAULTS.read_text("utf-8"))["cdn_revalidate_seconds"]


class KilledError(BaseException):
    """The run of the bundle jobs ended at this moment."""


class Serial:
    """A ThreadPoolExecutor that runs its tasks in sequence, each time in the same order."""

    def __init__(self, *_: object) -> None:
        pass

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def shutdown(self, **_: object) -> None:
        """Do nothing."""

    def map(self, work: Callable[[Any], Any], items: Iterable[Any]) -> Iterator[Any]:
        """Do the work for each."""
        return iter([work(item) for item in items])


@dataclass
class Cache:
    """A cache in front of the open store, which asks again for copies of that age (seconds)."""

    bucket: Bucket
    age: float
    copies: dict[str, tuple[Content, float]] = field(default_factory=dict)

    def get(self, key: str, now: float) -> Content | None:
        """Answer a client."""
        copy = self.copies.get(key)
        if copy is not None and now - copy[1] < self.age:
            return copy[0]
        self.copies.pop(key, None)
        content = self.bucket.contents.get(key)
        if content is not None:
            self.copies[key] = content, now
        return content


@dataclass
class Bucket:
    """A store; each request of the run is a moment at which the world may change."""

    site: Site
    is_open: bool
    contents: dict[str, Content] = field(default_factory=dict)
    modified: dict[str, datetime] = field(default_factory=dict)

    def upload(self, key: str, path: Any, _digest: str, _metadata: Mapping[str, str]) -> bool:
        """Take an object, whose content stands for its file."""
        # The run has just asked whether it may.
        self.site.require_public_where_open(self.is_open, path)
        is_new = key not in self.contents
        self.contents[key] = path
        self.modified[key] = self.site.date
        self.site.moment("uploaded")
        return is_new

    def delete(self, key: str) -> None:
        """Delete an object."""
        self.site.moment("delete")
        self.contents.pop(key, None)
        self.site.moment("deleted")

    def objects(self, prefix: str = "") -> list[StoredObject]:
        """List the objects."""
        self.site.moment("list")
        keys = sorted(key for key in self.contents if key.startswith(prefix))
        return [StoredObject(key, 10, self.modified[key]) for key in keys]

    def uploads(self, _prefix: str = "") -> list[Any]:
        """List unfinished uploads."""
        return []

    def put_page(self, *_: object) -> None:
        """Take a page."""


class CheckedManifests(Manifests):
    """Manifests that no line is added to which clients must not have at that moment."""

    site: Site

    def publish(self, name: str, entries: Any, now: datetime) -> bool:
        """Replace a manifest."""
        before = self.read(name)
        for entry in entries:
            if entry not in before:
                self.site.require_of_its_readers(entry)
        return super().publish(name, entries, now)


class Site(World):
    """The primary on a disk, and all around its bundle jobs."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.config = Config(
            stores=STORES,
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            registry=root / "registry.json",
            dynamic=root / "dynamic/registry.json",
            repositories=root / "repos",
            manifests=root / "manifests",
            pull_bundles=root / "pull",
            scratch=root / "scratch",
            scratch_ram=root / "none",
            state=root / "state",
            purge_command=PURGE,
        )
        for folder in ("dynamic", "repos", "manifests", "pull", "scratch", "state"):
            (root / folder).mkdir()
        self.config.registry.write_text(dump_compiled(STATIC))
        self.files = EffectiveRegistry(self.config.registry, self.config.dynamic)
        self.on_disk: dict[str, str] = {}
        self.changesets: dict[str, list[int]] = {}
        self.origin: dict[int, str] = {}
        """Identity of each changeset."""
        self.stripped: dict[str, tuple[set[int], datetime]] = {}
        """Changesets that were removed, and when the last of them was."""
        self.open, self.closed = Bucket(self, is_open=True), Bucket(self, is_open=False)
        self.cdn, self.rented = Cache(self.open, REVALIDATE_S), Cache(self.open, CACHE_SECONDS)
        self.urls: set[str] = set()
        """Keys in the open store that some client was sent to."""
        self.meanwhile: dict[Moment, Callable[[], None]] = {}
        self.kill_at: Moment | None = None
        self.moments: Counter[str] = Counter()
        self.at_work = ""
        """Path of the repository that a run works on."""
        super().__init__()

    @property
    def date(self) -> datetime:
        """The present time."""
        return datetime.fromtimestamp(self.now, UTC)

    def write(self) -> None:
        """Bring the disk in line."""
        for path, identity in list(self.on_disk.items()):
            if path not in self.folders or self.folders[path].identity != identity:
                shutil.rmtree(self.config.repositories / path)
                del self.on_disk[path]
        for path, folder in self.folders.items():
            if path not in self.on_disk:
                file = self.config.repositories / path / identities.FILE
                file.parent.mkdir(parents=True)
                file.write_text(identities.text(folder.identity))
                self.on_disk[path] = folder.identity
        new = self.config.dynamic.with_suffix(".new")
        new.write_bytes(self.registry)
        new.rename(self.config.dynamic)

    def change(self, do: Any) -> None:
        """Change the registry."""
        super().change(do)
        self.write()

    def push(self, path: str) -> None:
        """Push a changeset."""
        super().push(path)
        own = self.folders[path].identity
        self.origin[len(self.origin)] = own
        self.changesets.setdefault(own, []).append(len(self.origin) - 1)

    def strip(self, path: str) -> None:
        """Remove the last changeset."""
        own = self.folders[path].identity
        if nodes := self.changesets.get(own):
            self.now += 1
            removed = self.stripped.get(own, (set(), self.date))[0]
            self.stripped[own] = removed | {nodes.pop()}, self.date
            self.now += 1

    def publish(self, path: str) -> None:
        """Leave publication to the jobs."""

    def withdraw(self) -> None:
        """Leave withdrawal to the jobs."""

    # --- the truth ---

    def path_of(self, identity: str) -> str | None:
        """Return the path of a repository in service."""
        return next((p for p in self.in_service() if self.folders[p].identity == identity), None)

    def is_public(self, identity: str) -> bool:
        """Whether strangers may read a repository."""
        path = self.path_of(identity)
        return path is not None and self.may("stranger", path)

    def require_public_where_open(self, is_open: bool, content: Content) -> None:
        """Check an object that comes into a store."""
        if is_open:
            assert all(self.is_public(self.origin[node]) for node in content)

    def require_of_its_readers(self, entry: Entry) -> None:
        """Check a line that clients will get."""
        assert self.path_of(entry.identity) is not None
        assert entry.private != self.is_public(entry.identity)

    # --- clients ---

    def moment(self, name: str) -> None:
        """Let the world go on, between two steps of a run."""
        self.moments[name] += 1
        now = name, self.moments[name]
        if do := self.meanwhile.pop(now, None):
            do()
            self.ask()
        if now == self.kill_at:
            raise KilledError

    def ask(self) -> None:
        """Clone from each repository as each client, and load the URLs that strangers got."""
        registry = self.files.required().registry
        lines = [
            line
            for file in self.config.manifests.rglob("[!.]*.manifest")
            if ".history" not in file.parts
            for line in file.read_bytes().splitlines()
        ]
        for path, repository in registry.repositories.items():
            own = identities.of(self.config.repositories / path)
            is_public = advertised.readers(self.files, path, own)
            for line in advertised.choose(lines, own, is_public)[0]:
                self._load(path, own, line, repository)
        for key in self.urls:
            self.cdn.get(key, self.now)
            self.rented.get(key, self.now)

    def _load(self, path: str, own: str, line: bytes, repository: Repository) -> None:
        url = line.split()[0].decode()
        is_open = url.startswith(OPEN)
        key = url.removeprefix(OPEN).removeprefix(CLOSED).removeprefix("/")
        # URLs of the closed store are signed for readers, those in the open store are for all.
        assert is_open == self.may("stranger", path)
        if is_open:
            self.urls.add(key)
        content = (self.open if is_open else self.closed).contents.get(key, frozenset())
        for asker, person in (("stranger", None), ("staff", STAFF)):
            if may_read(repository, person):
                assert self.may(asker, path)
                assert {self.origin[node] for node in content} <= {own}

    # --- the jobs ---

    def run(self, *, only_withdraw: bool) -> None:
        """Run the bundle jobs over everything. Raises KilledError."""
        pipeline = Pipeline(
            self.config,
            Report("events", io.StringIO()),
            {"open": self.open, "closed": self.closed},  # type: ignore[dict-item]
            Options(now=self.date),
        )
        job: Any = pipeline.job
        job.stores.reader = SimpleNamespace(
            check_closed=lambda _url: None,
            check_signed=lambda _url: None,
            problem=lambda entry: "" if self._is_there(entry) else "it is missing",
        )
        job.removal = lambda repository: self.stripped.get(repository.identity, (0, None))[1]
        updater: Any = pipeline._updater
        updater._generator._verifier = SimpleNamespace(verify=lambda *_: None)
        self.moments.clear()
        served, archived = pipeline.known()
        everything = [*served.repositories.values(), *archived]
        self.moment("known")
        if only_withdraw:
            outcomes = pipeline.withdraw(everything, everything=True)
        else:
            outcomes = pipeline._purged(
                pipeline._for_each(everything, self._work(pipeline), True, withdraws=True)
            )
        assert not [outcome for outcome in outcomes if outcome.error], outcomes

    def _is_there(self, entry: Entry) -> bool:
        key = entry.url.removeprefix(OPEN).removeprefix(CLOSED).removeprefix("/")
        return key in (self.closed if entry.private else self.open).contents

    def _work(self, pipeline: Pipeline) -> Callable[..., Outcome]:
        """Return the steps of `Updater.update`, without hg."""
        job, published = pipeline.job, pipeline._published
        generator: Any = pipeline._updater._generator

        def update(repository: Repository, listing: Mapping[str, StoreListing]) -> Outcome:
            self.at_work = repository.path
            if dead := published.dead(repository, listing):
                job.publisher.withdraw(repository, dead)
            stores = job.stores.of(repository)
            begun = self.date
            self.moment("begun")
            # hg reads the repository at the path; the answer to the question after that counts.
            lying = identities.of(job.source(repository))
            content = frozenset(self.changesets.get(lying, ()))
            self.moment("read")
            if not (repository.bundles and content):
                job.publisher.publish(repository, ())
                published.prune(repository, listing)
                return Outcome(repository.path)
            job.access.check(repository)
            entries = job.manifests.read(names.of(repository))
            key, entry = self._named(repository, content, begun)
            self.moment("made")
            if not any(str(key) in listed.url for listed in entries):
                work = SimpleNamespace(repository=repository)
                made = {}
                for store in stores.up:
                    made[store] = generator._bring(work, store, key, entry, content)
                    # The run has asked again since the upload.
                    self.require_public_where_open(store == "open", content)
                self.moment("verified")
                job.publisher.publish(
                    repository, order(("zstd",), list(stores.urls), {"zstd": made})
                )
            published.prune(repository, listing)
            return Outcome(repository.path)

        return update

    def _named(self, repository: Repository, content: Content, begun: datetime) -> Any:
        digest = sha256(repr(sorted(content)).encode()).hexdigest()
        key = make_key(repository.identity, f"{max(content):040x}", digest, "zstd")
        entry = Entry(
            *("", "zstd-v2", digest, 10, len(content), begun), identity=repository.identity
        )
        return key, entry

    def purge(self, urls: str) -> None:
        """Have the rented CDN forget objects: the command of the site."""
        for url in urls.split():
            self.rented.copies.pop(url.removeprefix(OPEN).removeprefix("/"), None)

    # --- after a whole run ---

    def require_rest(self, *, after_all: bool) -> None:
        """Check that nothing is left that strangers must not have."""
        manifests = Manifests(self.config.manifests)
        for name in manifests.all():
            for entry in manifests.read(name):
                self.require_of_its_readers(entry)
        self.ask()
        # A rented cache was told to forget; the caches of the site ask again after a time.
        for key in self.urls:
            self._require_public(self.rented.get(key, self.now))
        self.now += REVALIDATE_S + 1
        for key in self.urls:
            self._require_public(self.cdn.get(key, self.now))
        if after_all:
            for content in self.open.contents.values():
                self._require_public(content)
            for content in self.closed.contents.values():
                self._require_kept(content)

    def _require_public(self, content: Content | None) -> None:
        for node in content or ():
            assert self.is_public(self.origin[node])
        self._require_kept(content or frozenset())

    def _require_kept(self, content: Content) -> None:
        for node in content:
            assert node not in self.stripped.get(self.origin[node], (set(), None))[0]
