"""The age of a person id, to decide whether a thing is older than its owner. Pure.

Entries and tokens of releases before name their owner but not the person id. If such an entry or
token is older than the person's entry in the directory, it was made by a former person of the same
name, or the directory was filled again. SSH sessions import this module, so it imports nothing
slow.
"""

from __future__ import annotations

import time

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

SLACK_S: Final = 3600.0
"""More than the clocks of the directory's host and the primary ever differ."""

_PER_SECOND: Final = 10_000_000
_VERSION_1: Final = 0x01B21DD213814000 / _PER_SECOND
"""Seconds from 1582, where times of version 1 begin (RFC 9562), to 1970."""

_OPENLDAP: Final = 0x1B21DD2138140 / _PER_SECOND
"""OpenLDAP marks its ids as version 1, but adds this number to the seconds since 1970."""

_FIRST: Final = 946_684_800.0
"""2000-01-01, in seconds since 1970."""
_LAST: Final = 7_258_118_400.0
"""2200-01-01, in seconds since 1970."""


def made(person_id: str) -> float | None:
    """Return when an id was made, in seconds since 1970; None for a random id.

    An id holds the time in units of 100 ns, in three parts, the lowest part first.
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

    `created` is RFC 3339 in UTC, with seconds. A thing or a person of unknown age ("") counts as
    not older. A time later than `now` is no evidence: the thing may belong to a former person.
    """
    since = made(person_id) if created and person_id else None
    if since is None:
        return False
    # Times of this form, all after 1970, sort as their texts do.
    is_later = now is not None and created > _text(now + SLACK_S)
    return is_later or created < _text(since - SLACK_S)


def _text(moment: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(moment))
