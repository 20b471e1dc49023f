"""Clone of the canary repository, as a client without an account makes it (I/O).

Mercurial runs without the configuration of this host, and takes a bundle from the object store as
every client does.
"""

from __future__ import annotations

import subprocess
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core.text import shown
from hgfleet.hg import unconfigured

if TYPE_CHECKING:
    from hgfleet.probes.settings import Settings

MOST: Final = 300
"""Characters of a client's messages in a problem."""


def attempt(settings: Settings) -> tuple[float, str]:
    """Clone once; return the duration in seconds, and the problem, "" if the clone is good."""
    scratch = settings.scratch if settings.scratch.is_dir() else None
    with tempfile.TemporaryDirectory(dir=scratch, prefix="clone-") as folder:
        place = Path(folder, "clone")
        started = time.monotonic()
        problem = _clone(settings, place)
        seconds = time.monotonic() - started
        if not problem and not _has_changesets(place):
            problem = "the clone has no changesets; a canary repository has some"
        return seconds, problem


def _clone(settings: Settings, place: Path) -> str:
    # A working copy would hold files of pushers, and costs the service nothing.
    arguments = ["clone", "--noupdate", "--config", f"web.cacerts={settings.ca}"]
    try:
        done = subprocess.run(
            [settings.hg, *arguments, "--", settings.clone_url, place],
            env=unconfigured.environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=settings.timeout_seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"the clone was not done after {settings.timeout_seconds:g} s"
    except OSError as error:
        return f"{settings.hg}: {error.strerror}"
    if done.returncode == 0:
        return ""
    said = shown(" ".join(done.stdout.split())[-MOST:], MOST)
    return f"hg clone ended with {done.returncode}: {said}"


def _has_changesets(place: Path) -> bool:
    changelog = place / ".hg/store/00changelog.i"
    return changelog.exists() and changelog.stat().st_size > 0
