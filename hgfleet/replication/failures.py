"""Failures of a mirror's work on a repository: their kinds, and what follows from each. Pure.

| kind | example | what follows |
| --- | --- | --- |
| network | the source does not answer | wait and try again; nothing is destroyed |
| missing | the registry's documents have not created it yet | try again |
| readers | the mirror's registry is older than the push | bring documents, try again |
| busy | another process holds the lock | try again soon |
| host | disk full, too many open files | wait and try again |
| corruption | a revlog fails its checks | clone again beside, verify, exchange |
| removal | the primary stripped changesets | clone again beside, exchange |
| diverged | the mirror has changesets of its own | park the repository |
| poison | the same push fails each time | park the repository, go on with the others |
"""

from __future__ import annotations

import errno
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from hgfleet.core.errors import HgfleetError, PushlogError, TemporaryError, UnavailableError


class Kind(StrEnum):
    """Kind of a failure."""

    NETWORK = "network"
    MISSING = "missing"
    READERS = "readers"
    BUSY = "busy"
    HOST = "host"
    CORRUPTION = "corruption"
    REMOVAL = "removal"
    DIVERGED = "diverged"
    POISON = "poison"


class MissingError(HgfleetError):
    """The repository is not on this mirror yet."""


class StaleReadersError(TemporaryError):
    """The registry of this mirror is older than a push: its readers may have changed since."""


class DivergedError(HgfleetError):
    """The mirror's repository has another history than the primary's."""


class RemovalError(HgfleetError):
    """A record of the primary removes changesets."""


class CorruptionError(HgfleetError):
    """Data of the mirror's repository is damaged."""


class Action(StrEnum):
    """What follows from a failure."""

    RETRY = "retry"
    REPAIR = "repair"
    PARK = "park"


@dataclass(frozen=True, slots=True)
class Failure:
    """A failure, with a sentence for an operator."""

    kind: Kind
    reason: str


ENDS_WORKER: Final = frozenset({Kind.HOST, Kind.CORRUPTION, Kind.POISON})
"""Failures after which the worker process ends: they came out of the middle of hg, or are
defects. The others are answers of other programs and checks of this one. They come in numbers
while a server is away, and a process for each would cost a mirror of many repositories a core."""

POISON_TRIES: Final = 2
"""How often a push may fail for a reason of its own before its repository is parked."""

PARKED_SECONDS: Final = 300.0
"""The time after which a parked repository is tried again: a repair needs no further command."""

_FIRST_DELAY: Final = {
    Kind.NETWORK: 0.5,
    Kind.MISSING: 0.5,
    Kind.READERS: 0.5,
    Kind.BUSY: 0.2,
    Kind.POISON: 0.2,
}
_LONGEST_DELAY: Final = {
    Kind.NETWORK: 15.0,
    Kind.MISSING: 15.0,
    Kind.READERS: 15.0,
    Kind.BUSY: 5.0,
    Kind.POISON: 1.0,
}

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

# Errors of Mercurial by the names of their classes: the daemon does without Mercurial.
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
    """Return the kind of an error: of its nearest class that has one."""
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
        case UnavailableError() | TemporaryError() | TimeoutError() | ConnectionError():
            return Kind.NETWORK
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
    """Decide what follows from a failure; `tries` counts failures in a row, this one included."""
    anew = kind in (Kind.CORRUPTION, Kind.REMOVAL)
    if anew and can_repair and tries <= POISON_TRIES:
        return Action.REPAIR
    if anew or kind is Kind.DIVERGED:
        return Action.PARK
    if kind is Kind.POISON and tries >= POISON_TRIES:
        return Action.PARK
    return Action.RETRY


def delay(kind: Kind, tries: int) -> float:
    """Return the seconds until the next try, which double from try to try."""
    first = _FIRST_DELAY.get(kind, 1.0)
    return min(first * 2.0 ** min(tries - 1, 30), _LONGEST_DELAY.get(kind, 30.0))
