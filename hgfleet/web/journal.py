"""Events for the operators on standard error, which systemd writes to the journal."""

from __future__ import annotations

import json
import sys


def report(event: str, message: str, identity: str = "") -> None:
    """Write one event as a line of JSON; `identity` is the request's, if one is concerned."""
    record = {"event": event, **({"id": identity} if identity else {}), "message": message}
    print(json.dumps(record), file=sys.stderr, flush=True)
