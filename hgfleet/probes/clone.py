"""Clone of the canary repository, as a client without an account makes it (I/O).

The client takes a bundle from the object store as every client does.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.probes import client

if TYPE_CHECKING:
    from hgfleet.probes.settings import Settings


def attempt(settings: Settings) -> tuple[float, str]:
    """Clone once; return the duration in seconds and the problem, "" for a good clone."""
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
    # A working copy would hold files of pushers, and tests nothing of the service.
    options = ("--noupdate", "--config", f"web.cacerts={settings.ca}")
    return client.hg(
        "clone",
        [*options, "--", settings.clone_url, place],
        seconds=settings.timeout_seconds,
    )[1]


def _has_changesets(place: Path) -> bool:
    changelog = place / ".hg/store/00changelog.i"
    return changelog.exists() and changelog.stat().st_size > 0
