"""Repository of a recovery point, made from the copied files of its `.hg`.

restic read the files after the recovery point was captured, so they may hold more than its state:
later pushes, and parts of a transaction that was running. All of this is cut off.
"""

from __future__ import annotations

import os
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.backup.point import revlog_index
from hgfleet.backup.point.capture import APPENDED, CHANGELOG, PUSHLOG, REPLACED
from hgfleet.core.errors import HostError, PushlogError
from hgfleet.pushlog import chain, log_file

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.backup.point.point import Point

_FOLDERS: Final = ("store/data-s", "store/meta-s", "cache", "wcache", "storage-upgrade")
_NAMES: Final = ("journal", "undo", "lock", "wlock", "00changelog.i.a", "00changelog.i.s")
"""Files of transactions and locks; the first two names are prefixes."""


def rebuild(control: Path, point: Point) -> None:
    """Cut the files below a copied `.hg` to their state at the recovery point.

    Raises HostError if the copy has less than this state, PushlogError if it has another push log.
    """
    store = control / "store"
    _remove_transactions(control)
    changelog = control / CHANGELOG
    index = changelog.read_bytes() if changelog.exists() else b""
    kept = revlog_index.keep(index, point.changesets)
    last = revlog_index.last_node(index, kept)
    if kept.revisions != point.changesets or last != point.tip:
        raise HostError(
            f"{point.path}: the copy has {kept.revisions} changesets up to {last[:12] or 'none'}, "
            f"expected {point.changesets} up to {point.tip[:12] or 'none'}; restore an older backup"
        )
    for path in indexes(store):
        cut(path, point.changesets)
    for name in APPENDED:
        _truncate(control / name, point.sizes[name])
    for name in REPLACED:
        content = point.replaced[name]
        if content is None:
            (control / name).unlink(missing_ok=True)
        else:
            (control / name).write_bytes(content.encode("utf-8", "surrogateescape"))
    _list_files(store)
    check_log(control / PUSHLOG, point)


def indexes(store: Path) -> Iterator[Path]:
    """Yield the index of each revlog of a store."""
    for folder, _, names in os.walk(store):
        for name in names:
            if name.endswith(".i"):
                yield Path(folder, name)


def cut(path: Path, changesets: int) -> None:
    """Cut a revlog to the revisions of the first changesets; remove it if none are left.

    Raises HostError if its data is missing.
    """
    index = path.read_bytes()
    kept = revlog_index.keep(index, changesets)
    data = path.with_suffix(".d")
    if not kept.revisions:
        path.unlink()
        data.unlink(missing_ok=True)
        return
    if kept.index_bytes < len(index):
        os.truncate(path, kept.index_bytes)
    if kept.is_inline:
        # A transaction was about to move the data out of the index.
        data.unlink(missing_ok=True)
    else:
        _truncate(data, kept.data_bytes)


def _truncate(path: Path, size: int) -> None:
    current = path.stat().st_size if path.exists() else 0
    if current < size:
        raise HostError(f"{path}: got {current} bytes, expected {size}; restore an older backup")
    if current > size:
        os.truncate(path, size)


def _remove_transactions(control: Path) -> None:
    for name in _FOLDERS:
        shutil.rmtree(control / name, ignore_errors=True)
    for folder in (control, control / "store"):
        for path in folder.iterdir():
            if path.name.startswith(_NAMES[:2]) or path.name in _NAMES[2:]:
                path.unlink()


def _list_files(store: Path) -> None:
    """Remove the files that the cut removed from Mercurial's list of files (fncache)."""
    from mercurial import localrepo, ui, vfs
    from mercurial import store as store_names

    file = store / "fncache"
    if not file.exists():
        return
    requires = {
        line
        for name in (store / "requires", store.parent / "requires")
        if name.exists()
        for line in name.read_bytes().split()
    }
    control = os.fsencode(store.parent)
    encode = localrepo.makestore(ui.ui(), requires, control, vfs.vfs, try_pending=False).encode
    kept = [
        line
        for line in file.read_bytes().splitlines()
        if (store / os.fsdecode(encode(store_names.decodedir(line)))).exists()
    ]
    file.write_bytes(b"".join(line + b"\n" for line in kept))


def check_log(log: Path, point: Point) -> None:
    """Check that a push log is a chain that ends at the recovery point. Raises PushlogError."""
    last = None
    for last in chain.checked(log_file.entries(log)):  # noqa: B007
        pass
    end = (last.record.id, last.hash) if last else (0, "")
    if end != (point.push_id, point.push_hash):
        raise PushlogError(
            f"{point.path}: the push log ends with record {end[0]} ({end[1][:12]}), expected "
            f"{point.push_id} ({point.push_hash[:12]})"
        )
