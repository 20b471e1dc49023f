"""Moves of user repositories to another path on disk.

The registry names the new path first, with the old path as `moved_from`; then the folder moves. A
run that finds `moved_from` and the folder still at the old path finishes the move. A folder that a
restore brought back at a former path is moved by the note of the rename
(`registry/dynamic/renames.py`).
"""

from __future__ import annotations

import contextlib
import fcntl
import os
from typing import TYPE_CHECKING, Final

from hgfleet.core import identity
from hgfleet.core.errors import TemporaryError

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Registry

LOCK_WAIT_S: Final = 30
"""Seconds that a move waits for a push."""


def is_unfinished(
    root: Path, path: str, entry: Entry | None, static: Registry, raw: Mapping[str, object]
) -> bool:
    """Whether the folder of an entry is still at its old path.

    A repository that was registered at the old path since then is another repository.
    """
    if entry is None or entry.moved_from is None:
        return False
    old = entry.moved_from
    if old in raw or old in static.repositories:
        return False
    if not (root / old / ".hg").is_dir() or os.path.lexists(root / path / ".hg"):
        return False
    # On a mirror, and after a restore, another repository's folder may be there.
    return identity.of(root / old) in ("", entry.identity)


def former(
    root: Path, path: str, entry: Entry, static: Registry, found: Dynamic, *, is_mirror: bool
) -> str | None:
    """Return the former path where the folder of an entry is; None if it is at none (I/O).

    A backup from before a rename brings the folder back at its former path, to which the note of
    the rename still leads; the folder has to have the identity of the entry. A mirror moves such
    folders when it follows the registry.
    """
    if is_unfinished(root, path, entry, static, found.raw):
        return entry.moved_from
    if is_mirror or not entry.identity or os.path.lexists(root / path / ".hg"):
        return None
    for old, note in found.renamed.items():
        is_free = old not in found.raw and old not in static.repositories
        if note.to == path and is_free and identity.of(root / old) == entry.identity:
            return old
    return None


@contextlib.contextmanager
def at_rest(place: Path, path: str, wait: int = LOCK_WAIT_S) -> Iterator[None]:
    """Keep pushes and storage upgrades away from a repository, even if it moves during the block.

    Raises TemporaryError if a push or upgrade is at work for longer than `wait` seconds.
    """
    from mercurial import error, lock, vfs

    control = os.open(place / ".hg", os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        try:
            # hgfleet.storage.work_folder: the claim of an upgrade.
            fcntl.flock(control, fcntl.LOCK_EX | fcntl.LOCK_NB)
            held = lock.lock(vfs.vfs(os.fsencode(place / ".hg/store")), b"lock", wait, desc=b"move")
        except (BlockingIOError, error.LockError):
            raise TemporaryError(
                f"A push to {path} is under way, or an upgrade of its storage: try again in a "
                "minute; nothing was changed."
            ) from None
        try:
            yield
        finally:
            # By the folder, because its path may belong to another repository by now.
            held.held = 0
            with contextlib.suppress(FileNotFoundError):
                os.unlink("store/lock", dir_fd=control)
    finally:
        os.close(control)
