"""A repository that was made beside another one, put in its place in one step.

A kill at any point leaves the old repository in its place, or the new one. The old one stays where
the new one was made.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog import identities
from hgfleet.registry import moves
from hgfleet.storage import place

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def replace(old: Path, new: Path, path: str, may_replace: Callable[[], bool]) -> bool:
    """Exchange two folders of one repository, whose files are on the disk; False if it may not be.

    `may_replace` is asked while nothing can write to the old one: whether the new one has each push
    of it. Raises TemporaryError where a push or an upgrade is at work there, or where the old
    folder is another repository by now.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(moves.at_rest(old, path))
        except FileNotFoundError:
            raise TemporaryError(f"{path}: it has moved meanwhile; try again") from None
        there = identities.of(old)
        if there not in ("", identities.of(new)):
            raise TemporaryError(
                f"{path}: repository {there} is still there, or came meanwhile; nothing was changed"
            )
        if not may_replace():
            return False
        place.rename_exchange(old, new)
        return True
