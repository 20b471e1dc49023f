"""Mercurial as a client of the service: without the configuration of this host (I/O).

A command is a fork of this process, which has Mercurial loaded: loading takes two thirds of the
processor time of a small clone.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
from typing import TYPE_CHECKING, Final

from hgfleet.core.text import shown
from hgfleet.hg import unconfigured

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from multiprocessing.context import ForkProcess
    from pathlib import Path

MOST: Final = 300
"""Most characters of a client's messages in a problem."""

MOST_READ: Final = 1024 * 1024
"""Most bytes of a client's messages that are read."""

_FORK: Final = multiprocessing.get_context("fork")


def load() -> None:
    """Load the modules of Mercurial for a clone and a push into this process."""
    from mercurial import bundlecaches, dispatch, httppeer, localrepo, sshpeer  # noqa: F401


def hg(
    command: str,
    arguments: Sequence[str | Path],
    *,
    seconds: float,
    accepted: Collection[int] = (0,),
) -> tuple[str, str]:
    """Run a command of hg; return its messages, and the problem, "" for an accepted exit code.

    A command that takes too long is killed, together with the ssh that it has started.
    """
    words = [os.fsencode(word) for word in (command, *arguments)]
    with os.fdopen(os.memfd_create("messages"), "rb") as messages:
        process = _FORK.Process(target=_run, args=(words, messages.fileno()))
        process.start()
        process.join(seconds)
        code = process.exitcode
        if code is None:
            _kill(process)
        process.close()
        messages.seek(0)
        output = messages.read(MOST_READ).decode("utf-8", "replace")
    if code is None:
        return "", f"the {command} was not done after {seconds:g} s"
    if code in accepted:
        return output, ""
    return output, f"hg {command} ended with {code}: {last(output)}"


def last(messages: str) -> str:
    """Return the end of a client's messages as a line of printable text. Pure."""
    return shown(" ".join(messages.split())[-MOST:], MOST)


def _run(words: list[bytes], messages: int) -> None:
    """Run hg in this forked process."""
    from mercurial import dispatch, main_script

    os.setsid()
    # Signals get their default action: the handlers belong to the parent.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    os.environ.clear()
    os.environ.update(unconfigured.environment())
    os.chdir("/")
    for stream in (1, 2):
        os.dup2(messages, stream)
    with os.fdopen(messages, "wb", closefd=False) as output:
        # Mercurial's streams may differ from 1 and 2: it takes Python's streams at its import.
        code = dispatch.dispatch(main_script.request(words, fout=output, ferr=output))
    os._exit(code & 255)


def _kill(process: ForkProcess) -> None:
    assert process.pid is not None
    # Only the process, in case it has no process group yet.
    process.kill()
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.join()
