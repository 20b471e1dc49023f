"""The settings of the bundle jobs: `/etc/hgfleet/bundles.toml`, and the credentials of the store.

The file has no secrets. The two credentials come from systemd (`LoadCredential=`), or for a person
at a terminal from the environment.
"""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hgfleet.bundles.plan import Refresh
from hgfleet.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_PATH: Final = Path("/etc/hgfleet/bundles.toml")

# credential file of systemd, environment variable (the names every S3 tool knows)
CREDENTIALS: Final = (
    ("s3-access-key-id", "AWS_ACCESS_KEY_ID"),
    ("s3-secret-access-key", "AWS_SECRET_ACCESS_KEY"),
)


@dataclass(frozen=True)
class Store:
    """An S3 bucket: where to write to it, and where everybody reads from it."""

    endpoint: str
    bucket: str
    public_url: str
    region: str = "us-east-1"


@dataclass(frozen=True)
class Config:
    """Everything that a run has to know; the defaults are the paths of a host.

    `ca` is a file of PEM certificates that both ways to the store are verified with. `zstd_level`
    is that of the zstd library, 1 to 22; `timeout` (seconds) bounds each wait for the store.
    """

    store: Store
    refresh: Refresh
    retention: timedelta
    registry: Path = Path("/var/lib/hgfleet/registry.json")
    dynamic: Path = Path("/var/lib/hgfleet/dynamic/registry.json")
    repositories: Path = Path("/srv/hg/repos")
    manifests: Path = Path("/var/lib/hgfleet/manifests")
    scratch: Path = Path("/var/cache/hgfleet/bundles")
    hg: Path = Path("/opt/hgfleet/current/bin/hg")
    hgrc: Path = Path("/etc/hgfleet/bundles.hgrc")
    ca: Path = Path("/etc/ssl/certs/ca-certificates.crt")
    jobs: int = 1
    zstd_level: int = 10
    timeout: float = 30.0


@dataclass(frozen=True, slots=True)
class Credentials:
    """Who writes to the bucket."""

    access_key_id: str
    secret_access_key: str

    def __repr__(self) -> str:
        return f"Credentials({self.access_key_id!r}, ...)"


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
        store = self._table(data, "store")
        refresh = self._table(data, "refresh")
        config = Config(
            store=Store(
                endpoint=self._url(store, "store.endpoint"),
                bucket=self._string(store, "store.bucket"),
                public_url=self._url(store, "store.public_url").rstrip("/"),
                region=self._string(store, "store.region", Store.region),
            ),
            refresh=Refresh(
                share=self._number(refresh, "refresh.share", 0.01, 0, 1),
                age=timedelta(days=self._number(refresh, "refresh.age_days", 7, 0, 3650)),
            ),
            retention=timedelta(days=self._number(data, "retention_days", 7, 0, 3650)),
            registry=self._file(data, "registry", Config.registry),
            dynamic=self._file(data, "dynamic", Config.dynamic),
            repositories=self._file(data, "repositories", Config.repositories),
            manifests=self._file(data, "manifests", Config.manifests),
            scratch=self._file(data, "scratch", Config.scratch),
            hg=self._file(data, "hg", Config.hg),
            hgrc=self._file(data, "hgrc", Config.hgrc),
            ca=self._file(data, "ca", Config.ca),
            jobs=int(self._number(data, "jobs", Config.jobs, 1, 64)),
            zstd_level=int(self._number(data, "zstd_level", Config.zstd_level, 1, 22)),
            timeout=self._number(data, "timeout", Config.timeout, 1, 3600),
        )
        for prefix, table in (("", data), ("store.", store), ("refresh.", refresh)):
            for name in table:
                raise ConfigurationError(f"{self._path}: {prefix}{name}: no such setting")
        return config

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


def credentials(environment: Mapping[str, str] = os.environ) -> Credentials:
    """Find the credentials. Raises ConfigurationError that says where they were looked for."""
    folder = environment.get("CREDENTIALS_DIRECTORY")
    values = []
    for name, variable in CREDENTIALS:
        value = environment.get(variable, "")
        if folder and (Path(folder) / name).exists():
            value = (Path(folder) / name).read_text("utf-8").strip()
        if not value:
            raise ConfigurationError(
                f"no credentials for the object store: neither the systemd credential {name} nor "
                f"the variable {variable} is there. The unit has them: "
                "`systemctl start hgfleet-bundles.service`"
            )
        values.append(value)
    return Credentials(*values)
