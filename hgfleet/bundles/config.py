"""Settings of the bundle jobs: `/etc/hgfleet/bundles.toml`, a file without secrets."""

from __future__ import annotations

import fnmatch
import re
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

from hgfleet.bundles.plan import Refresh
from hgfleet.bundles.pullbundle_chain import Limits
from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore.presign import DEFAULT_PATH as SIGNING
from hgfleet.objectstore.settings import Store

DEFAULT_PATH: Final = Path("/etc/hgfleet/bundles.toml")

_PULL: Final = Limits()
_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")


@dataclass(frozen=True)
class Config:
    """Everything that a run has to know; the defaults are the paths of a host.

    `stores` are in the order in which a manifest names them. `ca` is a file of PEM certificates
    that both ways to a store are verified with, `signing` one with the keys that private stores are
    read with. `zstd_level` is that of the zstd library, 1 to 22, for repositories that match no
    pattern of `zstd_levels`; `timeout` (seconds) bounds each wait for a store.

    Pull bundles lie in the folder `pull_bundles`; `pull` says what is worth one.

    `jobs` processes of hg work at the same time, and `memory` (bytes) bounds the sum of what they
    are expected to take. In the folder `scratch_ram`, if it is there, a run may use
    `scratch_ram_size` bytes.

    Bundles of repositories that match a pattern of `digest_only` are downloaded and compared, but
    not cloned: that is for giants. `hg verify` checks a clone of each other repository every
    `verify_age`, and everything that is published is read and compared every `read_age`; zero means
    never.

    `access_log` is that of the web part, `session_log` that of SSH sessions
    (hgext/getbundlelog.py). `clone_url` is what a repository's path is appended to in
    the page of all bundles, whose heading is `title`; empty: the page has no commands.
    """

    stores: tuple[Store, ...]
    refresh: Refresh
    retention: timedelta
    registry: Path = Path("/var/lib/hgfleet/registry.json")
    dynamic: Path = Path("/var/lib/hgfleet/dynamic/registry.json")
    repositories: Path = Path("/srv/hg/repos")
    manifests: Path = Path("/var/lib/hgfleet/manifests")
    pull: Limits = _PULL
    pull_bundles: Path = Path("/var/lib/hgfleet/pullbundles")
    scratch: Path = Path("/var/cache/hgfleet/bundles")
    hg: Path = Path("/opt/hgfleet/current/bin/hg")
    hgrc: Path = Path("/etc/hgfleet/bundles.hgrc")
    ca: Path = Path("/etc/ssl/certs/ca-certificates.crt")
    signing: Path = SIGNING
    scratch_ram: Path = Path("/run/hgfleet-bundles")
    scratch_ram_size: int = 0
    jobs: int = 1
    memory: int = 2 * 1024**3
    digest_only: tuple[str, ...] = ()
    verify_age: timedelta = timedelta(days=30)
    read_age: timedelta = timedelta(days=7)
    zstd_level: int = 10
    zstd_levels: tuple[tuple[str, int], ...] = ()
    timeout: float = 30.0
    access_log: Path = Path("/var/log/hgfleet/web/access.log")
    session_log: Path = Path("/var/log/hgfleet/ssh/changesets.log")
    clone_url: str = ""
    title: str = "Clone bundles"

    @property
    def public_urls(self) -> dict[str, str]:
        """Where clients read from each store, by its name, in the order of a manifest."""
        return {store.name: store.public_url for store in self.stores}

    def is_large(self, repository: str) -> bool:
        """Whether the bundles of a repository are compared, and not cloned."""
        return any(fnmatch.fnmatchcase(repository, pattern) for pattern in self.digest_only)

    def zstd_level_of(self, repository: str) -> int:
        """Return the level for a repository: that of the first pattern which matches its path."""
        return next(
            (
                level
                for pattern, level in self.zstd_levels
                if fnmatch.fnmatchcase(repository, pattern)
            ),
            self.zstd_level,
        )


def load(path: Path) -> Config:
    """Read the settings. Raises ConfigurationError that names the setting and what it should be."""
    try:
        data = tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read the settings of the bundle jobs ({error.strerror}); "
            "the role `bundles` writes them, --config names another file"
        ) from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: not TOML: {error}") from error
    return _Reader(path).config(data)


