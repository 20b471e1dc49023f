"""A host with bundle jobs, and the stores that they bring bundles to."""

from __future__ import annotations

import atexit
import functools
import os
import shutil
import tempfile
from datetime import timedelta
from io import StringIO
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

from hgfleet.bundles.decide.manifest import Entry, Manifests, locate
from hgfleet.bundles.decide.plan import Refresh
from hgfleet.bundles.decide.settings import Config
from hgfleet.bundles.steps.job import Options, Outcome
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core.report import Report
from hgfleet.objectstore import settings
from hgfleet.registry.model.registry import Repository
from testing.integration.support import site
from testing.integration.support.store import NOW, Store

if TYPE_CHECKING:
    from datetime import datetime

    from hgfleet.objectstore.bucket import Bucket

HGRC: Final = f"""\
[extensions]
clonebundles =
bundle_verify = {site.HGEXT}/bundle_verify.py
[ui]
username = t
"""

# No TLS here; any certificate will do.
CERTIFICATES: Final = Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt"))


class BundleSite(site.Site):
    """A host with repositories and stores; `store` is the first of them."""

    def __init__(self, root: Path, *stores: Store) -> None:
        super().__init__(root, HGRC)
        self.store, self.stores = stores[0], stores
        self.paths: dict[str, str] = {}
        self.config = Config(
            stores=tuple(
                settings.Store(
                    store.name,
                    "http://unused",
                    "bundles",
                    store.url,
                    private=store.reader is not None,
                )
                for store in stores
            ),
            signing=root / "signing.toml",
            refresh=Refresh(share=0.01, age=timedelta(days=7)),
            retention=timedelta(days=7),
            repositories=self.repos,
            manifests=root / "manifests",
            pull_bundles=root / "pullbundles",
            registry=self.registry,
            dynamic=self.dynamic,
            scratch=root / "scratch",
            state=root / "state",
            findings=root / "health.objects",
            hg=site.program(),
            hgrc=self.hgrc,
            ca=CERTIFICATES,
        )
        self.config.scratch.mkdir()
        self.config.state.mkdir()
        self.manifests = Manifests(self.config.manifests)
        self.said = StringIO()

    def repository(
        self, path: str, *, kinds: tuple[str, ...] = ("zstd",), commits: int = 2
    ) -> Repository:
        """Make a public repository of the inventory with so many changesets."""
        made = Repository(path, "", "public", (), True, kinds, identity=self.make(path, commits))
        self.enter(made)
        return made

    def make(self, path: str, commits: int = 2, known_as: str = "") -> str:
        """Make a repository with so many changesets, only on disk; return its identity."""
        shutil.copytree(history(commits), self.path(path))
        self.paths[identity := self.identify(path, known_as)] = path
        return identity

    def change(self, path: str, *options: str) -> str:
        """Commit another line to the only file; return the new node."""
        return add_line(self, path, *options)

    def run(self, *repositories: Repository, now: datetime = NOW, **more: Any) -> list[Outcome]:
        """Run the jobs for these repositories, as the registry has them from now on."""
        known = [repository for repository in repositories if repository.path in self.entered]
        if known:
            self.enter(*known)
        everything = more.pop("everything", False)
        return self.pipeline(now, **more).run(repositories, everything=everything)

    def pipeline(self, now: datetime = NOW, **more: Any) -> Pipeline:
        """Return a run at this moment; `said` has its report."""
        for store in self.stores:
            store.clock = now
        buckets = {store.name: cast("Bucket", store) for store in self.stores}
        self.said = StringIO()
        return Pipeline(self.config, Report("text", self.said), buckets, Options(now=now, **more))

    def published(self, path: str) -> tuple[Entry, ...]:
        """Return the entries of the manifest of the first repository at a path."""
        return self.manifests.read(site.identity_of(path))

    def kinds_and_stores(self, path: str) -> list[tuple[str, str]]:
        """Return the kind and the store of each published entry, in the order of the manifest."""
        urls = {store.name: store.url for store in self.stores}
        places = [locate(entry, urls) for entry in self.published(path)]
        return [(place[1].kind, place[0]) for place in places if place]

    def bundles(self) -> list[list[str]]:
        """Return the repositories of the bundles in each store."""
        return [self.in_store(store) for store in self.stores]

    def in_store(self, store: Store) -> list[str]:
        """Return the repositories of the bundles in a store, by the path that each had first."""
        names = [key.rpartition("/")[0] for key in store.content if key.endswith(".hg")]
        return [self.paths.get(name, name) for name in names]


def add_line(host: site.Site, path: str, *options: str) -> str:
    """Commit another line to the only file of a repository."""
    file = host.path(path) / "file"
    content = file.read_text() if file.exists() else ""
    return host.commit(path, "file", f"{content}line\n", *options)


@functools.cache
def history(commits: int) -> Path:
    """Return a repository with so many changesets, to be copied."""
    folder = tempfile.TemporaryDirectory(prefix="history-")
    atexit.register(folder.cleanup)
    host = site.Site(Path(folder.name), HGRC)
    host.create("template")
    for _ in range(commits):
        add_line(host, "template")
    return host.path("template")
