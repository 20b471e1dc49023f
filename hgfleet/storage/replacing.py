"""Exchange of a repository for a rebuilt copy, in a single step.

A kill at any point leaves either the old repository in its place, or the new. The old repository
stays where the new repository was made.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hgfleet.core.errors import TemporaryError
from hgfleet.pushlog import identities
from hgfleet.registry.provision import moves
from hgfleet.storage import work_folder

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


def replace(old: Path, new: Path, path: str, may_replace: Callable[[], bool]) -> bool:
    """Exchange two folders of a repository, whose files are on the disk; False if it may not be.

    `may_replace` is called while no process can write to the old repository: it returns whether the
    new repository has each push. Raises TemporaryError if a push or an upgrade is at work there, or
    if the old folder is another repository by now.
    """
    with contextlib.ExitStack() as stack:
        try:
            stack.enter_context(moves.at_rest(old, path))
        except FileNotFoundError:
            raise TemporaryError(f"{path}: it has moved in the meantime; try again") from None
        there = identities.of(old)
        if there not in ("", identities.of(new)):
            raise TemporaryError(
                f"{path}: repository {there} is still there, or is there now; nothing was changed"
            )
        if not may_replace():
            return False
        work_folder.rename_exchange(old, new)
        return True
