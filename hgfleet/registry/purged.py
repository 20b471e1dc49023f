"""Purged repositories: deleted for good, so that bundle jobs withdraw their bundles at once.

The file lies beside the dynamic registry and has a line for each, with the time and the path.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import files, names
from hgfleet.core.paths import DYNAMIC
from hgfleet.registry.entry import TIME
from hgfleet.registry.user_repositories import now, read_content

if TYPE_CHECKING:
    from pathlib import Path

PURGED: Final = "purged"

PURGED_S: Final = 90 * 86_400
"""Seconds that a line stays: longer than bundle jobs can be out of order unseen."""


def purged(path: Path | str = DYNAMIC) -> frozenset[str]:
    """Return the repositories purged lately; `path` is that of the dynamic registry.

    Raises RegistryError if `purged` is anything but a file.
    """
    return frozenset(repository for _, repository in _lines(path))


def note_purged(path: Path | str, repository: str) -> None:
    """Add a repository; to be called in an update of the dynamic registry.

    Bundle jobs no longer find the repository in any registry when they run next.
    """
    since = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(time.time() - PURGED_S))
    lines = [pair for pair in _lines(path) if pair[0] >= since and pair[1] != repository]
    text = "".join(f"{when} {name}\n" for when, name in [*lines, (now(), repository)])
    files.replace(_file(path), text, mode=0o640)


def _lines(path: Path | str) -> list[tuple[str, str]]:
    text = (read_content(_file(path)) or b"").decode("utf-8", "replace")
    pairs = (line.split(" ") for line in text.splitlines())
    return [
        (pair[0], pair[1])
        for pair in pairs
        if len(pair) == 2 and TIME.fullmatch(pair[0]) and not names.path_problem(pair[1])
    ]


def _file(path: Path | str) -> str:
    return f"{os.fspath(path).rpartition('/')[0]}/{PURGED}"
