"""roll back the transaction, or complete the removal, of a process that was killed.

A process that is killed in a transaction (out of memory, SIGKILL, a crash of the host) leaves its
journal. Core refuses every later push until an operator runs :hg:`recover`, and shows the
half-written changes to readers until then: a client that pushes them again reads "no changes
found", and loses them at the rollback.

With this extension a process that may write rolls such a transaction back, under the lock of the
repository: when it opens the repository, before it reports the content of the repository, and again
when it begins a transaction. A journal whose transaction has a living process is left as it is,
because that process has the lock.

:hg:`strip` has several transactions, and another transaction for its record. A killed strip leaves
an intent in the store (``pushlog-removal``). The next process that may write withdraws it if
nothing was removed, else it completes the removal and its record in the name of the user who began
it. Load ``pushlog`` and ``replicated`` before this extension, so that this happens, and mirrors
receive it, before clients are told the content.

==============================  ==============================================================
state                           result
==============================  ==============================================================
no journal                      nothing; the cost is a stat of a file
a journal, the lock is held     nothing: a transaction is under way
a journal without a process     the transaction is rolled back
a rollback fails                the journal stays, and core refuses to write as ever
an intent of a removal          the removal is completed and recorded, or the intent withdrawn
an intent that cannot be        it stays; a push is refused if the log does not explain the store
completed, a mirror
==============================  ==============================================================

A lock that was taken before this host started, in another PID namespace, is broken too: containers
get another namespace at each start, and core always takes such a lock for another machine's.

Each rollback is a line in the system log (``event=recovery``). Enable it for all processes that
write on the server::

  [extensions]
  recovery = /opt/hgfleet/current/hgext/recovery.py
"""

from __future__ import annotations

import io
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

REMOVAL = b"pushlog-removal"
"""File of a removal under way, in the store (`hgfleet.pushlog.removal.NAME`)."""

_NO_WAIT = {(b"hgfleet", b"replication-wait"): b"0"}


def extsetup(_ui: Any) -> None:
    """Wrap core's decisions on locks whose process is gone, and the journal of a strip (7.2)."""
    extensions.wrapfunction(lockmod.lock, "_lockshouldbebroken", _is_stale)
    extensions.wrapfunction(transaction.transaction, "endgroup", _end_group)


def _end_group(original: Any, opened: Any) -> Any:
    """Write the entries of a strip to the journal at once.

    Core writes an entry for each file, with the size that a rollback cuts the file to. After a kill
    between two entries, a rollback would cut only a part of the files.
    """
    journal = opened._file  # noqa: SLF001
    opened._file = io.BytesIO()  # noqa: SLF001
    try:
        return original(opened)
    finally:
        entries, opened._file = opened._file.getvalue(), journal  # noqa: SLF001
        journal.write(entries)
        journal.flush()


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
    """Roll back the transaction of a killed process, if this process may write."""
    if not repo.local():
        return
    repo.__class__ = _recovering(repo.__class__)
    # Web workers have no name and no right to write.
    if writer().name and (repo.svfs.exists(JOURNAL) or repo.svfs.exists(REMOVAL)):
        try:
            lock = repo.lock(wait=False)
        except (OSError, error.LockError):
            return
        # The end of this transaction, after the lock, does not concern this session's client.
        with repo.ui.silent(), repo.ui.configoverride(_NO_WAIT, b"recovery"):
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
    """Roll back an interrupted transaction of a locked repository, and complete a removal."""
    if repo.svfs.exists(JOURNAL):
        said: list[bytes] = []
        transaction.rollback(
            repo.svfs, repo.vfs_map, JOURNAL, said.append, checkambigfiles=localrepo.cachedfiles
        )
        repo.invalidate(clearfilecache=True)
        _log(repo, text(b"".join(said)).strip())
    if repo.svfs.exists(REMOVAL):
        _settle(repo)


def _settle(repo: Any) -> None:
    # Without the class of the extension `pushlog`, a transaction leaves no record.
    if not hasattr(repo, "pushlog_class"):
        return
    from hgfleet.pushlog import removing

    try:
        done = removing.settle(repo)
    except Exception as problem:
        # Core's errors about a damaged store or bundle are of any class, and readers go on.
        done = f"a removal that was killed cannot be completed: {_sentence(problem)}"
    if done:
        _log(repo, done)


def _sentence(problem: BaseException) -> str:
    return text(problem.message) if isinstance(problem, error.Abort) else str(problem)


def _log(repo: Any, detail: str) -> None:
    path = text(repo.ui.config(b"hgfleet", b"path") or repo.root)
    line = logfmt.line(
        "recovery", repository=path, user=writer().name or None, detail=detail or None
    )
    repo.ui.log(b"recovery", b"%s\n", encoding.strtolocal(line))
    syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_WARNING, line)
