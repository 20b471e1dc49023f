"""read a repository to the end from the store that was there when it was opened.

``hgfleet storage upgrade`` writes a repository's store anew and exchanges the old folder for the
new one, in one step. Mercurial opens the files of the store by their paths, one after the other: a
clone that began with the index of the old store would go on with the data of the new one, whose
offsets are others.

With this extension a process opens the folder ``.hg/store`` once and reaches all files of the
store through it (``/proc/self/fd/N``). A folder that was exchanged or renamed is still the same
folder for those who have it open, so readers end as they began, and whoever opens the repository
later gets the new store. It takes effect for whatever runs with it::

  [extensions]
  pinned_store = /opt/hgfleet/current/hgext/pinned_store.py

- Each reader holds a shared ``flock`` on the folder. An old store is removed when nobody holds one.
- Whoever takes the lock to write moves to the store that is there now: a push that waited for the
  upgrade goes on in the new store. If file names are encoded differently there, which is the case
  for stores older than Mercurial 1.7, the push is refused and has to be made again.

Where there is no ``/proc``, or the folder cannot be opened, all is as without the extension.
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
"""How often a writer looks for the current store; it changes once in years."""


class _SteadyVfs(vfsmod.vfs):  # type: ignore[misc]  # no type hints in core
    """The store's folder by a descriptor, which lives as long as anything that may read from it."""

    def __init__(self, place: bytes, descriptor: int) -> None:
        self.steady_place, self.steady_descriptor = place, descriptor
        super().__init__(b"/proc/self/fd/%d" % descriptor, cacheaudited=True)

    def __del__(self) -> None:
        os.close(self.steady_descriptor)

    def steady_is_current(self) -> bool:
        """Whether the folder is still the one at the store's place."""
        there = Path(os.fsdecode(self.steady_place)).stat()
        return os.path.samestat(there, os.fstat(self.steady_descriptor))

    def steady_follow(self) -> None:
        """Move to the folder that is at the store's place now; raises Abort where it cannot."""
        fresh = os.open(self.steady_place, _OPEN)
        try:
            if (_requirements(self.steady_descriptor) ^ _requirements(fresh)) & ENCODINGS:
                raise error.Abort(
                    b"the storage of this repository was renewed after this session began",
                    hint=b"nothing is lost; try again",
                )
            fcntl.flock(fresh, fcntl.LOCK_SH)
            # All paths of this store go through the number of the descriptor.
            os.dup2(fresh, self.steady_descriptor, inheritable=False)
        finally:
            os.close(fresh)


def _requirements(descriptor: int) -> set[bytes]:
    return scmutil.readrequires(vfsmod.vfs(b"/proc/self/fd/%d" % descriptor), True)  # type: ignore[no-any-return]


_plain: list[bool] = []
"""Not empty while stores are to be reached by their paths."""


def uisetup(_ui: Any) -> None:
    """Wrap what makes the store of a repository, and what exchanges stores by their paths.

    7.2: `localrepo.makestore`; and `upgrade.upgraderepo`, the one place in core that moves a store
    (`hg debugupgraderepo --run`): by a path that follows it, it would lose both.
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
    def steady(base: bytes) -> Any:
        return _open(base, requirements) or vfstype(base)

    return original(ui, requirements, path, steady if path.startswith(b"/") else vfstype, **more)


def _open(base: bytes, requirements: set[bytes]) -> _SteadyVfs | None:
    if _plain or not base.endswith(_PLACE):
        return None
    try:
        descriptor = os.open(base, _OPEN)
    except OSError:
        return None
    try:
        through = Path(f"/proc/self/fd/{descriptor}").stat()
        is_steady = os.path.samestat(through, os.fstat(descriptor))
        # Nobody waits here: who asks for more than a share removes a store that has gone already.
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except OSError:
        is_steady = False
    if not is_steady:
        os.close(descriptor)
        return None
    steady = _SteadyVfs(base, descriptor)
    # The requirements were read before the folder was opened.
    if b"share-safe" in requirements and (_requirements(descriptor) ^ requirements) & ENCODINGS:
        raise error.Abort(
            b"the storage of this repository is renewed at this moment",
            hint=b"nothing is lost; try again",
        )
    return steady


def reposetup(_ui: Any, repo: Any) -> None:
    """Have whoever takes the lock write to the store that is at its place."""
    if not repo.local():
        return
    vfs = getattr(repo.store, "rawvfs", None)
    if not isinstance(vfs, _SteadyVfs):
        return
    steady = vfs

    class _SteadyRepository(repo.__class__):  # type: ignore[misc]
        def lock(self, *arguments: Any, **named: Any) -> Any:
            if self.currentlock() is not None:
                return super().lock(*arguments, **named)
            for _ in range(STEPS):
                lock = super().lock(*arguments, **named)
                if steady.steady_is_current():
                    return lock
                lock.release()
                steady.steady_follow()
            raise error.Abort(b"the storage of this repository does not settle")

    repo.__class__ = _SteadyRepository
