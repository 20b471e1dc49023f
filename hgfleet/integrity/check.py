"""Check of a repository while pushes go on: its corruption, or nothing.

The verifier takes no lock, so a push during the check looks like damage. A problem counts if the
repository did not change while it was read; otherwise it is read again.
"""

from __future__ import annotations

import os
import subprocess
import sys
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HostError, TemporaryError
from hgfleet.core.text import shown
from hgfleet.hg import fingerprint, unconfigured

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

FOUND: Final = 65
"""Exit code of the verifier if it found a problem. A verifier that cannot start ends with 1."""

ROUNDS: Final = 5
"""How often a repository is read if its problems may come from a push."""

MOST: Final = 300
"""Characters of a repository's problems that are kept."""


def check(folder: Path, verified: Callable[[Path], str] | None = None) -> str:
    """Return the corruption of a repository, "" if there is none.

    Raises TemporaryError if it changed in each round, HostError if it could not be verified.
    """
    for _ in range(ROUNDS):
        before = state(folder)
        problems = (verified or verify)(folder)
        if not problems:
            return ""
        after = state(folder)
        if before is not None and before == after:
            return shown(problems, MOST)
    raise TemporaryError(
        f"{folder}: it changed each time that it was read; the next night tries again"
    )


def state(folder: Path) -> fingerprint.Fingerprint | None:
    """Return the fingerprint of a repository at rest, None during and right after a change."""
    if (folder / ".hg/store/journal").exists():
        return None
    current = fingerprint.read_repository(fingerprint.paths(folder / ".hg"))
    return current if current.is_settled() else None


def verify(folder: Path) -> str:
    """Run the verifier without the configuration of the service; return the problems it found.

    Raises HostError if it could not run to its end.
    """
    done = subprocess.run(
        [sys.executable, "-m", "hgfleet.integrity.verifier", str(folder)],
        env=unconfigured.environment() | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")},
        cwd="/",
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
    )
    if done.returncode == 0:
        return ""
    if done.returncode != FOUND:
        said = " ".join(done.stderr.split())[-MOST:]
        raise HostError(f"{folder}: the verifier ended with {done.returncode}: {said}")
    return "; ".join(done.stdout.splitlines()) or "hg verify found a problem and named none"
