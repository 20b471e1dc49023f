"""Mercurial as a client of the service: without the configuration of this host (I/O)."""

from __future__ import annotations

import subprocess
from typing import TYPE_CHECKING, Final

from hgfleet.core.text import shown
from hgfleet.hg import unconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from pathlib import Path

MOST: Final = 300
"""Characters of a client's messages in a problem."""


def hg(
    program: Path,
    command: str,
    arguments: Sequence[str | Path],
    *,
    seconds: float,
    accepted: Collection[int] = (0,),
) -> tuple[str, str]:
    """Run a command of hg; return its messages, and the problem, "" for an accepted exit code."""
    try:
        done = subprocess.run(
            [program, command, *arguments],
            env=unconfigured.environment(),
            cwd="/",
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "", f"the {command} was not done after {seconds:g} s"
    except OSError as error:
        return "", f"{program}: {error.strerror}"
    if done.returncode in accepted:
        return done.stdout, ""
    return done.stdout, f"hg {command} ended with {done.returncode}: {last(done.stdout)}"


def last(messages: str) -> str:
    """Return the end of a client's messages as one line of printable text. Pure."""
    return shown(" ".join(messages.split())[-MOST:], MOST)
