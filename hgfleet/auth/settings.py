"""auth.toml: the directory servers that the daemon asks, and its account there."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file
from hgfleet.core import settings_file
from hgfleet.directory import connection

if TYPE_CHECKING:
    from hgfleet.core.settings_file import Table

CONFIG: Final = Path("/etc/hgfleet/auth.toml")


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of auth.toml; `timeout` in seconds, for each step of a conversation."""

    uris: tuple[str, ...]
    people_base: str
    groups_base: str
    bind_dn: str
    ca_file: str
    timeout: float
    tokens: str


def load(path: Path = CONFIG) -> Config:
    """Read the file; raise ConfigurationError with the value found and the value expected."""
    return settings_file.read(
        path, parse, "the settings of hgfleet-auth", "the role `web` writes them"
    )


def parse(table: Table) -> Config:
    """Read the settings of auth.toml; raise ConfigurationError."""
    uris = table.texts("uris")
    for uri in uris:
        if not uri.startswith(connection.SCHEMES):
            raise table.error("uris", uri, "ldaps://HOST or ldapi://PATH")
    return Config(
        uris=uris,
        people_base=table.text("people_base"),
        groups_base=table.text("groups_base"),
        bind_dn=table.text("bind_dn"),
        ca_file=table.text("ca_file"),
        timeout=table.seconds("timeout", 2.0, least=0.1, most=10),
        tokens=table.file_name("tokens", token_file.PATH),
    )
