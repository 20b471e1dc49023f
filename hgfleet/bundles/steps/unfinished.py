"""Repositories whose bundles are being withdrawn: a killed run leaves the rest to the next run.

Entries leave the manifest before their objects leave the stores, and no later pass finds the
objects by a manifest that no longer names them. So the names of the repositories are in a file of
the state from before the first step until the last step is done.
"""

from __future__ import annotations

import fcntl
from typing import TYPE_CHECKING, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

NAME: Final = "unfinished-withdrawals"
"""The file, a name on each line (`hgfleet.bundles.decide.names`)."""


def names(folder: Path) -> list[str]:
    """Return the names of repositories whose withdrawal has begun and not ended."""
    try:
        return (folder / NAME).read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def begin(folder: Path, name: str) -> None:
    """Record that the withdrawal of a repository's bundles begins."""
    _change(folder, lambda kept: [*kept, name])


def end(folder: Path, name: str) -> None:
    """Record that nothing is left of a repository's bundles."""
    if name in names(folder):
        _change(folder, lambda kept: [other for other in kept if other != name])


def _change(folder: Path, new: Callable[[Sequence[str]], Sequence[str]]) -> None:
    with files.open_folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        lines = dict.fromkeys(new(names(folder)))
        if lines:
            files.replace(folder / NAME, "".join(f"{line}\n" for line in lines), mode=0o640)
        else:
            (folder / NAME).unlink(missing_ok=True)
