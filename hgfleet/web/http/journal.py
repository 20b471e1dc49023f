"""Events for the operators on standard error, which systemd writes to the journal."""

from __future__ import annotations

import json
import sys
import traceback
from pathlib import Path
from typing import Final

_CALLS: Final = 4
"""The innermost calls, which the description of an exception names."""
_MOST: Final = 500
"""Characters of the text of an exception in its description."""


def report(event: str, message: str, identity: str = "") -> None:
    """Write an event as a line of JSON; `identity` is the request's, if it is about a request."""
    record = {"event": event, **({"id": identity} if identity else {}), "message": message}
    print(json.dumps(record), file=sys.stderr, flush=True)


def described(problem: BaseException) -> str:
    """Describe an exception in a single line: clients decide how often some of them are written."""
    calls = traceback.extract_tb(problem.__traceback__)[-_CALLS:]
    where = " < ".join(f"{Path(call.filename).name}:{call.lineno}" for call in reversed(calls))
    text = " ".join(str(problem).split())[:_MOST]
    return f"{type(problem).__name__}: {text}" + (f" ({where})" if where else "")
