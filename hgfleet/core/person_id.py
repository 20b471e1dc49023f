"""When a person id was made, as far as it tells: whether a thing is older than its owner. Pure.

Entries and tokens of releases before have the name of their owner only. If one is older than the
entry of today's person in the directory, a former person of the name made it, or the directory was
filled anew. SSH sessions import this module, so it imports nothing slow.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

SLACK_S: Final = 3600.0
"""Clocks of the directory's host and of the primary are never that far apart."""

_PER_SECOND: Final = 10_000_000
_VERSION_1: Final = 0x01B21DD213814000 / _PER_SECOND
"""Seconds from 1582, where times of version 1 begin (RFC 9562), to 1970."""

_OPENLDAP: Final = 0x1B21DD2138140 / _PER_SECOND
"""OpenLDAP says version 1 and adds so many seconds to those since 1970."""

_FIRST: Final = 946_684_800.0
"""2000-01-01, in seconds since 1970."""
_LAST: Final = 7_258_118_400.0
"""2200-01-01, in seconds since 1970."""


def made(person_id: str) -> float | None:
    """Return when an id was made, in seconds since 1970; None where it does not tell (random ids).

    An id has the time in units of 100 ns, in three parts, the lowest first.
    """
    low, middle, high = person_id.split("-")[:3]
    if high[0] != "1":
        return None
    seconds = int(high[1:] + middle + low, 16) / _PER_SECOND
    for offset in (_OPENLDAP, _VERSION_1):
        if _FIRST <= seconds - offset < _LAST:
            return seconds - offset
    return None


def is_older(created: str, person_id: str, now: float | None = None) -> bool:
    """Whether a thing was made before the person's entry.

    `created` is RFC 3339 in UTC, with seconds. A thing or a person whose time is not known ("") is
    not older. A time later than `now` tells nothing: the thing may be of a former person.
    """
    since = made(person_id) if created and person_id else None
    if since is None:
        return False
    # Times of this form, of which none is before 1970, are ordered as their texts are.
    is_later = now is not None and created > _text(now + SLACK_S)
    return is_later or created < _text(since - SLACK_S)


def _text(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
