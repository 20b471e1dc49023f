"""The entries of all manifests on this host, read again only where a manifest has changed."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.bundles.manifest import SUFFIX, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.bundles.manifest import Entry


class ManifestWatcher:
    """The folder of manifests, and the entries of each as they were last read."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: dict[Path, tuple[tuple[int, int, int], tuple[Entry, ...]]] = {}

    def entries(self) -> list[Entry]:
        """Return the entries that are published now, each URL once."""
        known = {}
        for path in self._files():
            try:
                found = path.stat()
                stamp = (found.st_ino, found.st_size, found.st_mtime_ns)
                before = self._known.get(path)
                if before is not None and before[0] == stamp:
                    known[path] = before
                else:
                    known[path] = (stamp, parse(path.read_text("utf-8", "replace")))
            except FileNotFoundError:
                continue  # withdrawn in this moment
        self._known = known
        unique = {entry.url: entry for _, entries in known.values() for entry in entries}
        return list(unique.values())

    def _files(self) -> Iterator[Path]:
        for place, folders, names in os.walk(self._folder, onerror=_raise):
            # Replaced manifests are in a hidden folder; unfinished ones are hidden files.
            folders[:] = [name for name in folders if not name.startswith(".")]
            for name in names:
                if name.endswith(SUFFIX) and not name.startswith("."):
                    yield Path(place, name)


def _raise(error: OSError) -> None:
    """Stop at a folder that cannot be read: its entries would be advertised without any probe."""
    if not isinstance(error, FileNotFoundError):
        raise error
