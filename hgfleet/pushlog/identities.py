"""Identity of the repository in a folder, by its two witnesses: the file in its store, and its log.

A repository of a release before has no file, and a new one has no log.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core import identity
from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import log_file

if TYPE_CHECKING:
    from pathlib import Path


def logged(place: Path) -> str:
    """Return the identity in the push log of the repository at a place; "" without a readable one.

    `hgfleet pushlog verify` tells of one that cannot be read, and no push goes on from it.
    """
    try:
        return log_file.tip(place / ".hg/store" / log_file.NAME).repository
    except (OSError, PushlogError):
        return ""


def of(place: Path) -> str:
    """Return the identity of the repository at a place: of its store, else of its push log."""
    return identity.of(place) or logged(place)
