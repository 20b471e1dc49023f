"""Copies of revlogs: the same revisions with the same numbers, in a new format.

Written against Mercurial 7.2: `revlog.clone`, `store.walk` and the index of a revlog, as its own
upgrade uses them (`mercurial/upgrade_utils/engine.py`). Revisions keep their numbers, so caches and
readers that know a changeset by its number stay right.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from mercurial import error, revlog, verify
from mercurial.revlogutils import constants

from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PROGRESS_SECONDS: Final = 2.0

_SNAPSHOT: Final = constants.REVIDX_DELTA_IS_SNAPSHOT
_NODE: Final = 7

Signature = list[list[int] | None]
"""Stat of the two files of a revlog; it does not change unless the revlog does."""


class DamagedError(HgfleetError):
    """The repository, or the copy of it, is damaged; the stores were not exchanged."""

    exit_code = 65


class RewrittenError(Exception):
    """Revisions of the source were removed during the copy."""


class RevlogCopier:
    """Copies the revlogs that changed since the last time, and compares them.

    Dictionaries by the name of a revlog's main file: `signatures` has the signature of each copied
    revlog; `verified` the number of revisions in the copy whose content was read and matched its
    hash; `settled` the number that the original had under its lock, which no aborted push removes.
    `missing` are the requirements that the new store gains. `forgotten` is called before files of
    the copy are deleted, when the three dictionaries have forgotten them.
    """

    def __init__(
        self,
        missing: Collection[str],
        notify: Callable[..., None],
        forgotten: Callable[[], None] = lambda: None,
    ) -> None:
        self.signatures: dict[str, Signature] = {}
        self.verified: dict[str, int] = {}
        self.settled: dict[str, int] = {}
        self._notify, self._forgotten = notify, forgotten
        self._recompress = "revlog-compression-zstd" in missing
        # These two formats allow a delta against other revisions than a parent.
        redelta = {"generaldelta", "sparserevlog"} & set(missing)
        self._reuse = (
            revlog.revlog.DELTAREUSESAMEREVS if redelta else revlog.revlog.DELTAREUSEALWAYS
        )
        self._share = 0.0
        self._notified = 0.0

    def _changed(self, source: Any) -> list[tuple[Any, str, Signature]]:
        """Return the entries to copy, with names and signatures. Raises RewrittenError."""
        changed = []
        known = dict(self.signatures)
        for entry in source.store.walk():
            if not entry.is_revlog:
                continue
            name = _name(entry)
            signature = _signature(source, entry)
            if known.pop(name, None) != signature:
                changed.append((entry, name, signature))
        if known:
            # The source no longer has these files: history was removed.
            raise RewrittenError
        return changed

    def pending(self, source: Any, target: Any) -> int:
        """Count the revisions that `catch_up` would read from the locked source."""
        count = 0
        for entry, name, _ in self._changed(source):
            old = _revlog(entry.get_revlog_instance(source))
            new = _revlog(entry.get_revlog_instance(target))
            count += len(old)
            if _is_prefix(new, old, self.settled.get(name, 0)):
                count -= len(new)
        return count

    def catch_up(self, source: Any, target: Any, *, may_tear: bool = False) -> list[Any]:
        """Copy each revlog that changed; return the store entries of these revlogs.

        `may_tear`: pushes go on during the copy, so an unreadable revlog may be copied in a later
        round.
        Raises RewrittenError.
        """
        changed = self._changed(source)
        if not changed:
            return []
        total, done = sum(_bytes(signature) for _, _, signature in changed), 0
        with target.wlock(), target.lock(), target.transaction(b"storage-upgrade") as group:
            for entry, name, signature in changed:
                start = 0 if may_tear else self.settled.get(name, 0)
                try:
                    self._copy(source, target, entry, group, start)
                except _READ_ERRORS:
                    if not may_tear or _signature(source, entry) == signature:
                        raise
                    signature = [None]
                self.signatures[name] = signature
                done += _bytes(signature)
                self._share = done / total if total else 1.0
                self._tick()
        return [entry for entry, _, _ in changed]

    def _copy(self, source: Any, target: Any, entry: Any, group: Any, start: int) -> None:
        """Give the target's revlog the revisions of the source's; both are equal up to `start`."""
        # Nearly always, the source only got more revisions, which are appended to the copy. If the
        # source does not begin with the copied revisions, a part of its history was replaced. Then
        # the copy is deleted, and what is known of it forgotten first, and the revlog cloned again.
        old = _revlog(entry.get_revlog_instance(source))
        new = entry.get_revlog_instance(target, writable=True)
        inner = _revlog(new)
        if len(inner) and _is_prefix(inner, old, start):
            _append(old, inner, group)
            return
        if len(inner):
            # A push was rolled back and another push came: rare, and the file is normally small.
            for known in (self.signatures, self.verified, self.settled):
                known.pop(_name(entry), None)
            self._forgotten()
            _delete_files(target, inner)
            new = entry.get_revlog_instance(target, writable=True)
        old.clone(
            group,
            _revlog(new),
            deltareuse=self._reuse,
            reuse_compression=False if self._recompress else None,
            addrevisioncb=lambda *_: self._tick(),
        )

    def _tick(self) -> None:
        """Report the progress now and then."""
        now = time.monotonic()
        if now - self._notified > PROGRESS_SECONDS:
            self._notified = now
            self._notify("progress", share=round(self._share, 3))

    def verify(self, source: Any, target: Any) -> None:
        """Compare a whole store with the original, and run `hg verify` on it.

        The source was locked when its last revisions were copied. Raises DamagedError, StorageError
        of hg, and RewrittenError.
        """
        entries = [entry for entry in target.store.walk() if entry.is_revlog]
        for entry in entries:
            new = _revlog(entry.get_revlog_instance(target))
            if not _is_prefix(new, _revlog(entry.get_revlog_instance(source))):
                if _signature(source, entry) != self.signatures.get(_name(entry)):
                    raise RewrittenError
                raise _wrong_copy(entry)
            if entry.is_manifestlog:
                # Of manifests, hg verify only reads the deltas.
                self._check_contents(new, 0)
        checker = _Verifier(target, self._tick)
        target.ui.pushbuffer(error=True)
        failed = checker.verify_locked()
        said = target.ui.popbuffer().decode("utf-8", "replace")
        if failed:
            raise DamagedError(
                f"hg verify finds the repository damaged, so it was left as it is: {said[-800:]}"
            )
        for entry in entries:
            new = _revlog(entry.get_revlog_instance(target))
            if not checker.has_read(entry):
                self._check_contents(new, 0)
            self.verified[_name(entry)] = self.settled[_name(entry)] = len(new)

    def compare(
        self, source: Any, target: Any, entries: list[Any], *, may_tear: bool = False
    ) -> None:
        """Compare some revlogs, and check the hashes of all revisions that were not checked yet.

        `source` is the object that the entries were copied from; `may_tear` as for `catch_up`.
        Raises DamagedError.
        """
        for entry in entries:
            name = _name(entry)
            start = 0 if may_tear else self.settled.get(name, 0)
            try:
                old = _revlog(entry.get_revlog_instance(source))
                new = _revlog(entry.get_revlog_instance(target))
                if not _is_prefix(new, old, start) or (len(old) != len(new) and not may_tear):
                    raise _wrong_copy(entry)
                self._check_contents(new, min(self.verified.get(name, 0), len(new)))
            except (DamagedError, *_READ_ERRORS):
                if not may_tear or _signature(source, entry) == self.signatures[name]:
                    raise
                self.signatures[name] = [None]
            else:
                self.verified[name] = len(new)

    def _check_contents(self, new: Any, start: int) -> None:
        for number in range(start, len(new)):
            _content(new, number)
            self._tick()


_READ_ERRORS: Final = (error.StorageError, OSError, ValueError, IndexError, EOFError)


class _Verifier(verify.verifier):  # type: ignore[misc]  # no type hints in core
    """`hg verify`, which reads each revision of the changelog and of the files in manifests."""

    def __init__(self, repository: Any, tick: Callable[[], None]) -> None:
        super().__init__(repository)
        self._files: frozenset[bytes] = frozenset()
        self._tick = tick

    def has_read(self, entry: Any) -> bool:
        """Whether a revlog is the changelog, a manifest, or a file that `hg verify` read."""
        return not entry.is_filelog or entry.target_id in self._files

    def verify_locked(self) -> int:
        """Run `hg verify` with the lock that `mercurial.verify.verify` takes; 0 if all is well."""
        with self.repo.lock():
            return self.verify()  # type: ignore[no-any-return]

    def _checkentry(self, *arguments: Any) -> Any:
        self._tick()
        return super()._checkentry(*arguments)

    def _verifyfiles(self, filenodes: Any, filelinkrevs: Any) -> Any:
        self._files = frozenset({*filenodes, *filelinkrevs})
        return super()._verifyfiles(filenodes, filelinkrevs)


def _name(entry: Any) -> str:
    return entry.main_file_path().decode("latin-1")  # type: ignore[no-any-return]


def _bytes(signature: Signature) -> int:
    return sum(stat[1] for stat in signature if stat)


def _wrong_copy(entry: Any) -> DamagedError:
    return DamagedError(f"{entry.main_file_path()!r} was not copied right")


def _append(old: Any, new: Any, group: Any) -> None:
    """Add the revisions that only the old revlog has."""
    for number in range(len(new), len(old)):
        entry = old.index[number]
        new.addrawrevision(
            _content(old, number),
            group,
            entry[4],
            old.index[entry[5]][_NODE],
            old.index[entry[6]][_NODE],
            entry[_NODE],
            entry[0] & 0xFFFF & ~_SNAPSHOT,
        )


def _revlog(of: Any) -> Any:
    return getattr(of, "_revlog", of)


def _content(revlog: Any, number: int) -> bytes:
    """Return the stored text of a revision, checked against its hash; a tombstone if censored."""
    try:
        return bytes(revlog.rawdata(number))
    except error.CensoredNodeError as censored:
        return bytes(censored.tombstone)


def _is_prefix(new: Any, old: Any, start: int = 0) -> bool:
    """Whether the old revlog begins with exactly the new revlog's revisions, equal to `start`."""
    if not start <= len(new) <= len(old):
        return False
    # Comparing the last revision before `start` costs nothing, and shows most removals of history.
    numbers = range(max(0, start - 1), len(new))
    return all(_facts(new.index[n]) == _facts(old.index[n]) for n in numbers)


def _facts(entry: Any) -> tuple[Any, ...]:
    """Return the part of an index entry that does not depend on the format."""
    return (entry[0] & 0xFFFF & ~_SNAPSHOT, entry[2], *entry[4:8])


def _delete_files(target: Any, inner: Any) -> None:
    for name in inner.files():
        Path(os.fsdecode(inner.opener.join(name))).unlink(missing_ok=True)
    target.invalidate(clearfilecache=True)


def _signature(source: Any, entry: Any) -> Signature:
    store, main = source.store, entry.main_file_path()
    signature: Signature = []
    for name in (main, main[:-1] + b"d"):
        try:
            status = store.rawvfs.stat(store.encode(name))
        except FileNotFoundError:
            signature.append(None)
        else:
            signature.append(
                [status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns]
            )
    return signature
