"""A repository during a run: whether it changed since the last run, and whether its copy is sound.

An idle repository costs the stat of seven files. For a changed repository, the revlog files are
listed and the recovery point is captured before restic reads the files.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from hgfleet.backup.point import rewritten
from hgfleet.backup.point.capture import PUSHLOG, capture
from hgfleet.core.errors import PushlogError
from hgfleet.hg import fingerprint
from hgfleet.pushlog import log_file

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.backup.point.point import Point

Signatures = list[Any]


@dataclass(slots=True)
class Copied:
    """A repository whose files are being copied. An idle repository has no new point."""

    path: str
    control: Path
    signatures: Signatures | None
    """The fingerprint before the copy; None if the repository had just changed."""
    point: Point | None = None
    files: rewritten.Files = field(default_factory=dict)

    def problem(self) -> str | None:
        """Return why the copy may be inconsistent; None if it is consistent."""
        if self.point is None:
            # Its point is of an earlier run, so a push since then is not in it.
            now = signatures(self.control)
            return None if now == self.signatures else "a push came while it was read"
        changed = rewritten.rewritten(self.files, rewritten.files(self.control / "store"))
        if changed:
            return f"{os.path.relpath(changed[0], self.control)} was rewritten while it was read"
        try:
            later = list(log_file.entries(self.control / PUSHLOG, self.point.sizes[PUSHLOG]))
        except PushlogError:
            return "its push log was rewritten while it was read"
        if any(entry.record.kind == "strip" for entry in later):
            return "changesets were removed while it was read"
        return None


def signatures(control: Path) -> Signatures | None:
    """Return the fingerprint of a repository as JSON has it; None if it has just changed."""
    fingerprints = fingerprint.read_repository(fingerprint.paths(control))
    if not fingerprints.is_settled():
        return None
    return [list(signature) if signature else None for signature in fingerprints.signatures]


def prepare(path: str, control: Path, known: Signatures | None) -> Copied:
    """Capture a repository unless its fingerprint is still `known`. Raises HgfleetError.

    The files are listed before the capture, so a file that is replaced after it is noticed.
    """
    now = signatures(control)
    if now is not None and now == known:
        return Copied(path, control, now)
    files = rewritten.files(control / "store")
    return Copied(path, control, now, capture(control, path), files)


def find(root: Path) -> Iterator[tuple[str, Path]]:
    """Yield the path and the .hg of each repository on disk, registered or not."""
    folders = [(root, "")]
    while folders:
        folder, path = folders.pop()
        try:
            entries = sorted(os.scandir(folder), key=lambda entry: entry.name)
        except (FileNotFoundError, NotADirectoryError):
            continue
        for entry in entries:
            if not entry.is_dir(follow_symlinks=False):
                continue
            if entry.name == ".hg":
                if path and (folder / ".hg/requires").exists():
                    yield path, folder / ".hg"
            elif not entry.name.startswith("."):
                folders.append((folder / entry.name, f"{path}/{entry.name}".lstrip("/")))
