"""Progress of a run: sentences at a terminal, structured events elsewhere, each on its line."""

from __future__ import annotations

import sys
import threading
from typing import TextIO

from hgfleet.core import logfmt

FORMATS = ("auto", "text", "events")


class Report:
    """Writes each step as a line to a stream, from any thread."""

    def __init__(
        self, form: str = "auto", stream: TextIO | None = None, *, part: str = "bundles"
    ) -> None:
        self._part = part
        self._stream = stream or sys.stdout
        self._events = form == "events" or (form == "auto" and not self._stream.isatty())
        self._lock = threading.Lock()

    def step(self, event: str, repository: str, text: str, **fields: object) -> None:
        """Report a step: `text` is for people; `fields` are in seconds and bytes, without units."""
        line = f"{repository}: {text}"
        if self._events:
            line = logfmt.line(f"{self._part}.{event}", repository=repository, **fields)
        self._write(line)

    def note(self, event: str, text: str, **fields: object) -> None:
        """Report a step that concerns no single repository."""
        self._write(logfmt.line(f"{self._part}.{event}", **fields) if self._events else text)

    def summary(self, text: str, **fields: object) -> None:
        """Report the end of a run."""
        self._write(logfmt.line(f"{self._part}.done", **fields) if self._events else text)

    def _write(self, line: str) -> None:
        with self._lock:
            print(line, file=self._stream, flush=True)
