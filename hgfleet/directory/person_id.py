"""When a person id was made, as far as it tells: whether a thing is older than its owner. Pure.

Entries and tokens of releases before have the name of their owner only. If one is older than the
entry of today's person in the directory, a former person of the name made it, or the directory was
filled anew.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

from hgfleet.core.stored_time import past

SLACK_S: Final = 3600.0
"""Clocks of the directory's host and of the primary are never that far apart."""

_PER_SECOND: Final = 10_000_000
_VERSION_1: Final = 0x01B21DD213814000 / _PER_SECOND
"""Seconds from 1582, where times of version 1 begin (RFC 9562), to 1970."""

_OPENLDAP: Final = 0x1B21DD2138140 / _PER_SECOND
"""OpenLDAP says version 1 and adds so many seconds to those since 1970."""

_FIRST: Final = datetime(2000, 1, 1, tzinfo=UTC).timestamp()
_LAST: Final = datetime(2200, 1, 1, tzinfo=UTC).timestamp()


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


def is_older(created: str, person_id: str, now: float) -> bool:
    """Whether a thing was made before the person's entry; `created` is RFC 3339 in UTC.

    A time from the future tells nothing, so the thing may be of a former person.
    """
    since = made(person_id)
    if since is None:
        return False
    when = datetime.strptime(created, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return past(when.timestamp(), now, SLACK_S) + SLACK_S < since
