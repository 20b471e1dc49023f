"""Push spool: the repositories that were pushed to, for the bundle jobs of the same host.

A push leaves an empty file in a spool folder, named after the repository. systemd sees that the
folder is not empty and starts a run for the repositories named there. The run takes a marker by
renaming it, `NAME` to `NAME+`, before it reads the repository, and removes it afterwards. So a push
in between leaves a new marker, and the next run still finds the marker of a killed run.

Where the bundle jobs have another host, the markers stay: there are never more of them than
repositories, and the timer of the jobs finds the pushed changesets.
"""

from __future__ import annotations

import contextlib
import os
import re
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.stored_time import past

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

SPOOL: Final = Path("/var/lib/hgfleet/pushed")

LOOK_S: Final = 5.0
"""How often a run that has to wait checks whether another repository was pushed to (seconds)."""

_TAKEN: Final = "+"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]*")


def mark(spool: str, path: str) -> None:
    """Record that a repository has changed; raises OSError, FileNotFoundError without a spool.

    A slash becomes a "+", which no path of the registry has.
    """
    descriptor = os.open(
        f"{spool}/{files.file_name(path)}", os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o640
    )
    os.close(descriptor)


def take(spool: Path) -> list[str]:
    """Take all markers and return their repositories, including markers of a killed run.

    Raises FileNotFoundError without a spool. Any other file is removed, or systemd would start a
    run for it again and again.
    """
    repositories = set()
    for path in spool.iterdir():
        name = path.name.removesuffix(_TAKEN)
        if not _NAME.fullmatch(name) or name.endswith(_TAKEN):
            with contextlib.suppress(OSError):
                path.unlink()
            continue
        if path.name == name:
            path.rename(spool / f"{name}{_TAKEN}")
        repositories.add(files.repository_of(name))
    return sorted(repositories)


def done(spool: Path, repository: str) -> None:
    """Remove the marker that was taken."""
    (spool / f"{files.file_name(repository)}{_TAKEN}").unlink(missing_ok=True)


def due(
    marked: Iterable[str], tried: Mapping[str, float], now: float, every: float
) -> tuple[list[str], float]:
    """Split off the repositories that may run now; return them and when the next may run.

    `tried` has the time of the last run for each; times are seconds since the epoch, `every` and
    the pause are seconds. A time in the future (the clock was set back) counts as never.
    """
    turns = {}
    for repository in marked:
        last = past(tried.get(repository, 0.0), now, 0.0)
        turns[repository] = max(0.0, last + every - now)
    ready = [repository for repository, wait in turns.items() if wait == 0]
    return ready, min((wait for wait in turns.values() if wait), default=0.0)


def work_off(
    spool: Path,
    memory: Path,
    every: float,
    run: Callable[[list[str]], Collection[str]],
    pause: Callable[[float], None] = time.sleep,
) -> None:
    """Run until no repository is marked; a repository has a run at most every `every` seconds.

    `run` gets repositories and returns those that another run is working on: their markers stay
    for another try. `memory` is a folder with a file for each run of the last `every` seconds.
    An exception of `run` is passed on; the markers are removed, and the timer tries again.
    """
    memory.mkdir(exist_ok=True)
    while marked := take(spool):
        now = time.time()
        ready, wait = due(marked, _tried(memory, now - every), now, every)
        if not ready:
            pause(min(wait, LOOK_S))
            continue
        for repository in ready:
            file = memory / files.file_name(repository)
            file.touch()
            os.utime(file)
        busy: Collection[str] = ()
        try:
            busy = run(ready)
        finally:
            for repository in ready:
                if repository not in busy:
                    done(spool, repository)


def _tried(memory: Path, since: float) -> dict[str, float]:
    """Return the time of each repository's last run; older runs are forgotten."""
    last_runs = {}
    for path in memory.iterdir():
        last = path.stat().st_mtime
        if last < since:
            path.unlink(missing_ok=True)
        else:
            last_runs[files.repository_of(path.name)] = last
    return last_runs
