"""The folder for temporary files of all steps: in RAM where that has room, and gone after the run.

A clone has thousands of small files that live for seconds. ext4 without a journal, which virtual
machines for tests often have, looks at each inode that was freed lately before it allocates an
inode.
"""

from __future__ import annotations

import contextlib
import itertools
import os
import re
import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

RAM: Final = Path("/dev/shm")
"""POSIX shared memory of Linux: a tmpfs (shm_overview(7))."""
NEEDED_BYTES: Final = 6 * 1024**3
"""Files of half a full run took 0.5 GiB (measured); RAM has to be left for the cluster as well."""


def available_memory(meminfo: str) -> int:
    """Return the bytes that programs can have without swapping, by the text of /proc/meminfo."""
    match = re.search(r"^MemAvailable: +(\d+) kB$", meminfo, re.MULTILINE)
    return int(match[1]) * 1024 if match else 0


def has_room(place: os.statvfs_result, memory: int) -> bool:
    """Whether files of a run fit in a file system in RAM, and programs may be run there."""
    free = place.f_bavail * place.f_frsize
    return min(free, memory) >= NEEDED_BYTES and not place.f_flag & os.ST_NOEXEC


@contextlib.contextmanager
def folder(ram: Path = RAM) -> Iterator[Mapping[str, str]]:
    """Yield the variables of the environment that name the folder.

    There are none where it stays on disk, and none where a person has chosen it (TMPDIR).
    """
    if "TMPDIR" in os.environ or not (
        os.access(ram, os.W_OK | os.X_OK)
        and has_room(os.statvfs(ram), available_memory(Path("/proc/meminfo").read_text("utf-8")))
    ):
        yield {}
        return
    made = _make(ram)
    try:
        yield {"TMPDIR": str(made)}
    finally:
        shutil.rmtree(made, ignore_errors=True)


def _make(ram: Path) -> Path:
    """Make a folder for this user only.

    Its name is shorter than a name of tempfile: the path of a Unix socket has at most 107 bytes.
    """
    for number in itertools.count():
        made = ram / f"hg{number}"
        with contextlib.suppress(FileExistsError):
            made.mkdir(mode=0o700)
            break
    return made
