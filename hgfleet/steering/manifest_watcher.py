"""The entries of all manifests on this host, and their changes since the last scan.

A manifest is replaced by a rename, which changes the time of its folder. So a scan of tens of
thousands of manifests reads the times of their folders, and then only the folders that changed.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.bundles.decide.manifest import SUFFIX, parse

if TYPE_CHECKING:
    from hgfleet.bundles.decide.manifest import Entry

SETTLED_SECONDS: Final = 2
"""A folder that changed this recently is read again: its time may not show a second change."""

FULL: Final = 20
"""Number of scans in which every folder is read once, to notice a manifest edited in place."""

Stamp = tuple[int, int, int]


class Changes(NamedTuple):
    """The entries published since the last scan, and the entries withdrawn since."""

    added: list[Entry]
    removed: list[Entry]


@dataclass
class _Folder:
    """A folder as it was last read: its manifests by name, and the folders in it."""

    stamp: Stamp
    is_settled: bool
    turn: int
    manifests: dict[str, tuple[Stamp, tuple[Entry, ...]]] = field(default_factory=dict)
    below: list[str] = field(default_factory=list)


class ManifestWatcher:
    """A folder of manifests, with the entries of each manifest as last read."""

    def __init__(self, folder: Path) -> None:
        self._folder = str(folder)
        self._folders: dict[str, _Folder] = {}
        self._named: dict[str, list[Entry]] = {}
        """By URL: the entry of each manifest that names it; the last entry counts."""
        self._before: dict[str, Entry | None] = {}
        """For URLs whose manifests changed in this scan: the entry before the scan."""
        self._look = 0

    def entries(self) -> list[Entry]:
        """Return the entries of the last scan, each URL once."""
        return [entries[-1] for entries in self._named.values()]

    def changes(self) -> Changes:
        """Scan the manifests, and return the changes since the last scan."""
        self._look += 1
        # Every folder that was seen before and is seen no longer is gone, with its entries. While
        # folders are read, `_remember` keeps the entry that each touched URL had before. Only at
        # the end is it compared with the entry of now: a manifest that moves to another folder is
        # withdrawn and published within a scan, and must not count as a change.
        self._before = {}
        before, self._folders = self._folders, {}
        waiting = [self._folder]
        while waiting:
            path = waiting.pop()
            known = before.get(path)
            folder = self._read(path, known)
            if folder is None:
                continue
            before.pop(path, None)
            self._folders[path] = folder
            waiting += folder.below
        for gone in before.values():
            for _, entries in gone.manifests.values():
                self._withdraw(entries)
        changes = Changes([], [])
        for url, old in self._before.items():
            now = self._current(url)
            if now != old:
                changes.added.extend([now] if now else [])
                changes.removed.extend([old] if old else [])
        return changes

    def _read(self, path: str, known: _Folder | None) -> _Folder | None:
        """Return a folder as it is now; None if it is gone.

        A folder that cannot be read is an error, or its entries would be advertised without a
        probe.
        """
        try:
            stamp = _stamp(Path(path).stat())
            is_due = known is not None and (self._look + known.turn) % FULL == 0
            if known and known.is_settled and known.stamp == stamp and not is_due:
                return known
            with os.scandir(path) as scan:
                # Replaced manifests are in a hidden folder; unfinished ones are hidden files.
                visible = [entry for entry in scan if not entry.name.startswith(".")]
        except FileNotFoundError:
            return None
        is_settled = time.time_ns() - stamp[2] > SETTLED_SECONDS * 10**9
        folder = _Folder(stamp, is_settled, known.turn if known else len(self._folders))
        for entry in visible:
            if entry.is_dir(follow_symlinks=False):
                folder.below.append(entry.path)
            elif entry.name.endswith(SUFFIX):
                self._read_manifest(entry, folder, known)
        for name, (_, entries) in known.manifests.items() if known else ():
            if name not in folder.manifests:
                self._withdraw(entries)
        return folder

    def _read_manifest(
        self, file: os.DirEntry[str], folder: _Folder, known: _Folder | None
    ) -> None:
        before = known.manifests.get(file.name) if known else None
        try:
            stamp = _stamp(file.stat())
            if before is not None and before[0] == stamp:
                folder.manifests[file.name] = before
                return
            entries = parse(Path(file.path).read_text("utf-8", "replace"))
        except FileNotFoundError:
            return  # withdrawn since the scan began
        folder.manifests[file.name] = (stamp, entries)
        for entry in entries:
            self._remember(entry.url)
            self._named.setdefault(entry.url, []).append(entry)
        self._withdraw(before[1] if before else ())

    def _withdraw(self, entries: tuple[Entry, ...]) -> None:
        for entry in entries:
            self._remember(entry.url)
            named = self._named[entry.url]
            named.remove(entry)
            if not named:
                del self._named[entry.url]

    def _remember(self, url: str) -> None:
        if url not in self._before:
            self._before[url] = self._current(url)

    def _current(self, url: str) -> Entry | None:
        named = self._named.get(url)
        return named[-1] if named else None


def _stamp(status: os.stat_result) -> Stamp:
    return (status.st_ino, status.st_size, status.st_mtime_ns)
