"""Settings of webhooks: `/etc/hgfleet/webhooks.toml`, written by the role `replication`.

retry_seconds = 21600                 # for which a delivery is tried
timeout_seconds = 10.0                # for a request and its answer

[[receivers]]
name = "ci"
url = "https://ci.example.org/hooks/hg"
repositories = ["team/**"]            # patterns; none are all repositories
private = false                       # whether events of private repositories go there

Secrets are elsewhere: the unit has a credential for each receiver, with the receiver's name.
"""

from __future__ import annotations

import ipaddress
import re
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from hgfleet.core import paths
from hgfleet.core.daemons import systemd
from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import read
from hgfleet.policies import globs

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table
    from hgfleet.policies.bounded import Pattern
    from hgfleet.replication.protocol.events import Event

DEFAULT_PATH: Final = Path("/etc/hgfleet/webhooks.toml")
SPOOL: Final = Path("/var/lib/hgfleet-webhooks")
STATE: Final = Path("/run/hgfleet-webhooks")
STATE_FILE: Final = "state.json"
"""The file in which the daemon writes the waiting events."""

MOST_RECEIVERS: Final = 100
LEAST_SECRET: Final = 16
MOST_SECRET: Final = 1024
"""Bytes of a secret."""

_NAME: Final = re.compile(r"[a-z0-9][a-z0-9-]{0,31}")
_URL: Final = re.compile(r"[\x21-\x7e]{1,2000}")


@dataclass(frozen=True)
class Receiver:
    """A receiver of events. With `is_private` it gets events of private repositories, too."""

    name: str
    url: str
    repositories: Pattern
    is_private: bool = False

    def takes(self, event: Event) -> bool:
        """Whether an event is for this receiver."""
        return (event.is_public or self.is_private) and self.repositories.fits(event.path)


@dataclass(frozen=True)
class Settings:
    """Receivers, and times in seconds.

    `state` is a folder in RAM for `hgfleet webhooks status`, `spool` the folder where the release
    before kept waiting and dead events.
    """

    receivers: tuple[Receiver, ...]
    retry_seconds: float = 6 * 3600.0
    timeout_seconds: float = 10.0
    ca: Path = Path(paths.CA_CERTIFICATES)
    spool: Path = SPOOL
    state: Path = STATE

    def receiver(self, name: str) -> Receiver | None:
        """Return the receiver of a name, None if it is not set."""
        return next((receiver for receiver in self.receivers if receiver.name == name), None)


def load(path: Path = DEFAULT_PATH) -> Settings:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(path, parse, "the settings of webhooks", "the role `replication` writes them")


def parse(table: Table) -> Settings:
    """Take the settings out of a table."""
    receivers = tuple(_receiver(receiver) for receiver in table.tables("receivers", least=1))
    if len(receivers) > MOST_RECEIVERS:
        raise table.error("receivers", len(receivers), f"at most {MOST_RECEIVERS} receivers")
    names = [receiver.name for receiver in receivers]
    for name in names:
        if names.count(name) > 1:
            raise table.error("receivers", name, "a name once")
    return Settings(
        receivers,
        retry_seconds=table.seconds("retry_seconds", 6 * 3600.0, least=0, most=6 * 24 * 3600),
        timeout_seconds=table.seconds("timeout_seconds", 10.0, least=0.1, most=120),
        ca=table.file("ca", paths.CA_CERTIFICATES),
        spool=table.file("spool", SPOOL),
        state=table.file("state", STATE),
    )


def _receiver(table: Table) -> Receiver:
    name = table.text("name")
    if not _NAME.fullmatch(name):
        raise table.error("name", name, "a name of a-z 0-9 -, at most 32 characters")
    url = table.text("url")
    if not is_allowed(url):
        # The path of a URL may be a secret.
        raise table.error("url", f"a URL of {name}", "https://host[:port]/path, without a user")
    patterns = table.texts("repositories", ())
    for pattern in patterns:
        if wrong := globs.glob_problem(pattern):
            raise table.error("repositories", pattern, wrong)
    return Receiver(name, url, globs.paths(patterns), table.flag("private", False))


def is_allowed(url: str) -> bool:
    """Whether events may go to a URL: https, or http on this host."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname or "", parts.port
    except ValueError:
        return False
    return (
        _URL.fullmatch(url) is not None
        and bool(host)
        and parts.username is None
        and parts.password is None
        and not parts.fragment
        and port != 0
        and (parts.scheme == "https" or (parts.scheme == "http" and _is_loopback(host)))
    )


def _is_loopback(host: str) -> bool:
    try:
        return ipaddress.IPv4Address(host).is_loopback
    except ValueError:
        return False


def secret(name: str) -> bytes:
    """Return the secret of a receiver, from the credentials of the unit.

    Raises ConfigurationError.
    """
    file = systemd.credential(name)
    way_out = "the role `replication` writes it; `hgfleet webhooks run` is for its unit"
    if file is None:
        raise ConfigurationError(f"receiver {name}: no credential with its secret; {way_out}")
    try:
        secret = file.read_bytes().rstrip(b"\n")
    except OSError as error:
        raise ConfigurationError(f"receiver {name}: {file}: {error.strerror}; {way_out}") from error
    if not LEAST_SECRET <= len(secret) <= MOST_SECRET:
        raise ConfigurationError(
            f"receiver {name}: the secret has {len(secret)} bytes, expected {LEAST_SECRET} to "
            f"{MOST_SECRET}"
        )
    return secret
