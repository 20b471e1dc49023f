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

from mercurial import error, revlog
from mercurial.revlogutils import constants

from hgfleet.core.errors import HgfleetError

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

PROGRESS_SECONDS: Final = 2.0

_SNAPSHOT: Final = constants.REVIDX_DELTA_IS_SNAPSHOT
_NODE: Final = 7

Signature = list[list[int] | None]
"""Stat of the two files of a revlog; an unchanged revlog has the same one."""


class DamagedError(HgfleetError):
    """The repository, or the copy of it, is damaged; the stores were not exchanged."""

    exit_code = 65


class RewrittenError(Exception):
    """Revisions of the source were removed during the copy."""


class RevlogCopier:
    """Copies the revlogs that changed since the last time, and compares them.

    `signatures` has the signature of each copied revlog by the name of its main file. `missing` are
    the requirements that the new store gains.
    """

    def __init__(self, missing: Collection[str], say: Callable[..., None]) -> None:
        self.signatures: dict[str, Signature] = {}
        self._say = say
        self._recompress = "revlog-compression-zstd" in missing
        # These two formats allow a delta against other revisions than a parent.
        redelta = {"generaldelta", "sparserevlog"} & set(missing)
        self._reuse = (
            revlog.revlog.DELTAREUSESAMEREVS if redelta else revlog.revlog.DELTAREUSEALWAYS
        )
        self._share = 0.0
        self._said = 0.0

    def catch_up(self, source: Any, target: Any, *, may_tear: bool = False) -> list[Any]:
        """Copy each revlog that changed; return the store entries of these revlogs.

        `may_tear`: pushes go on during the copy, so a revlog that cannot be read may be read later.
        Raises RewrittenError.
        """
        changed, total, done = [], 0, 0
        known = dict(self.signatures)
        for entry in source.store.walk():
            if not entry.is_revlog:
                continue
            name = entry.main_file_path().decode("latin-1")
            found = _signature(source, entry)
            if known.pop(name, None) != found:
                changed.append((entry, name, found))
                total += sum(one[1] for one in found if one)
        if known:
            # Files of removed history.
            raise RewrittenError
        if not changed:
            return []
        with target.wlock(), target.lock(), target.transaction(b"storage-upgrade") as group:
            for entry, name, found in changed:
                try:
                    self._copy(source, target, entry, group)
                except (error.StorageError, OSError, ValueError, IndexError, EOFError):
                    if not may_tear or _signature(source, entry) == found:
                        raise
                    found = [None]
                self.signatures[name] = found
                done += sum(one[1] for one in found if one)
                self._share = done / total if total else 1.0
                self._tick()
        return [entry for entry, _, _ in changed]

    def _copy(self, source: Any, target: Any, entry: Any, group: Any) -> None:
        """Give the target's revlog the revisions of the source's."""
        old = _revlog(entry.get_revlog_instance(source))
        new = entry.get_revlog_instance(target, writable=True)
        inner = _revlog(new)
        if len(inner) and _is_prefix(inner, old):
            _append(old, inner, group)
            return
        if len(inner):
            # One push was rolled back and another one came: rare, and the file is small as a rule.
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
        if now - self._said > PROGRESS_SECONDS:
            self._said = now
            self._say("progress", share=round(self._share, 3))

    def check(self, target: Any) -> None:
        """Check every revision of a whole store against its hash. Raises StorageError of hg."""
        for entry in list(target.store.walk()):
            if entry.is_revlog:
                self._check_contents(_revlog(entry.get_revlog_instance(target)))

    def _check_contents(self, new: Any) -> None:
        for number in range(len(new)):
            _content(new, number)
            self._tick()

    def compare(self, source: Any, target: Any, entries: list[Any]) -> None:
        """Compare the revisions of some revlogs, and check their hashes. Raises DamagedError."""
        for entry in entries:
            old = _revlog(entry.get_revlog_instance(source))
            new = _revlog(entry.get_revlog_instance(target))
            if len(old) != len(new) or not _is_prefix(new, old):
                raise DamagedError(f"{entry.main_file_path()!r} was not copied right")
            self._check_contents(new)


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


def _content(one: Any, number: int) -> bytes:
    """Return the stored text of a revision, checked against its hash; a tombstone if censored."""
    try:
        return bytes(one.rawdata(number))
    except error.CensoredNodeError as censored:
        return bytes(censored.tombstone)


def _is_prefix(new: Any, old: Any) -> bool:
    """Whether the old revlog begins with exactly the revisions of the new one."""
    if len(new) > len(old):
        return False
    return all(_facts(new.index[n]) == _facts(old.index[n]) for n in range(len(new)))


def _facts(entry: Any) -> tuple[Any, ...]:
    """Return the part of an index entry that does not depend on the format."""
    return (entry[0] & 0xFFFF & ~_SNAPSHOT, entry[2], *entry[4:8])


def _delete_files(target: Any, inner: Any) -> None:
    for name in inner.files():
        Path(os.fsdecode(inner.opener.join(name))).unlink(missing_ok=True)
    target.invalidate(clearfilecache=True)


def _signature(source: Any, entry: Any) -> Signature:
    store, main = source.store, entry.main_file_path()
    found: Signature = []
    for name in (main, main[:-1] + b"d"):
        try:
            status = store.rawvfs.stat(store.encode(name))
        except FileNotFoundError:
            found.append(None)
        else:
            found.append([status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns])
    return found
