"""The state of a mirror, for its health check and for people: `state.json` in a folder in RAM.

{"role":"mirror","caught_up":true,"lease_until":1795440005.2,"waiting":0,"positions":1000,
"parked":{"7d...":["team/project","record 7 belongs to ..."]},"unserved":["7d..."]}
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.replication.mirror.repository_state import Status
    from hgfleet.replication.mirror.scheduler import Scheduler

NAME: Final = "state.json"
MOST_NAMED: Final = 200
"""Most repositories that the file names with a reason; `parked_repositories` counts all."""

Named = Mapping[str, tuple[str, str]]
"""Path and reason of repositories, by their identities."""


class Held(NamedTuple):
    """The points in which this mirror does not follow the primary."""

    refused: Mapping[str, str] = MappingProxyType({})
    """Why it keeps its own version of a document, by the name of the document."""
    aside: Named = MappingProxyType({})
    """Folders that are set aside, by their names."""
    away: Mapping[str, str] = MappingProxyType({})
    """Why a document cannot be brought, by the name of the document."""


@dataclass(frozen=True, slots=True)
class State:
    """State of a mirror. Times are in seconds since 1970, by the mirror's clock."""

    host: str
    caught_up: bool
    """Compared since the last connection, and no repository, except parked, is late."""
    lease_until: float
    waiting: int
    positions: int
    behind: int = 0
    """Repositories that do not show all pushes that this mirror has heard of."""
    parked_repositories: int = 0
    parked: Named = field(default_factory=dict)
    waits: Named = field(default_factory=dict)
    """Repositories that wait after a failure."""
    unserved: tuple[str, ...] = ()
    """Parked repositories, by identity, that web workers answer with 503 here: all of them."""
    refused: Mapping[str, str] = field(default_factory=dict)
    """Documents of the primary that are older than this mirror's, and why it keeps its own."""
    documents_away: int = 0
    """Documents of the primary that cannot be brought."""
    away: Mapping[str, str] = field(default_factory=dict)
    """Some of them, with the reason."""
    aside_repositories: int = 0
    aside: Named = field(default_factory=dict)
    """Repositories that the registry lost, by the names of their folders."""
    paused: bool = False
    """Whether the circuit breaker is open."""
    source: str = ""
    """Why the source does not answer."""
    broker: str = ""
    """Why the broker does not answer."""
    updated: float = 0.0
    role: str = "mirror"

    def text(self) -> str:
        """Return the content of the file."""
        named = {
            "parked": dict(sorted(self.parked.items())[:MOST_NAMED]),
            "waits": dict(sorted(self.waits.items())[:MOST_NAMED]),
            "aside": dict(sorted(self.aside.items())[:MOST_NAMED]),
            "away": dict(sorted(self.away.items())[:MOST_NAMED]),
        }
        return json.dumps(asdict(self) | named, indent=1) + "\n"


def of(
    scheduler: Scheduler,
    status: Status,
    held: Held,
    name: Callable[[str], str],
    *,
    host: str,
    lease_until: float,
    source: str,
    broker: str,
) -> State:
    """Return the state of a mirror; `name` gives the path of a repository."""

    def named(reasons: Mapping[str, str]) -> Named:
        return {identity: (name(identity), reason) for identity, reason in reasons.items()}

    return State(
        host=host,
        caught_up=status.caught_up,
        lease_until=lease_until,
        waiting=status.waiting,
        positions=scheduler.repositories,
        behind=status.behind,
        parked_repositories=len(status.parked),
        parked=named(status.parked),
        waits=named(status.waits),
        unserved=tuple(sorted(status.unserved)),
        refused=dict(held.refused),
        documents_away=len(held.away),
        away=dict(held.away),
        aside_repositories=len(held.aside),
        aside=dict(held.aside),
        paused=scheduler.breaker.is_open,
        source=source,
        broker=broker,
    )


def write(folder: Path, state: State) -> None:
    """Replace the file (I/O)."""
    files.replace(folder / NAME, state.text(), mode=0o644, durable=False)


def named(state: Mapping[str, Any], name: str) -> dict[str, tuple[str, str]]:
    """Return path and reason of the repositories below a name of the state, by identity.

    The previous release has reasons by path.
    """
    listed = state.get(name)
    made = {}
    for key, value in (listed if isinstance(listed, dict) else {}).items():
        match value:
            case [str(path), str(reason)]:
                made[key] = path, reason
            case str(reason):
                made[key] = key, reason
            case _:
                pass
    return made
