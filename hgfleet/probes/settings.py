"""Settings of the probes and the status page: `/etc/hgfleet/probes.toml`, without secrets."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import paths
from hgfleet.core.settings_file import read
from hgfleet.objectstore.settings import Store
from hgfleet.probes import result_history
from hgfleet.probes.page import Incident

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/probes.toml")

STORE: Final = "status"
"""The name of the page's store in messages and in the names of its credentials."""


_SSH_URL: Final = re.compile(
    r"ssh://[a-z_][a-z0-9_-]*@([A-Za-z0-9][A-Za-z0-9.-]*|\[[0-9A-Fa-f:]+\])(:[0-9]+)?"
    r"(/[A-Za-z0-9][A-Za-z0-9._+-]*)+"
)
_HOST: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")


@dataclass(frozen=True)
class Push:
    """The repository for pushes, and the name of this host in its branch and bookmark.

    `known_hosts` has the host keys of the servers, in OpenSSH's notation.
    """

    url: str
    host: str
    known_hosts: Path
    ssh: Path = Path("/usr/bin/ssh")


@dataclass(frozen=True)
class Settings:
    """The repositories for clones and pushes, and the page, kept on this host without a store.

    `ca` is a file of PEM certificates that verifies the service and the store. `scratch` is the
    folder of clones, where it exists. `timeout_seconds` bounds a clone, and a push.
    """

    clone_url: str
    push: Push | None = None
    title: str = "Status"
    store: Store | None = None
    incidents: tuple[Incident, ...] = ()
    timeout_seconds: float = 30.0
    ca: Path = Path(paths.CA_CERTIFICATES)
    state: Path = result_history.FOLDER
    scratch: Path = Path("/run/hgfleet-probes")

    def has(self, probe: str) -> bool:
        """Whether this host runs a probe."""
        return probe != result_history.PUSH or self.push is not None


def load(path: Path) -> Settings:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(
        path,
        parse,
        "the settings of the probes",
        "the role `monitoring` writes them, --config names another file",
    )


def parse(table: Table) -> Settings:
    """Take the settings out of their table."""
    return Settings(
        clone_url=table.optional_url("clone_url"),
        push=_push(table.table("push")) if "push" in table else None,
        title=table.text("title", Settings.title),
        store=_store(table.table("store")) if "store" in table else None,
        incidents=tuple(_incident(incident) for incident in table.tables("incident")),
        timeout_seconds=table.seconds("timeout", Settings.timeout_seconds, least=1, most=50),
        ca=table.file("ca", Settings.ca),
        state=table.file("state", Settings.state),
        scratch=table.file("scratch", Settings.scratch),
    )


def _push(table: Table) -> Push:
    url, host = table.text("url"), table.text("host")
    # The URL is an argument of hg and ssh.
    if not _SSH_URL.fullmatch(url):
        raise table.error("url", url, "a URL like ssh://hg@host:port/path")
    if not _HOST.fullmatch(host):
        raise table.error("host", host, "the name of this host")
    return Push(
        url=url,
        host=host,
        known_hosts=table.file("known_hosts"),
        ssh=table.file("ssh", Push.ssh),
    )


def _store(table: Table) -> Store:
    endpoint, bucket = table.url("endpoint"), table.text("bucket")
    return Store(
        name=STORE,
        endpoint=endpoint,
        bucket=bucket,
        public_url=f"{endpoint}/{bucket}",
        region=table.text("region", Store.region),
    )


def _incident(table: Table) -> Incident:
    begun = _moment(table, "begun")
    ended = _moment(table, "ended") if "ended" in table else None
    if ended is not None and ended < begun:
        raise table.error("ended", ended.isoformat(), "a time after `begun`")
    return Incident(
        begun=begun, ended=ended, title=table.text("title"), text=table.optional_text("text")
    )


def _moment(table: Table, name: str) -> datetime:
    expected = "a time with its zone, such as 2026-11-25T14:30Z"
    text = table.text(name, expected=expected)
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise table.error(name, text, expected) from None
    if moment.tzinfo is None:
        raise table.error(name, text, expected)
    return moment.astimezone(UTC)
