"""Settings of the bundle jobs: `/etc/hgfleet/bundles.toml`, a file without secrets."""

from __future__ import annotations

import fnmatch
import re
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.plan import Refresh
from hgfleet.bundles.decide.pullbundle_chain import Limits
from hgfleet.core import paths
from hgfleet.core.settings_file import read
from hgfleet.objectstore.presign import DEFAULT_PATH as SIGNING
from hgfleet.objectstore.settings import Store

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/bundles.toml")

_PULL: Final = Limits()
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class Config:
    """Settings of a run; the defaults are the paths of a host.

    `stores` are in the order in which a manifest names them. `ca` is a file of PEM certificates
    that verifies the endpoint and the public URL of a store. `signing` has the keys that private
    stores are read with. `timeout_seconds` bounds each wait for a store.

    `zstd_level` is a level of the zstd library, 1 to 22, for repositories that match no pattern of
    `zstd_levels`. Pull bundles are in the folder `pull_bundles`; `pull` says which repositories get
    them.

    `jobs` processes of hg work at the same time, and `memory_bytes` bounds the sum of their
    estimates. A run may use `scratch_ram_bytes` of the folder `scratch_ram`, where that exists.

    A run over all repositories leaves its figures in the folder `state` (`bundles.record`).

    `digest_only` has patterns of large repositories: their bundles are downloaded and compared, but
    not cloned. `hg verify` checks a clone of each other repository every `verify_age`. Every
    published bundle is read and compared every `read_age`. Zero switches a check off.

    `purge_command` gets the URLs of objects that a CDN must forget (`bundles.purging`).

    `findings` has what the prober of this host (the role `steering`) found about objects: a run
    reads those that are dead there.

    `access_log` is that of the web part, `session_log` that of SSH sessions
    (hgext/getbundlelog.py). The page of all bundles has the heading `title`, and commands with
    `clone_url` in front of a repository's path; without it, no commands.
    """

    stores: tuple[Store, ...]
    refresh: Refresh
    retention: timedelta
    registry: Path = Path(paths.COMPILED)
    dynamic: Path = Path(paths.DYNAMIC)
    repositories: Path = Path(paths.REPOSITORIES)
    manifests: Path = Path(paths.MANIFESTS)
    pull: Limits = _PULL
    pull_bundles: Path = Path(paths.PULL_BUNDLES)
    scratch: Path = Path("/var/cache/hgfleet/bundles")
    state: Path = Path("/var/lib/hgfleet-bundles")
    hg: Path = Path(paths.HG)
    hgrc: Path = Path("/etc/hgfleet/bundles.hgrc")
    ca: Path = Path(paths.CA_CERTIFICATES)
    signing: Path = SIGNING
    scratch_ram: Path = Path("/run/hgfleet-bundles")
    scratch_ram_bytes: int = 0
    jobs: int = 1
    memory_bytes: int = 2 * 1024**3
    digest_only: tuple[str, ...] = ()
    verify_age: timedelta = timedelta(days=30)
    read_age: timedelta = timedelta(days=7)
    zstd_level: int = 10
    zstd_levels: tuple[tuple[str, int], ...] = ()
    timeout_seconds: float = 30.0
    access_log: Path = Path("/var/log/hgfleet/web/access.log")
    session_log: Path = Path("/var/log/hgfleet/ssh/changesets.log")
    findings: Path = Path("/run/hgfleet-steering/health.objects")
    purge_command: tuple[str, ...] = ()
    clone_url: str = ""
    title: str = "Clone bundles"

    @property
    def public_urls(self) -> dict[str, str]:
        """Public URLs by the name of the store, in the order of a manifest."""
        return {store.name: store.public_url for store in self.stores}

    def is_large(self, repository: str) -> bool:
        """Whether a repository is large: its bundles are verified by digest, without a clone."""
        return any(fnmatch.fnmatchcase(repository, pattern) for pattern in self.digest_only)

    def zstd_level_of(self, repository: str) -> int:
        """Return the zstd level of the first pattern that matches the path of a repository."""
        return next(
            (
                level
                for pattern, level in self.zstd_levels
                if fnmatch.fnmatchcase(repository, pattern)
            ),
            self.zstd_level,
        )


