"""Which end-to-end tests run at the same time on the one cluster (pytest-xdist).

Two rules make workers safe:

1. Tests of one part of `PARTS` run in one worker, in their order: they use the same repositories
   and people. A file that is in no part is a part of its own.
2. A test marked `alone` or `disruptive` has the cluster to itself: it reads all that a host logs,
   compares a host before and after, or stops parts of the service. The other workers wait.
"""

from __future__ import annotations

import contextlib
import fcntl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from xdist.scheduler import LoadScopeScheduling

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest

PARTS: Final = {
    # Change people or the directory, or sign in by password; push to e2e/push, shared and private.
    # The converge of the whole cluster sees each of these changes.
    "people": (
        "test_idempotence",
        "test_access",
        "test_directory",
        "test_other_clients",
        "test_person",
        "test_private",
        "test_private_bundles",
        "test_private_https",
        "test_push",
        "test_ssh_server",
    ),
    # Clone and pull the repository hgfleet, and read the web part's log of that.
    "clones": ("test_clone", "test_pullbundles", "test_foreign_clients", "test_limits"),
    # Change the registry of repositories that people made.
    "registry": ("test_selfservice", "test_storage"),
    # Back the primary up, and count the pushes since.
    "backups": ("test_backup", "test_integrity"),
    # Compare the SSH host before and after each test.
    "abuse": (
        "test_abuse_commands",
        "test_abuse_directory",
        "test_abuse_https",
        "test_abuse_logins",
        "test_abuse_paths",
        "test_abuse_wire",
    ),
    "outages": ("test_objectstore", "test_ssh_sessions", "test_reboot"),
    # Of the tier faults.
    "stores": ("test_fault_stores", "test_fault_admission"),
    "logins": ("test_fault_directory", "test_fault_clock", "test_fault_logs"),
}
"""Files by part. Parts begin in this order, those without a name before `LAST`."""

LAST: Final = ("abuse", "outages")
"""Parts that are alone on the cluster begin when the others are done."""

_PART_OF: Final = {file: part for part, files in PARTS.items() for file in files}
_FILES: Final = tuple(_PART_OF)


def part_of(nodeid: str) -> str:
    """Return the part of a test."""
    file = Path(nodeid.partition("::")[0]).stem
    return _PART_OF.get(file, file)


def order(nodeid: str) -> tuple[int, str]:
    """Return the key that sorts tests by part and file; those of a file keep their order."""
    part, file = part_of(nodeid), Path(nodeid.partition("::")[0]).stem
    if part not in PARTS:
        return len(_FILES), file
    late = len(_FILES) + 1 if part in LAST else 0
    return late + _FILES.index(file), ""


def is_alone(item: pytest.Item | None) -> bool:
    """Tell whether a test has the cluster to itself."""
    return item is not None and any(
        item.get_closest_marker(name) for name in ("alone", "disruptive")
    )


class PartScheduling(LoadScopeScheduling):  # type: ignore[misc]  # published without types
    """Gives a worker the next part once it is nearly done with the one before."""

    def _split_scope(self, nodeid: str) -> str:
        return part_of(nodeid)


class Turns:
    """Tests enter together; one that is alone waits until all have left, and keeps all out.

    The door lets one in at a time: a test that waits for an empty room holds the door, so a steady
    stream of others cannot keep it waiting.
    """

    def __init__(self, folder: Path, name: str) -> None:
        folder.mkdir(exist_ok=True)
        self._door = (folder / f"{name}.door").open("w")
        self._room = (folder / f"{name}.room").open("w")
        self._inside = False

    def enter(self, *, alone: bool) -> None:
        """Wait for the turn of a test, unless the one before it has kept its turn."""
        if self._inside:
            return
        fcntl.flock(self._door, fcntl.LOCK_EX)
        try:
            fcntl.flock(self._room, fcntl.LOCK_EX if alone else fcntl.LOCK_SH)
        finally:
            fcntl.flock(self._door, fcntl.LOCK_UN)
        self._inside = True

    @contextlib.contextmanager
    def turn(self, *, alone: bool) -> Iterator[None]:
        """Enter, and leave at the end."""
        self.enter(alone=alone)
        try:
            yield
        finally:
            self.leave()

    def leave(self) -> None:
        """End the turn."""
        self._inside = False
        fcntl.flock(self._room, fcntl.LOCK_UN)
