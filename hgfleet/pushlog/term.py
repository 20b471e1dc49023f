"""The term of a primary, as sessions read it: files that refuse pushes, and the epoch of records.

SSH sessions import this module, so it does without pathlib.
"""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import PushlogError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

FIRST: Final = 1
"""Epoch of a site without a promotion."""

MOST: Final = 4096
"""Bytes of a file that are read."""

HIGHEST: Final = 10**9

LOOK_SECONDS: Final = 0.1
"""Between checks for the confirmation of the term."""


def refusal(files: Iterable[str]) -> str | None:
    """Return the sentence of the first file that exists, None if none does.

    A file that cannot be read refuses too: it may name another primary.
    """
    for name in files:
        try:
            with open(name, "rb") as file:  # noqa: PTH123  (sessions do without pathlib)
                text = file.read(MOST).decode("utf-8", "replace")
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            return (
                f"{name} cannot be read ({error.strerror}); operators: `hgfleet replication fence`"
            )
        return (
            " ".join(text.split()) or f"{name} refuses pushes; operators: see the runbook promote"
        )
    return None


def unconfirmed(
    fence: Iterable[str], name: str, seconds: float, notify: Callable[[], None]
) -> str | None:
    """Wait while the term of a host that has just started is not confirmed (I/O).

    Returns the sentence of a fence, or of the file `name` if it exists after so many seconds;
    None if neither refuses. `notify` is called once, if there is a wait.
    """
    files = [*fence]
    until, is_notified = time.monotonic() + seconds, False
    while True:
        if sentence := refusal(files):
            return sentence
        # lexists: a file that cannot be read refuses, as a fence does.
        if not name or not os.path.lexists(name):
            return None
        if time.monotonic() >= until:
            return refusal([name])
        if not is_notified:
            notify()
            is_notified = True
        time.sleep(LOOK_SECONDS)


def epoch(name: str) -> int:
    """Return the epoch in a host's file, FIRST without a file. Raises PushlogError."""
    try:
        with open(name, "rb") as file:  # noqa: PTH123  (sessions do without pathlib)
            return parse(file.read(MOST))[0]
    except FileNotFoundError:
        return FIRST
    except (OSError, ValueError) as error:
        raise PushlogError(
            f"{name} is not an epoch of this site ({error}); `hgfleet replication promote` writes "
            "it, and the relay from the brokers"
        ) from error


def parse(text: bytes) -> tuple[int, str]:
    """Read the content of the file: the epoch, and the primary's host. Raises ValueError."""
    try:
        data = json.loads(text)
    except RecursionError as error:
        raise ValueError("too deeply nested") from error
    number = data.get("epoch") if isinstance(data, dict) else None
    primary = data.get("primary") if isinstance(data, dict) else None
    if type(number) is not int or not FIRST <= number <= HIGHEST or not isinstance(primary, str):
        raise ValueError(f"got {text!r:.80}, expected an epoch and a primary")
    return number, primary


def write(number: int, primary: str) -> str:
    """Return the content of the file."""
    return json.dumps({"epoch": number, "primary": primary}) + "\n"