def load(path: Path) -> Config:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(
        path,
        parse,
        "the settings of the bundle jobs",
        "the role `bundles` writes them, --config names another file",
    )


def parse(table: Table) -> Config:
    """Take the settings out of the parsed file."""
    refresh, pull = table.table("refresh"), table.table("pull")
    return Config(
        stores=_stores(table),
        refresh=Refresh(
            share=refresh.number("share", 0.01, least=0, most=1),
            age=_days(refresh, "age_days", 7),
            seconds=refresh.seconds("demand_seconds", 60, least=0, most=86400),
        ),
        retention=_days(table, "retention_days", 7),
        registry=table.file("registry", paths.COMPILED),
        dynamic=table.file("dynamic", paths.DYNAMIC),
        repositories=table.file("repositories", paths.REPOSITORIES),
        manifests=table.file("manifests", paths.MANIFESTS),
        pull=Limits(
            enabled=pull.flag("enabled", _PULL.enabled),
            least=pull.integer("least", _PULL.least, least=1, most=2**31),
            step=pull.integer("step", _PULL.step, least=1, most=2**31),
            whole=pull.flag("whole", _PULL.whole),
        ),
        pull_bundles=table.file("pull_bundles", paths.PULL_BUNDLES),
        scratch=table.file("scratch", Config.scratch),
        state=table.file("state", Config.state),
        hg=table.file("hg", paths.HG),
        hgrc=table.file("hgrc", Config.hgrc),
        ca=table.file("ca", paths.CA_CERTIFICATES),
        signing=table.file("signing", SIGNING),
        scratch_ram=table.file("scratch_ram", Config.scratch_ram),
        scratch_ram_bytes=table.size("scratch_ram_size", 0),
        jobs=table.integer("jobs", Config.jobs, least=1, most=64),
        memory_bytes=table.size("memory", Config.memory_bytes, least=1),
        digest_only=table.texts("digest_only", (), expected='a list of patterns like ["team/*"]'),
        verify_age=_days(table, "verify_days", 30),
        read_age=_days(table, "read_days", 7),
        zstd_level=table.integer("zstd_level", Config.zstd_level, least=1, most=22),
        zstd_levels=_zstd_levels(table.table("zstd_levels")),
        access_log=table.file("access_log", Config.access_log),
        session_log=table.file("session_log", Config.session_log),
        findings=table.file("findings", Config.findings),
        purge_command=table.texts("purge_command", (), expected="a command and its arguments"),
        clone_url=table.optional_url("clone_url"),
        title=table.text("title", Config.title),
        timeout_seconds=table.seconds("timeout", Config.timeout_seconds, least=1, most=3600),
    )


def _days(table: Table, name: str, default: float) -> timedelta:
    return timedelta(days=table.number(name, default, least=0, most=3650, unit="days"))


def _zstd_levels(table: Table) -> tuple[tuple[str, int], ...]:
    """Take the levels by pattern of paths, in the order of the file: the first match holds."""
    return tuple((pattern, table.integer(pattern, least=1, most=22)) for pattern in table.names())


def _stores(table: Table) -> tuple[Store, ...]:
    stores: list[Store] = []
    for each in table.tables("store", least=1):
        store = _store(each)
        if not _NAME.fullmatch(store.name) or store.name in {other.name for other in stores}:
            raise each.error("name", store.name, "a name of a-z 0-9 - that no other store has")
        for other in stores:
            if _is_within(store.public_url, other.public_url):
                raise each.error("public_url", store.public_url, "a URL in no other store's")
        stores.append(store)
    return tuple(stores)


def _store(table: Table) -> Store:
    region = table.text("region", Store.region)
    return Store(
        name=table.text("name"),
        endpoint=table.url("endpoint"),
        bucket=table.text("bucket"),
        public_url=table.url("public_url"),
        region=region,
        location=table.text("location", region),
        private=table.flag("private", default=False),
    )


def _is_within(url: str, other: str) -> bool:
    """Whether two URLs are the same, or either is below the other."""
    return f"{url}/".startswith(f"{other}/") or f"{other}/".startswith(f"{url}/")
