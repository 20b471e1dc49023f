"""Settings of replication: `/etc/hgfleet/replication.toml`, written by the role `replication`.

role = "mirror"                       # or "primary"
host = "hgweb1"                       # this host's name in its certificate
primary = "hg1"                       # the primary's name in its certificate
source = "https://hg1:7460"           # where mirrors fetch data that messages do not carry
brokers = ["tls://broker1:4222"]
mirrors = ["hgweb1", "hgweb2"]        # hosts that may be mirrors
replicas = 1                          # copies of a stream among the brokers: 1 or 3
lease_seconds = 5.0
keep_missing_days = 14                # to keep repositories that the registry lost; 0: for ever
objects_bytes = 268435456             # of the brokers' disks, for pushes too large for a message
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import paths
from hgfleet.core.settings_file import read

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/replication.toml")
SOURCE_PORT: Final = 7460


class Role(StrEnum):
    """The part of a host in replication."""

    PRIMARY = "primary"
    MIRROR = "mirror"


@dataclass(frozen=True)
class Settings:
    """Role and names of a host, its brokers, and times in seconds.

    `certificate`, `key` and `ca` are PEM files: brokers and the source know a host by the name in
    its certificate. `wake` is the Unix socket of the relay, for sessions. `state` is a folder in
    RAM with files for other programs of the host, `positions` the folder of the relay's positions.
    `terms` is the folder of the host's epoch and of its fence, `fence` the folder in RAM with the
    fence that each boot sets.
    """

    role: Role
    host: str
    primary: str
    source: str
    brokers: tuple[str, ...]
    mirrors: tuple[str, ...]
    replicas: int = 1
    lease_seconds: float = 5.0
    keep_missing_days: int = 14
    objects_bytes: int = 256 * 2**20
    repositories: Path = Path(paths.REPOSITORIES)
    compiled: Path = Path(paths.COMPILED)
    dynamic: Path = Path(paths.DYNAMIC)
    manifests: Path = Path(paths.MANIFESTS)
    pull_bundles: Path = Path(paths.PULL_BUNDLES)
    hg: Path = Path(paths.HG)
    hgrc: Path = Path(paths.HGRC)
    certificate: Path = Path("/etc/hgfleet/tls/cert.pem")
    key: Path = Path("/etc/hgfleet/tls/key.pem")
    ca: Path = Path("/etc/hgfleet/tls/ca.pem")
    wake: Path = Path("/run/hgfleet-relay/wake.sock")
    positions: Path = Path("/var/lib/hgfleet-relay")
    state: Path = Path("/run/hgfleet-replication")
    terms: Path = Path("/var/lib/hgfleet-replication")
    fence: Path = Path("/run/hgfleet-fence")


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(path, parse, "the settings of replication", "the role `replication` writes them")


def parse(table: Table) -> Settings:
    """Take the settings out of a table."""
    # A setting of the previous release; now sessions have it from the role `mercurial`.
    table.seconds("wait_seconds", 5.0, least=0, most=60)
    return Settings(
        role=Role(table.choice("role", tuple(Role))),
        host=table.text("host"),
        primary=table.text("primary"),
        source=table.url("source"),
        brokers=table.texts("brokers"),
        mirrors=table.texts("mirrors"),
        replicas=table.integer("replicas", 1, least=1, most=5),
        lease_seconds=table.seconds("lease_seconds", 5.0, least=1, most=300),
        keep_missing_days=table.integer("keep_missing_days", 14, least=0, most=3650),
        objects_bytes=table.integer("objects_bytes", 256 * 2**20, least=2**20, most=2**50),
    )
