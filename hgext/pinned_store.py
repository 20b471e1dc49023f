"""pin the store of a repository: readers keep the store that they opened during a storage upgrade.

``hgfleet storage upgrade`` writes a new store for a repository and exchanges the old folder for the
new folder in one step. Mercurial opens the files of the store by their paths, one after the other:
a clone that began with the index of the old store would go on with the data of the new store, at
wrong offsets.

With this extension a process opens the folder ``.hg/store`` once and reaches all files of the
store through it (``/proc/self/fd/N``). A process that has the folder open keeps it after the
exchange, so a reader ends as it began, and a process that opens the repository later gets the new
store. It takes effect for all processes that load it::

  [extensions]
  pinned_store = /opt/hgfleet/current/hgext/pinned_store.py

- Each reader holds a shared ``flock`` on the folder. An old store is removed after its last reader.
- A writer that takes the lock moves to the current store: a push that waited for the upgrade goes
  on in the new store. If the new store encodes file names differently, as for stores older than
  Mercurial 1.7, the push is refused and has to be made again.

If there is no ``/proc``, or the folder cannot be opened, the extension has no effect.
"""

from __future__ import annotations

import fcntl
import os
from pathlib import Path
from typing import Any

from mercurial import error, extensions, localrepo, scmutil, upgrade
from mercurial import vfs as vfsmod
from mercurial.repo import factory

testedwith = b"7.2"
minimumhgversion = b"7.2"

_PLACE = b"/store"
_OPEN = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC

ENCODINGS = frozenset({b"store", b"fncache", b"dotencode", b"fragile-plain-encode"})
"""Requirements that decide about the names of files in a store."""

STEPS = 8
"""The tries of a writer to follow the current store, which changes once in years."""


class _PinnedVfs(vfsmod.vfs):  # type: ignore[misc]  # no type hints in core
    """The store's folder by a descriptor, which lives as long as anything that may read from it."""

    def __init__(self, place: bytes, descriptor: int) -> None:
        self.pinned_place, self.pinned_descriptor = place, descriptor
        super().__init__(b"/proc/self/fd/%d" % descriptor, cacheaudited=True)

    def __del__(self) -> None:
        os.close(self.pinned_descriptor)

    def pinned_is_current(self) -> bool:
        """Whether the folder is still at the store's place."""
        there = Path(os.fsdecode(self.pinned_place)).stat()
        return os.path.samestat(there, os.fstat(self.pinned_descriptor))

    def pinned_follow(self) -> None:
        """Move to the folder that is at the store's place now; raises Abort if it cannot."""
        fresh = os.open(self.pinned_place, _OPEN)
        try:
            if (_requirements(self.pinned_descriptor) ^ _requirements(fresh)) & ENCODINGS:
                raise error.Abort(
                    b"the storage of this repository was renewed after this session began",
                    hint=b"nothing is lost; try again",
                )
            fcntl.flock(fresh, fcntl.LOCK_SH)
            # All paths of this store go through the number of the descriptor.
            os.dup2(fresh, self.pinned_descriptor, inheritable=False)
        finally:
            os.close(fresh)


def _requirements(descriptor: int) -> set[bytes]:
    return scmutil.readrequires(vfsmod.vfs(b"/proc/self/fd/%d" % descriptor), True)  # type: ignore[no-any-return]


_plain: list[bool] = []
"""Not empty while stores are opened by their paths."""


def uisetup(_ui: Any) -> None:
    """Wrap the functions that make the store of a repository and that move stores by their paths.

    7.2: `localrepo.makestore`; and `upgrade.upgraderepo`, the only function of core that moves a
    store (`hg debugupgraderepo --run`): by a path that follows the store, it would lose both.
    """
    extensions.wrapfunction(localrepo, "makestore", _make_store)
    extensions.wrapfunction(upgrade, "upgraderepo", _upgrade_repository)


def _upgrade_repository(original: Any, ui: Any, repo: Any, *arguments: Any, **named: Any) -> Any:
    _plain.append(True)
    try:
        return original(ui, factory.repository(ui, repo.root), *arguments, **named)
    finally:
        _plain.pop()


def _make_store(
    original: Any, ui: Any, requirements: set[bytes], path: bytes, vfstype: Any, **more: Any
) -> Any:
    def pinned(base: bytes) -> Any:
        return _open(base, requirements) or vfstype(base)

    return original(ui, requirements, path, pinned if path.startswith(b"/") else vfstype, **more)


def _open(base: bytes, requirements: set[bytes]) -> _PinnedVfs | None:
    if _plain or not base.endswith(_PLACE):
        return None
    try:
        descriptor = os.open(base, _OPEN)
    except OSError:
        return None
    try:
        through = Path(f"/proc/self/fd/{descriptor}").stat()
        is_same = os.path.samestat(through, os.fstat(descriptor))
        # This never waits: only the removal of an old store takes an exclusive lock.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        is_same = False
    if not is_same:
        os.close(descriptor)
        return None
    pinned = _PinnedVfs(base, descriptor)
    # The requirements were read before the folder was opened.
    if b"share-safe" in requirements and (_requirements(descriptor) ^ requirements) & ENCODINGS:
        raise error.Abort(
            b"the storage of this repository is renewed at this moment",
            hint=b"nothing is lost; try again",
        )
    return pinned


def reposetup(_ui: Any, repo: Any) -> None:
    """Make each writer that takes the lock write to the current store."""
    if not repo.local():
        return
    vfs = getattr(repo.store, "rawvfs", None)
    if not isinstance(vfs, _PinnedVfs):
        return
    pinned = vfs

    class _PinnedRepository(repo.__class__):  # type: ignore[misc]
        def lock(self, *arguments: Any, **named: Any) -> Any:
            if self.currentlock() is not None:
                return super().lock(*arguments, **named)
            for _ in range(STEPS):
                lock = super().lock(*arguments, **named)
                if pinned.pinned_is_current():
                    return lock
                lock.release()
                pinned.pinned_follow()
            raise error.Abort(b"the storage of this repository does not settle")

    repo.__class__ = _PinnedRepository
