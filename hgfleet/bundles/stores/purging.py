"""Purge of caches between stores and clients: the URLs of objects that must be read no more.

A cache of the site asks the store again within a minute (role `cdn`). A rented CDN keeps an object
for as long as the store allows (`objectstore.bucket.CACHE_SECONDS`), or for longer, as its operator
chose. A command of the site, `purge_command`, tells it to forget the objects: the command gets the
URLs on its standard input, a line for each, and ends with 0 once they are forgotten. URLs of a
command that failed are kept for the next run, which fails until the command has worked.
"""

from __future__ import annotations

import fcntl
import subprocess
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.errors import UnavailableError

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

NAME: Final = "unpurged"
"""The file with the URLs that no command has taken yet, a line for each."""

TIMEOUT_S: Final = 120.0
MOST_SAID: Final = 300


def note(folder: Path, urls: Iterable[str]) -> None:
    """Add URLs of objects before their deletion; a killed run leaves them to the next run."""
    with files.open_folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        _write(folder, [*waiting(folder), *urls])


def waiting(folder: Path) -> list[str]:
    """Return the URLs that no command has taken yet."""
    try:
        return (folder / NAME).read_text("utf-8", "replace").splitlines()
    except FileNotFoundError:
        return []


def purge(folder: Path, command: Sequence[str]) -> int:
    """Make the command take all waiting URLs; return their number.

    Raises UnavailableError if it fails.
    """
    urls = waiting(folder)
    if not urls:
        return 0
    try:
        done = subprocess.run(
            command,
            input="".join(f"{url}\n" for url in urls),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise UnavailableError(f"{command[0]}: {error}; its URLs wait for the next run") from error
    if done.returncode:
        said = " ".join(done.stdout.split())[-MOST_SAID:]
        raise UnavailableError(
            f"{command[0]}: ended with {done.returncode}, expected 0; it said {said!r}; "
            f"{len(urls)} URLs wait for the next run"
        )
    with files.open_folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        # Another run may have added URLs since.
        taken = set(urls)
        _write(folder, [url for url in waiting(folder) if url not in taken])
    return len(urls)


def _write(folder: Path, urls: Sequence[str]) -> None:
    if urls:
        text = "".join(f"{url}\n" for url in dict.fromkeys(urls))
        files.replace(folder / NAME, text, mode=0o640)
    else:
        (folder / NAME).unlink(missing_ok=True)
