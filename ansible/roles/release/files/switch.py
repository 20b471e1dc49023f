"""Make a release current, together with the settings that were made for it.

    switch.py VERSION [FILE...]

The symlink `current` moves, and each FILE is replaced by FILE.next where that exists. SSH sessions
that begin during the change wait, and sessions that are starting have read everything before
(`hgfleet/hg/sessions/session_start.py`). Kernel locks hold them, so the hold ends with this
process. Prints for how long sessions were held (seconds). It runs before any release is there, and
so uses nothing but Python's own modules.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

RELEASES = Path("/opt/hgfleet")
SESSIONS = Path("/run/hgfleet-sessions")

PATIENCE_SECONDS = 4.0
"""For both locks together, so that no push is held for 5 s. A session that starts for longer may
read both releases, which is better than holding all others for it."""

STEP_SECONDS = 0.01


@contextlib.contextmanager
def _held(sessions: Path) -> Iterator[None]:
    """Hold new sessions back, once those that are starting have begun."""
    sessions.mkdir(mode=0o755, exist_ok=True)
    until = time.monotonic() + PATIENCE_SECONDS
    with contextlib.ExitStack() as stack:
        for name in ("gate", "starting"):
            file = stack.enter_context((sessions / name).open("a"))
            os.fchmod(file.fileno(), 0o644)
            _lock(file.fileno(), until)
        yield


def _lock(descriptor: int, until: float) -> None:
    while True:
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            if time.monotonic() >= until:
                return
            time.sleep(STEP_SECONDS)
        else:
            return


def switch(
    version: str, files: Sequence[Path], releases: Path = RELEASES, sessions: Path = SESSIONS
) -> float:
    """Change the release and the files; return for how long sessions were held (seconds)."""
    link = releases / ".current.next"
    link.unlink(missing_ok=True)
    link.symlink_to(f"releases/{version}")
    begin = time.monotonic()
    with _held(sessions):
        for path in files:
            with contextlib.suppress(FileNotFoundError):
                path.with_name(f"{path.name}.next").replace(path)
        link.replace(releases / "current")
    held = round(time.monotonic() - begin, 3)
    # For the summary of a deploy (`ansible/on_host/look.py`).
    (sessions / "held").write_text(json.dumps({"release": version, "seconds": held}))
    return held


if __name__ == "__main__":
    print(switch(sys.argv[1], [Path(name) for name in sys.argv[2:]]))
