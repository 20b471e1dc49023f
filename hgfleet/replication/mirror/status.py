"""Status of replication on this host, from the state file of its daemons. Pure except for reads."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import UnavailableError
from hgfleet.core.stored_time import is_future
from hgfleet.pushlog import log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import parse
from hgfleet.replication.mirror import state_file
from hgfleet.replication.repositories.registry_paths import RegistryPaths

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.source.client import Position, SourceClient

FILE: Final = "state.json"

_TIMES: Final = frozenset({"written", "updated", "lease_until"})
"""Names of times in the file, in seconds since 1970."""

MAX_SIZE: Final = 16 * 1024 * 1024

LEASE_MOST_SECONDS: Final = 600.0
"""No lease is given for longer (`settings.lease_seconds` is at most 300)."""


@dataclass(frozen=True, slots=True)
class Lag:
    """A repository that is behind: its missing records, and the age of the first (seconds)."""

    path: str
    here: int
    there: int
    seconds: float


def load(folder: Path) -> Mapping[str, Any]:
    """Read the state file of a host; raises UnavailableError."""
    file = folder / FILE
    try:
        with file.open("rb") as opened:
            data = json.loads(opened.read(MAX_SIZE))
        if not isinstance(data, dict):
            raise TypeError("no object")
    except OSError as error:
        raise UnavailableError(
            f"{file}: {error.strerror}; the daemon of replication writes it: "
            "`systemctl status hgfleet-applier hgfleet-relay`"
        ) from error
    except (ValueError, TypeError, RecursionError) as error:
        raise UnavailableError(f"{file}: not a state of replication ({error})") from error
    return data


def lines(state: Mapping[str, Any], now: float) -> list[str]:
    """Return the state of a host for a person: sentences, problems first, then a table."""
    told, rest = sentences(state, now)
    rows = [row for name in sorted(rest) for row in _rows(name, rest[name])]
    width = max((len(name) for name, _ in rows), default=0)
    gap = [""] if told and rows else []
    return [*told, *gap, *(f"{name:{width}}  {value}" for name, value in rows)]


def _rows(name: str, value: object) -> Iterator[tuple[str, str]]:
    """Yield rows of the table: a name and a text; an object of objects has a row for each."""
    if isinstance(value, dict) and any(isinstance(part, dict | list) for part in value.values()):
        for key, part in value.items():
            yield from _rows(f"{name} {key}", part)
    elif isinstance(value, dict) and name == "problems":
        yield from ((f"problem {key}".rstrip(), str(part)) for key, part in value.items())
    elif isinstance(value, dict):
        yield name, ", ".join(f"{key} {_word(key, part)}" for key, part in value.items()) or "none"
    elif isinstance(value, list | tuple):
        yield name, ", ".join(map(str, value)) or "none"
    else:
        yield name, _word(name, value)


def _word(name: str, value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if name in _TIMES and isinstance(value, int | float) and 0 < value < 2**33:
        return time.strftime("%Y-%m-%d %H:%M:%SZ", time.gmtime(value))
    return "none" if value in ("", None) else str(value)


def sentences(state: Mapping[str, Any], now: float) -> tuple[list[str], dict[str, Any]]:
    """Return sentences on the problems and the progress of a host, and the rest of its state."""
    parked = state_file.named(state, "parked")
    texts = [
        f"{path}: parked: {reason}; `hgfleet replication resync {path}` copies it again"
        for path, reason in sorted(parked.values())
    ]
    texts += [
        f"{path}: waits: {reason}"
        for path, reason in sorted(state_file.named(state, "waits").values())
    ]
    refused = state.get("refused")
    texts += [
        f"{name}: refused: {reason}; `hgfleet replication begin-term` on the primary makes its "
        "version count"
        for name, reason in sorted((refused if isinstance(refused, dict) else {}).items())
    ]
    away = state.get("away")
    texts += [
        f"{name}: not brought: {reason}"
        for name, reason in sorted((away if isinstance(away, dict) else {}).items())
    ]
    texts += _of_broker(state)
    texts += [
        f"{path}: set aside: {reason}"
        for path, reason in sorted(state_file.named(state, "aside").values())
    ]
    texts += [
        f"{path}: {reason}" for path, reason in sorted(state_file.named(state, "fenced").values())
    ]
    lease = state.get("lease_until")
    if isinstance(lease, int | float):
        if is_future(lease, now, LEASE_MOST_SECONDS):
            texts.append("the lease ends in the far future: the clock has been set back")
        elif lease < now:
            texts.append(
                f"the lease ended {now - lease:.0f} s ago: the primary does not hear this mirror, "
                "which takes no clients"
            )
        else:
            texts.append(f"the lease lasts for {lease - now:.1f} s more")
    if "caught_up" in state:
        words = "has caught up" if state["caught_up"] is True else "has not caught up yet"
        texts.append(f"this mirror {words}; {state.get('waiting', 0)} pushes wait")
    told = {"parked", "waits", "unserved", "lease_until", "caught_up", "waiting"}
    told |= {"refused", "away", "documents_away", "aside", "fenced", "fenced_repositories"}
    if state.get("role") == "mirror":
        told |= {"source", "broker"}
        servers = {name: state.get(name) for name in ("source", "broker")}
        texts += [f"the {name} is away: {problem}" for name, problem in servers.items() if problem]
    return texts, {name: value for name, value in state.items() if name not in told}


def is_well(state: Mapping[str, Any], now: float) -> bool:
    """Whether a mirror takes clients, follows the primary in everything, and has none parked.

    On a primary: whether a broker takes all its pushes, and no repository is fenced.
    """
    if state.get("role") != "mirror":
        return not (_of_broker(state) or state.get("fenced_repositories") or state.get("problems"))
    lease = state.get("lease_until")
    return (
        state.get("caught_up") is True
        and isinstance(lease, int | float)
        and lease >= now
        and not is_future(lease, now, LEASE_MOST_SECONDS)
        and not any(state.get(name) for name in ("parked", "refused", "aside"))
    )


def _of_broker(state: Mapping[str, Any]) -> list[str]:
    """Return the sentence about a broker that a primary does not reach, or that refuses."""
    broker = state.get("broker")
    if state.get("role") != "primary" or not isinstance(broker, dict):
        return []
    waiting = (
        f"{state.get('waiting', 0)} repositories wait, for {state.get('waiting_seconds', 0)} s"
    )
    if broker.get("connected") is not True:
        return [f"no broker is connected: {broker.get('problem')}; {waiting}"]
    if broker.get("problem"):
        return [f"the broker refuses messages: {broker['problem']}; {waiting}"]
    return []


def lags(settings: Settings, source: SourceClient, now: float) -> Iterator[Lag]:
    """Yield the repositories in which this mirror misses records. Raises UnavailableError."""
    for there, here in behind(settings, source.repositories()):
        first = next(iter(source.log_after(there.identity, here)), None)
        age = max(0.0, now - parse(first).time / 1000) if first else 0.0
        yield Lag(there.path, here, there.id, age)


def behind(settings: Settings, positions: Iterable[Position]) -> list[tuple[Position, int]]:
    """Return the positions of the primary that this mirror has not reached, each with its own."""
    paths = RegistryPaths(settings).read().paths
    missing = []
    for there in positions:
        path = paths.get(there.identity)
        tip = Tip()
        if path is not None:
            tip = log_file.tip(settings.repositories / path / ".hg/store" / log_file.NAME)
        here = tip.id if tip.repository == there.identity else 0
        # If the last push differs from the primary's push of that number, it does not count.
        is_other = here == there.id and there.hash not in ("", tip.hash)
        if (here < there.id or is_other) and not there.problem:
            missing.append((there, here - 1 if is_other else here))
    return missing
