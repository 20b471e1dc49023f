"""`python -m hgfleet.storage.worker`: the process that upgrades one repository.

It reports as one JSON object a line, the last one with `event` `done` or `failed`. Each repository
has a process of its own: they work at the same time, an error in hg ends one of them alone, and the
end of the process frees its memory.
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
"""A third of the processor beside one other process. A lower share would hold the lock longer."""


def say(event: str, **fields: Any) -> None:
    """Tell the parent."""
    print(json.dumps({"event": event, **fields}), flush=True)


def main(arguments: list[str]) -> int:
    """`wanted`, or `upgrade PATH IDENTITY MEASURE KEEP [prune]`.

    KEEP is in seconds. It may be empty, and so may IDENTITY.
    """
    from hgfleet.storage import opened, rebuild

    if arguments == ["wanted"]:
        say("done", requirements=sorted(opened.wanted()))
        return 0
    _, path, identity, measure, keep, *prune = arguments
    os.nice(NICE)
    try:
        options = rebuild.Options(
            measure == "yes", float(keep) if keep else None, bool(prune), identity
        )
        say("done", **rebuild.upgrade(Path(path), options, say))
    except HgfleetError as error:
        say("failed", error=str(error), code=error.exit_code)
        return error.exit_code
    except OSError as error:
        say("failed", error=str(error), code=HostError.exit_code)
        return HostError.exit_code
    except Exception as error:
        # Any other error concerns one repository, which was left as it is.
        detail = "".join(traceback.format_exception(error))[-2000:]
        say("failed", error=f"{type(error).__name__}: {error}", code=1, detail=detail)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
