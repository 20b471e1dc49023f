"""Identity of the repository in a folder, by two witnesses: the file in its store, and its log.

A repository of an older release has no file, and a new repository has no log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core import identity
from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import log_file

if TYPE_CHECKING:
    from pathlib import Path


def logged(place: Path) -> str:
    """Return the identity in the push log of the repository at a place; "" if it is unreadable.

    `hgfleet pushlog verify` reports an unreadable log, and no push continues it.
    """
    try:
        return log_file.tip(place / ".hg/store" / log_file.NAME).repository
    except (OSError, PushlogError):
        return ""


def of(place: Path) -> str:
    """Return the identity of the repository at a place: from its store, else from its push log."""
    return identity.of(place) or logged(place)