class _Reader:
    """Takes the settings out of the parsed file, one by one, and refuses what is left over."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def config(self, data: dict[str, Any]) -> Config:
        refresh, pull = self._table(data, "refresh"), self._table(data, "pull")
        config = Config(
            stores=self._stores(data),
            refresh=Refresh(
                share=self._number(refresh, "refresh.share", 0.01, 0, 1),
                age=timedelta(days=self._number(refresh, "refresh.age_days", 7, 0, 3650)),
                seconds=self._number(refresh, "refresh.demand_seconds", 60, 0, 86400),
            ),
            retention=timedelta(days=self._number(data, "retention_days", 7, 0, 3650)),
            registry=self._file(data, "registry", Config.registry),
            dynamic=self._file(data, "dynamic", Config.dynamic),
            repositories=self._file(data, "repositories", Config.repositories),
            manifests=self._file(data, "manifests", Config.manifests),
            pull=self._limits(pull),
            pull_bundles=self._file(data, "pull_bundles", Config.pull_bundles),
            scratch=self._file(data, "scratch", Config.scratch),
            hg=self._file(data, "hg", Config.hg),
            hgrc=self._file(data, "hgrc", Config.hgrc),
            ca=self._file(data, "ca", Config.ca),
            signing=self._file(data, "signing", Config.signing),
            scratch_ram=self._file(data, "scratch_ram", Config.scratch_ram),
            scratch_ram_size=int(self._number(data, "scratch_ram_size", 0, 0, 2**50)),
            jobs=int(self._number(data, "jobs", Config.jobs, 1, 64)),
            memory=int(self._number(data, "memory", Config.memory, 1, 2**50)),
            digest_only=self._patterns(data, "digest_only"),
            verify_age=timedelta(days=self._number(data, "verify_days", 30, 0, 3650)),
            read_age=timedelta(days=self._number(data, "read_days", 7, 0, 3650)),
            zstd_level=int(self._number(data, "zstd_level", Config.zstd_level, 1, 22)),
            zstd_levels=self._levels(data),
            access_log=self._file(data, "access_log", Config.access_log),
            session_log=self._file(data, "session_log", Config.session_log),
            clone_url=self._clone_url(data),
            title=self._string(data, "title", Config.title),
            timeout=self._number(data, "timeout", Config.timeout, 1, 3600),
        )
        self._refuse_rest("", data)
        self._refuse_rest("refresh.", refresh)
        self._refuse_rest("pull.", pull)
        return config

    def _limits(self, pull: dict[str, Any]) -> Limits:
        return Limits(
            enabled=self._flag(pull, "pull.enabled", _PULL.enabled),
            least=int(self._number(pull, "pull.least", _PULL.least, 1, 2**31)),
            step=int(self._number(pull, "pull.step", _PULL.step, 1, 2**31)),
            whole=self._flag(pull, "pull.whole", _PULL.whole),
        )

    def _levels(self, data: dict[str, Any]) -> tuple[tuple[str, int], ...]:
        table = self._table(data, "zstd_levels")
        return tuple(
            (one, int(self._number({one: level}, f"zstd_levels.{one}", 0, 1, 22)))
            for one, level in table.items()
        )

    def _stores(self, data: dict[str, Any]) -> tuple[Store, ...]:
        tables = self._take(data, "store", None)
        if not isinstance(tables, list) or not tables:
            raise self._wrong("store", tables, "one table [[store]] or more")
        stores: list[Store] = []
        for table in tables:
            if not isinstance(table, dict):
                raise self._wrong("store", table, "a table [[store]]")
            name = self._string(table := dict(table), "store.name")
            if not _NAME.fullmatch(name) or name in {store.name for store in stores}:
                raise self._wrong("store.name", name, "a name of a-z 0-9 - that no other store has")
            region = self._string(table, "store.region", Store.region)
            stores.append(
                Store(
                    name=name,
                    endpoint=self._url(table, "store.endpoint"),
                    bucket=self._string(table, "store.bucket"),
                    public_url=self._url(table, "store.public_url").rstrip("/"),
                    region=region,
                    location=self._string(table, "store.location", region),
                    private=self._flag(table, "store.private", default=False),
                )
            )
            self._refuse_rest("store.", table)
        urls = [store.public_url for store in stores]
        for url in urls:
            if sum(other == url or other.startswith(f"{url}/") for other in urls) > 1:
                raise self._wrong("store.public_url", url, "a URL that is in no other store's")
        return tuple(stores)

    def _flag(self, table: dict[str, Any], name: str, default: object) -> bool:
        value = self._take(table, name, default)
        if not isinstance(value, bool):
            raise self._wrong(name, value, "true or false")
        return value

    def _clone_url(self, data: dict[str, Any]) -> str:
        if data.get("clone_url", "") == "":
            data.pop("clone_url", None)
            return ""
        return self._url(data, "clone_url").rstrip("/")

    def _patterns(self, table: dict[str, Any], name: str) -> tuple[str, ...]:
        value = self._take(table, name, [])
        if not isinstance(value, list) or not all(isinstance(one, str) and one for one in value):
            raise self._wrong(name, value, 'a list of patterns like ["team/*"]')
        return tuple(value)

    def _refuse_rest(self, prefix: str, table: dict[str, Any]) -> None:
        for name in table:
            raise ConfigurationError(f"{self._path}: {prefix}{name}: no such setting")

    def _wrong(self, name: str, got: object, expected: str) -> ConfigurationError:
        found = "got nothing" if got is None else f"got {got!r}"
        return ConfigurationError(f"{self._path}: {name}: {found}, expected {expected}")

    def _take(self, table: dict[str, Any], name: str, default: object) -> Any:
        return table.pop(name.rpartition(".")[2], default)

    def _table(self, data: dict[str, Any], name: str) -> dict[str, Any]:
        value = self._take(data, name, {})
        if not isinstance(value, dict):
            raise self._wrong(name, value, f"a table [{name}]")
        return dict(value)

    def _string(self, table: dict[str, Any], name: str, default: str | None = None) -> str:
        value = self._take(table, name, default)
        if not isinstance(value, str) or not value:
            raise self._wrong(name, value, "a string")
        return value

    def _url(self, table: dict[str, Any], name: str) -> str:
        value = self._string(table, name)
        parts = urlsplit(value)
        # Also what allows urllib to open it: no file:, no ftp:.
        if parts.scheme not in {"http", "https"} or not parts.hostname or parts.query:
            raise self._wrong(name, value, "a URL like https://host:port/path")
        return value

    def _file(self, table: dict[str, Any], name: str, default: Path) -> Path:
        value = Path(self._string(table, name, str(default)))
        if not value.is_absolute():
            raise self._wrong(name, str(value), "an absolute path")
        return value

    def _number(
        self, table: dict[str, Any], name: str, default: float, least: float, most: float
    ) -> float:
        value = self._take(table, name, default)
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not number or not least <= value <= most:
            raise self._wrong(name, value, f"a number from {least} to {most}")
        return float(value)
