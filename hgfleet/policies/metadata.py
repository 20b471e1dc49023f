"""Malformed metadata of changesets, which every repository refuses.

Core's client writes the five fields of a changeset in a fixed form. Another client can send any
bytes, and core's server stores them unread: a date that is not a number makes every log, page and
feed that shows the changeset fail, for each user who pulls it. So this check reads the stored
bytes of every added changeset, before any other policy reads them, and cannot be switched off.

======== ===========================================================================================
field    accepted
======== ===========================================================================================
manifest 40 hexadecimal digits
user     a line that is not empty, without control characters, at most 1 KiB
date     two integers: seconds since 1970 in 32 bits with a sign, and the zone's seconds within a
         day (mercurial.utils.dateutil.parsedate has these limits; a floating point number has a
         decimal fraction in old histories and is `nan` or `inf` in hostile changesets)
extra    pairs that core decodes (mercurial.changelog.decodeextra)
message  any bytes: core shows bytes that are not UTF-8 as Latin-1
======== ===========================================================================================

The date and the user of an obsolescence marker are checked too. A date of `nan` equals no other
date, not even its own copy, so each pull and push of such a marker would store it once more. A
changeset in a marker has a hash of 20 bytes that is not the hash of the working directory: hg
raises an exception when it looks up any other hash.

A registry entry with `accept-dates: any` admits a history with other dates, which
`hgext/any_date.py` shows as 1970-01-01.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, ClassVar, Final, NamedTuple

from mercurial import changelog

from hgfleet.core.text import shown
from hgfleet.policies.base import AppliesTo, Marker, Policy, Push
from hgfleet.policies.names import CONTROL

if TYPE_CHECKING:
    from collections.abc import Iterator

MAX_USER: Final = 1024
"""Bytes of the user's name; a name with a mail address has less than 100."""

MAX_SECONDS: Final = 2**31
"""Core stores and shows dates from -MAX_SECONDS up to, but without, MAX_SECONDS."""

MAX_ZONE: Final = 24 * 60 * 60
"""Seconds; the zone of a date is less than this away from UTC. Those in use are within 14 hours."""

_WORKING_DIRECTORY: Final = b"\xff" * 20
_NODE_BYTES: Final = 20

_INTEGER: Final = re.compile(rb"-?[0-9]{1,11}")
_MANIFEST: Final = re.compile(rb"[0-9a-f]{40}")

_REWRITE: Final = "write the changeset again with hg commit --amend"


class Metadata(Policy):
    """Metadata that hg cannot read back, in the changesets and markers of every push."""

    name: ClassVar[str] = "metadata"
    summary: ClassVar[str] = "no malformed user, date, extra field or name in a changeset or marker"
    applies_to: ClassVar[AppliesTo] = "every change"

    def __init__(self, *, any_date: bool = False) -> None:
        super().__init__({})
        self._any_date = any_date

    def check(self, push: Push) -> Iterator[str]:
        """Check the stored bytes of each added changeset, and each marker."""
        for node, text in push.stored_texts():
            for problem in problems(text, any_date=self._any_date):
                yield f"{node[:12]} has {problem}"
        for marker in push.markers():
            if wrong := marker_problem(marker):
                yield (
                    f"the obsolescence marker of {marker.node[:12]} has {wrong}: remove it (hg "
                    "debugobsolete, then hg debugobsolete --delete with its index)"
                )


def problems(text: bytes, *, any_date: bool = False) -> Iterator[str]:
    """Yield the problem of each malformed field of a stored changeset, with the way out."""
    header = _header(text)
    if header is None:
        yield f"no manifest, user, date and message on lines of their own: {_REWRITE}"
        return
    user = user_problem(header.user)
    if user:
        yield f"{user}: {_REWRITE} --user"
    if not any_date and not is_date(header.date):
        yield (
            f"the date {_quoted(header.date)}, expected seconds since 1970 in 32 bits and the "
            f"zone's seconds within a day: {_REWRITE} --date, or ask an operator to admit an old "
            "history"
        )
    if not _decodes(header.extra):
        yield f"an extra field that cannot be decoded: {_REWRITE}"


def is_readable(text: bytes) -> bool:
    """Whether core can read a stored changeset while it arrives, before any policy is evaluated."""
    header = _header(text)
    return header is not None and _decodes(header.extra)


def user_problem(user: bytes) -> str | None:
    """Return the problem of a changeset's user, None if there is none."""
    if len(user) > MAX_USER:
        return f"a user of {len(user)} bytes, more than {MAX_USER}"
    text = user.decode("utf-8", "replace")
    if not text.strip():
        return "an empty user"
    if CONTROL.search(text):
        return f"a control character in the user {_quoted(user)}"
    return None


def is_date(field: bytes) -> bool:
    """Whether a date is two integers that core's own client could have written."""
    seconds, _, zone = field.partition(b" ")
    if not _INTEGER.fullmatch(seconds) or not _INTEGER.fullmatch(zone):
        return False
    return -MAX_SECONDS <= int(seconds) < MAX_SECONDS and abs(int(zone)) < MAX_ZONE


def marker_problem(marker: Marker) -> str | None:
    """Return the problem of an obsolescence marker, None if there is none."""
    seconds, zone = marker.date
    # Comparisons with nan are false.
    if not (-MAX_SECONDS <= seconds < MAX_SECONDS and -MAX_ZONE < zone < MAX_ZONE):
        return f"the date {seconds:g} {zone}, expected a date that a changeset may have"
    for node in marker.nodes:
        if len(node) != _NODE_BYTES or node == _WORKING_DIRECTORY:
            return f"the changeset {node.hex()[:12]} of {len(node)} bytes, which no repository has"
    # Core leaves the user out if the client has no user name.
    return user_problem(marker.user) if marker.user else None


class _Header(NamedTuple):
    """The fields before the list of files; `extra` is empty where there is none."""

    user: bytes
    date: bytes
    extra: bytes


def _header(text: bytes) -> _Header | None:
    """Split a stored changeset at the line ends and blanks where core does."""
    lines = text.split(b"\n", 3)
    if len(lines) < 4 or not _MANIFEST.fullmatch(lines[0]):
        return None
    if not lines[3].startswith(b"\n") and b"\n\n" not in lines[3]:
        return None
    fields = lines[2].split(b" ", 2)
    return _Header(lines[1], b" ".join(fields[:2]), b"".join(fields[2:]))


def _decodes(extra: bytes) -> bool:
    try:
        changelog.decodeextra(extra)
    except ValueError:
        return False
    return True


def _quoted(value: bytes) -> str:
    return f'"{shown(value.decode("utf-8", "replace"), 60)}"'
