"""show a changeset without a date as of 1970-01-01, instead of failing.

Core reads the date of a changeset as two numbers wherever it shows, searches or verifies the
changeset. If the date is not a number, all of these end in a traceback: the log, the graph, feeds,
archives and ``hg verify`` of the whole repository. New changesets with such dates are refused (see
the extension policies), but a repository may have old ones, and an operator may admit a history
that has them (``accept-dates: any`` in the registry).

==============================  ==============================================================
stored                          shown
==============================  ==============================================================
two integers, 32 bits, a zone   as core does
a finite number with decimals   as core does, which cuts them off
anything else                   1970-01-01 00:00 UTC
==============================  ==============================================================

The stored bytes and hashes do not change; a client that pulls them shows what its own hg makes of
them. Enable it for everything that runs on the server::

  [extensions]
  any_date = /opt/hgfleet/current/hgext/any_date.py
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from mercurial import changelog

from hgfleet.policies.metadata import MAX_SECONDS, MAX_ZONE

if TYPE_CHECKING:
    from collections.abc import Callable

testedwith = b"7.2"
minimumhgversion = b"7.2"

UNKNOWN = (0.0, 0)
"""Seconds and zone of a changeset without a date."""


def uisetup(_ui: Any) -> None:
    """Wrap the only property through which core 7.2 reads dates; it has no hook there."""
    revision = changelog.changelogrevision
    if not getattr(revision.date.fget, "is_of_any_date", False):
        revision.date = property(dated(revision.date.fget))


def dated(original: Callable[[Any], tuple[float, int]]) -> Callable[[Any], tuple[float, int]]:
    """Return core's reading of a date if the date is valid, else 1970-01-01."""

    def date(revision: Any) -> tuple[float, int]:
        try:
            seconds, zone = original(revision)
        except (ValueError, IndexError, OverflowError):
            return UNKNOWN
        # Comparisons with nan are false.
        if -MAX_SECONDS <= seconds < MAX_SECONDS and -MAX_ZONE < zone < MAX_ZONE:
            return seconds, zone
        return UNKNOWN

    date.is_of_any_date = True  # type: ignore[attr-defined]
    return date
