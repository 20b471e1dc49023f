"""Address of backups over SSH: `ssh://USER@HOST:PORT/FOLDER/NAME`. Pure."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final

SCHEME: Final = "ssh://"

EXPECTED: Final = "ssh://USER@HOST:PORT/FOLDER/NAME, no blanks or quotes, port 22 if none is named"

# restic splits the command of ssh as a shell does, so no other character may reach it. The names of
# hosts and users do not begin with a dash, which ssh would take for an option.
_NAME: Final = r"[A-Za-z0-9_][A-Za-z0-9._-]*"
_ADDRESS: Final = re.compile(
    rf"{SCHEME}(?P<user>[a-z_][a-z0-9_-]{{0,31}})@(?P<host>[A-Za-z0-9][A-Za-z0-9.-]*)"
    rf"(:(?P<port>[0-9]{{1,5}}))?(?P<folder>(/{_NAME})+)/(?P<name>{_NAME})"
)


@dataclass(frozen=True, slots=True)
class SSHStore:
    """The folder of one host's backups on a machine that is reached by SSH."""

    user: str
    host: str
    port: int
    folder: str
    name: str


def is_ssh(repository: str) -> bool:
    """Whether a repository is on a machine that is reached by SSH."""
    return repository.startswith(SCHEME)


def parse(repository: str) -> SSHStore | None:
    """Read an address `ssh://`; None if the text is no such address."""
    match = _ADDRESS.fullmatch(repository)
    if match is None or not 0 < (port := int(match["port"] or 22)) < 65536:
        return None
    return SSHStore(match["user"], match["host"], port, match["folder"], match["name"])
