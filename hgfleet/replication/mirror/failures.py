"""Failures of a mirror's work on a repository: their kinds, and their consequences. Pure.

| kind | example | consequence |
| --- | --- | --- |
| network | no connection to the source | the host waits, and tries again; nothing is destroyed |
| readers | the mirror's registry is older than the push | fetch documents, try again |
| refused | the source cannot read this repository | try again, then park the repository |
| missing | its folder is not at its place yet | fetch documents, try again, then park |
| busy | another process holds the lock | try again soon, then park |
| host | disk full, too many open files | try again, then park; many pause the mirror |
| corruption | a revlog fails its checks | make a fresh copy, verify, exchange |
| removal | the primary stripped changesets | make a fresh copy, exchange |
| diverged | the mirror has changesets of its own | park the repository |
| poison | the same push fails each time | park the repository, go on with the others |

A failure of the connection and a registry that does not arrive concern the whole host. All other
failures concern a single repository: it is parked, and reported, before it is behind for
`LATE_SECONDS`, so only this repository leaves the service, not the host.
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from hgfleet.core.errors import PushlogError, TemporaryError, UnavailableError
from hgfleet.replication.repositories.errors import (
    CorruptionError,
    DivergedError,
    MissingError,
    RemovalError,
    StaleReadersError,
)


class Kind(StrEnum):
    """Kind of a failure."""

    NETWORK = "network"
    READERS = "readers"
    REFUSED = "refused"
    MISSING = "missing"
    BUSY = "busy"
    HOST = "host"
    CORRUPTION = "corruption"
    REMOVAL = "removal"
    DIVERGED = "diverged"
    POISON = "poison"


class Action(StrEnum):
    """Consequence of a failure."""

    RETRY = "retry"
    REPAIR = "repair"
    PARK = "park"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure, with a sentence for an operator."""

    kind: Kind
    reason: str


LATE_SECONDS: Final = 120.0
"""How long a repository may be behind before its mirror leaves the proxy.

This is longer than any failure of a repository takes until it is parked, and longer than four
checks of the primary's documents. A push that is being applied is not behind, however long that is.
"""

PARKED_SECONDS: Final = 300.0
"""Time after which a parked repository is tried again, so a repair needs no further command."""

_PASSING_SECONDS: Final = 60.0
"""The same, for kinds that end without a repair."""


class _Rule(NamedTuple):
    """Tries and waits after failures of a kind."""

    first: float = 1.0
    """Seconds until the second try; doubled with each try."""
    longest: float = 30.0
    most: int | None = None
    """Failures in a row after which a repository is parked; a repair is tried before the last."""
    parked: float = PARKED_SECONDS


_RULES: Final = {
    Kind.NETWORK: _Rule(0.5, 15.0),
    Kind.READERS: _Rule(0.5, 15.0),
    Kind.REFUSED: _Rule(0.5, 15.0, most=4, parked=_PASSING_SECONDS),
    Kind.MISSING: _Rule(0.5, 15.0, most=6, parked=_PASSING_SECONDS),
    # Each try waits for the lock.
    Kind.BUSY: _Rule(0.2, 5.0, most=4, parked=_PASSING_SECONDS),
    Kind.HOST: _Rule(most=6, parked=_PASSING_SECONDS),
    Kind.CORRUPTION: _Rule(most=3),
    Kind.REMOVAL: _Rule(most=3),
    Kind.DIVERGED: _Rule(most=1),
    Kind.POISON: _Rule(0.2, 1.0, most=2),
}

MOST_TRIES: Final = {kind: rule.most for kind, rule in _RULES.items() if rule.most is not None}

ENDS_WORKER: Final = frozenset({Kind.HOST, Kind.CORRUPTION, Kind.POISON})
"""Failures after which the worker process ends: they interrupted hg, or are defects. All others are
answers of other programs, or checks of this program. While a server is away there are many of them,
and a new process after each would cost a mirror of many repositories a core."""

_HOST_ERRORS: Final = frozenset(
    {
        errno.ENOSPC,
        errno.EDQUOT,
        errno.EROFS,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.EACCES,
        errno.EPERM,
    }
)

# Errors of Mercurial by the names of their classes: the daemon does not import Mercurial.
_NAMES: Final = {
    "LockHeld": Kind.BUSY,
    "LockUnavailable": Kind.BUSY,
    "LockError": Kind.BUSY,
    "StorageError": Kind.CORRUPTION,
    "RevlogError": Kind.CORRUPTION,
    "CensoredNodeError": Kind.POISON,
    "SidedataHashError": Kind.CORRUPTION,
    "mpatchError": Kind.CORRUPTION,
    "RequirementError": Kind.HOST,
}


def classify(error: BaseException) -> Kind:
    """Return the kind of an error, by its nearest class that has a kind."""
    match error:
        case DivergedError() | PushlogError():
            return Kind.DIVERGED
        case MissingError():
            return Kind.MISSING
        case StaleReadersError():
            return Kind.READERS
        case RemovalError():
            return Kind.REMOVAL
        case CorruptionError():
            return Kind.CORRUPTION
        case UnavailableError() | TimeoutError() | ConnectionError():
            return Kind.NETWORK
        case TemporaryError():
            return Kind.BUSY
        case MemoryError():
            return Kind.HOST
        case _:
            pass
    for ancestor in type(error).__mro__:
        if ancestor.__module__.startswith("mercurial.") and ancestor.__name__ in _NAMES:
            return _NAMES[ancestor.__name__]
    if isinstance(error, OSError):
        if error.errno == errno.EIO:
            return Kind.CORRUPTION
        return Kind.HOST if error.errno in _HOST_ERRORS else Kind.POISON
    return Kind.POISON


def action(kind: Kind, tries: int, *, can_repair: bool) -> Action:
    """Decide about a failure; `tries` counts failures in a row, including this failure."""
    most = MOST_TRIES.get(kind)
    if kind in (Kind.CORRUPTION, Kind.REMOVAL):
        assert most is not None
        return Action.REPAIR if can_repair and tries < most else Action.PARK
    return Action.PARK if most is not None and tries >= most else Action.RETRY


def parked_seconds(kind: Kind) -> float:
    """Return the time after which a repository that such a failure parked is tried again."""
    return _RULES[kind].parked


def delay(kind: Kind, tries: int) -> float:
    """Return the seconds until the next try, which double with each try."""
    return min(_RULES[kind].first * 2.0 ** min(tries - 1, 30), _RULES[kind].longest)
