"""`python -m hgfleet.storage.worker`: the process that upgrades a repository.

It reports JSON objects, each on a line, the last with `event` `done` or `failed`. Each repository
has a process of its own: the processes run at the same time, an error in hg only ends one of them,
and the end of the process frees its memory.
"""

from __future__ import annotations

import json
import os
import sys
import traceback
from pathlib import Path
from typing import Any, Final

from hgfleet.core.errors import HgfleetError, HostError

NICE: Final = 5
"""Gives a third of the processor next to another process. With less, the lock is held longer."""


def send(event: str, **fields: Any) -> None:
    """Send an event to the parent process."""
    print(json.dumps({"event": event, **fields}), flush=True)


def main(arguments: list[str]) -> int:
    """`wanted`, or `upgrade PATH IDENTITY MEASURE KEEP [prune]`.

    KEEP is in seconds. It may be empty, and so may IDENTITY.
    """
    from hgfleet.storage import opened, rebuild

    if arguments == ["wanted"]:
        send("done", requirements=sorted(opened.wanted()))
        return 0
    _, path, identity, measure, keep, *prune = arguments
    os.nice(NICE)
    try:
        options = rebuild.Options(
            measure == "yes", float(keep) if keep else None, bool(prune), identity
        )
        send("done", **rebuild.upgrade(Path(path), options, send))
    except HgfleetError as error:
        send("failed", error=str(error), code=error.exit_code)
        return error.exit_code
    except OSError as error:
        send("failed", error=str(error), code=HostError.exit_code)
        return HostError.exit_code
    except Exception as error:
        # Any other error concerns only this repository, which was left as it is.
        detail = "".join(traceback.format_exception(error))[-2000:]
        send("failed", error=f"{type(error).__name__}: {error}", code=1, detail=detail)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
