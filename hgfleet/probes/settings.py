"""Settings of the probes and the status page: `/etc/hgfleet/probes.toml`, without secrets."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import paths
from hgfleet.core.config import read
from hgfleet.objectstore.settings import Store
from hgfleet.probes import history
from hgfleet.probes.page import Incident

if TYPE_CHECKING:
    from hgfleet.core.config import Table

DEFAULT_PATH: Final = Path("/etc/hgfleet/probes.toml")

STORE: Final = "status"
"""The store of the page in messages, and in the names of its credentials."""


@dataclass(frozen=True)
class Settings:
    """The repository that is cloned, and the page; without a store the page is not uploaded.

    `ca` is a file of PEM certificates that verifies the service and the store. `scratch` is the
    folder of clones, where it exists. `timeout_seconds` bounds a clone.
    """

    clone_url: str
    title: str = "Status"
    store: Store | None = None
    incidents: tuple[Incident, ...] = ()
    timeout_seconds: float = 30.0
    hg: Path = Path(paths.HG)
    ca: Path = Path(paths.CA_CERTIFICATES)
    state: Path = history.FOLDER
    scratch: Path = Path("/run/hgfleet-probes")


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
        title=table.text("title", Settings.title),
        store=_store(table.table("store")) if "store" in table else None,
        incidents=tuple(_incident(one) for one in table.tables("incident")),
        timeout_seconds=table.seconds("timeout", Settings.timeout_seconds, least=1, most=50),
        hg=table.file("hg", Settings.hg),
        ca=table.file("ca", Settings.ca),
        state=table.file("state", Settings.state),
        scratch=table.file("scratch", Settings.scratch),
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
        found = datetime.fromisoformat(text)
    except ValueError:
        raise table.error(name, text, expected) from None
    if found.tzinfo is None:
        raise table.error(name, text, expected)
    return found.astimezone(UTC)
