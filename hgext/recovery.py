"""roll back the transaction of a process that was killed.

A process that is killed in a transaction (out of memory, SIGKILL, a crash of the host) leaves its
journal. Core refuses every later push until an operator runs :hg:`recover`, and shows the
half-written changes to readers meanwhile: a client that pushes them again reads "no changes found",
and loses them at the rollback.

With this extension a process that may write rolls such a transaction back, under the lock of the
repository: when it opens the repository, before it says what the repository has, and again when it
begins a transaction. A journal whose transaction has a living process is left alone, because that
process has the lock.

==============================  ==============================================================
state                           result
==============================  ==============================================================
no journal                      nothing; one look at a file
a journal, the lock is held     nothing: a transaction is under way
a journal without a process     the transaction is rolled back
a rollback fails                the journal stays, and core refuses to write as ever
==============================  ==============================================================

A lock that was taken before this host started, in another PID namespace, is broken too: containers
get another one at each start, and core takes such a lock for one of another machine for ever.

Each rollback is one line of the system log (``event=recovery``). Enable it for all processes that
write on the server::

  [extensions]
  recovery = /opt/hgfleet/current/hgext/recovery.py
"""

from __future__ import annotations

import syslog
from typing import Any

from mercurial import encoding, error, extensions, localrepo, transaction
from mercurial import lock as lockmod

from hgfleet.core import logfmt
from hgfleet.hg import stale_lock
from hgfleet.hg.hooks import text, writer

testedwith = b"7.2"
minimumhgversion = b"7.2"

JOURNAL = b"journal"
"""File of an open transaction in the store; closing it begins with its rename to `undo` (7.2)."""


def extsetup(_ui: Any) -> None:
    """Wrap the decision of core on locks whose process is gone (7.2)."""
    extensions.wrapfunction(lockmod.lock, "_lockshouldbebroken", _is_stale)


def _is_stale(original: Any, lock: Any, locker: bytes | None) -> bool:
    if original(lock, locker):
        return True
    if not locker:
        return False
    try:
        locked_at = lock.vfs.lstat(lock.f).st_mtime
    except OSError:
        return False
    own = lockmod.lock._host or b""  # noqa: SLF001
    return stale_lock.is_of_earlier_boot(locker, own, locked_at, stale_lock.started())


def reposetup(_ui: Any, repo: Any) -> None:
    """Roll back what a killed process left, if this process may write."""
    if not repo.local():
        return
    repo.__class__ = _recovering(repo.__class__)
    # Web workers have no name and no right to write.
    if writer().name and repo.svfs.exists(JOURNAL):
        try:
            lock = repo.lock(wait=False)
        except (OSError, error.LockError):
            return
        try:
            recover(repo.unfiltered())
        finally:
            lock.release()


def _recovering(base: Any) -> Any:
    class _RecoveringRepository(base):  # type: ignore[misc]  # core has no published types
        def transaction(self, *arguments: Any, **named: Any) -> Any:
            if self.currenttransaction() is None and self.currentlock() is not None:
                recover(self.unfiltered())
            return super().transaction(*arguments, **named)

    return _RecoveringRepository


def recover(repo: Any) -> None:
    """Roll back an interrupted transaction of a locked repository, if there is one."""
    if not repo.svfs.exists(JOURNAL):
        return
    said: list[bytes] = []
    transaction.rollback(
        repo.svfs, repo.vfs_map, JOURNAL, said.append, checkambigfiles=localrepo.cachedfiles
    )
    repo.invalidate(clearfilecache=True)
    path = text(repo.ui.config(b"hgfleet", b"path") or repo.root)
    detail = text(b"".join(said)).strip() or None
    line = logfmt.line("recovery", repository=path, user=writer().name or None, detail=detail)
    repo.ui.log(b"recovery", b"%s\n", encoding.strtolocal(line))
    syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_WARNING, line)
