"""The state of a mirror, for its health check and for people: `state.json` in a folder in RAM.

{"role":"mirror","caught_up":true,"lease_until":1795440005.2,"waiting":0,"positions":1000,
"parked":{"team/project":"record 7 belongs to ...; hgfleet replication resync team/project"}}
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME: Final = "state.json"
MOST_PARKED: Final = 200
"""Parked repositories that the file names; `parked_repositories` counts all."""


@dataclass(frozen=True, slots=True)
class State:
    """Times are in seconds since 1970, by the mirror's clock."""

    host: str
    caught_up: bool
    lease_until: float
    waiting: int
    positions: int
    parked_repositories: int = 0
    parked: Mapping[str, str] = field(default_factory=dict)
    paused: bool = False
    """The circuit breaker is open."""
    problem: str = ""
    """Why the broker or the source cannot be asked."""
    updated: float = 0.0
    role: str = "mirror"

    def text(self) -> str:
        """Return the content of the file."""
        named = dict(sorted(self.parked.items())[:MOST_PARKED])
        return json.dumps(asdict(self) | {"parked": named}, indent=1) + "\n"


def write(folder: Path, state: State) -> None:
    """Replace the file (I/O)."""
    files.replace(folder / NAME, state.text(), mode=0o644, durable=False)
