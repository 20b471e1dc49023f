"""Settings of backup: `/etc/hgfleet/backup.toml`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup.restic import ssh_address
from hgfleet.core import paths
from hgfleet.core.settings_file import read

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/backup.toml")
SECRETS: Final = Path("/etc/hgfleet/secrets")

PASSWORD: Final = "backup-password"  # noqa: S105  (the name of a file)
CREDENTIALS: Final = "backup-s3"
SSH_KEY: Final = "backup-ssh"
"""Names of files in `secrets`, and of credentials of the units."""


@dataclass(frozen=True)
class Retention:
    """Backups that a prune keeps: the newest of each of the last hours, days and months."""

    hours: int = 48
    days: int = 35
    months: int = 12


@dataclass(frozen=True)
class Settings:
    """Settings of a host: its states, the store of its backups, drills and prunes."""

    host: str
    repository: str
    """Address of the restic repository, without credentials (`address.py`)."""
    parts: frozenset[str]
    """Groups of the inventory that decide which states the host has (`states.toml`)."""
    region: str = "us-east-1"
    """Region that requests to an S3 store are signed for."""
    repositories: Path = Path(paths.REPOSITORIES)
    state: Path = Path("/var/lib/hgfleet-backup")
    cache: Path = Path("/var/cache/hgfleet-backup")
    secrets: Path = SECRETS
    replication: Path = Path("/run/hgfleet-replication/state.json")
    hg: Path = Path(paths.HG)
    restic: Path = Path("/usr/bin/restic")
    ca: Path = Path(paths.CA_CERTIFICATES)
    ssh: Path = Path("/usr/bin/ssh")
    known_hosts: Path = Path("/etc/hgfleet/backup-known-hosts")
    """Host keys of a store that is reached by SSH."""
    owner: str = "hg"
    """User and group that own restored repositories, if root restores them."""
    sample: int = 5
    """Repositories that a drill restores."""
    drill_days: int = 35
    """Age up to which a drill proves the backups of a repository."""
    pruned: tuple[str, ...] = ()
    """Hosts whose backups this host prunes."""
    retention: Retention = Retention()

    @property
    def points(self) -> Path:
        """Folder of the last run's recovery points, a file per repository; it is backed up."""
        return self.state / "points"


def load(path: Path) -> Settings:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(path, parse, "the settings of backup", "the role `backup` writes it")


def parse(table: Table) -> Settings:
    """Take the settings out of their table."""
    settings = Settings(
        host=table.text("host"),
        repository=table.text("repository", expected="the address of a restic repository"),
        parts=frozenset(table.texts("parts")),
        region=table.text("region", Settings.region),
        repositories=table.file("repositories", Settings.repositories),
        state=table.file("state", Settings.state),
        cache=table.file("cache", Settings.cache),
        secrets=table.file("secrets", Settings.secrets),
        replication=table.file("replication", Settings.replication),
        hg=table.file("hg", Settings.hg),
        restic=table.file("restic", Settings.restic),
        ca=table.file("ca", Settings.ca),
        ssh=table.file("ssh", Settings.ssh),
        known_hosts=table.file("known_hosts", Settings.known_hosts),
        owner=table.text("owner", Settings.owner),
        sample=table.integer("sample", Settings.sample, least=1, most=100_000),
        drill_days=table.integer(
            "drill_days", Settings.drill_days, least=1, most=3650, unit="a number of days"
        ),
        pruned=tuple(table.texts("pruned", ())),
        retention=Retention(
            hours=table.integer("keep_hours", Retention.hours, least=0, most=100_000),
            days=table.integer("keep_days", Retention.days, least=1, most=100_000),
            months=table.integer("keep_months", Retention.months, least=0, most=100_000),
        ),
    )
    if ssh_address.is_ssh(settings.repository):
        if ssh_address.parse(settings.repository) is None:
            raise table.error("repository", settings.repository, ssh_address.EXPECTED)
    elif "@" in settings.repository.partition("//")[2].partition("/")[0]:
        raise table.error(
            "repository", settings.repository.partition("@")[2], "no credentials in it"
        )
    return settings
