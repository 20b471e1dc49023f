"""Broken releases: the release of this checkout with a few more lines in the web workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

MODULE: Final = "lib/python3.13/site-packages/hgfleet/web/app.py"

_SLEEPING: Final = """
import time
_called = Application.__call__
def _sleeping(self, environ, start_response):
    time.sleep({seconds})
    return _called(self, environ, start_response)
Application.__call__ = _sleeping
"""

_WRONG: Final = """
_sent = Responses.send_answer
def _wrong(self, exchange, answer):
    if "/raw-file/" in exchange.path:
        from dataclasses import replace
        answer = replace(answer, parts=tuple(b"0" * len(part) for part in answer.parts))
    return _sent(self, exchange, answer)
Responses.send_answer = _wrong
"""


@dataclass(frozen=True)
class Broken:
    """A broken release: the end of its version, and lines for its web workers.

    The reason that ./deploy gives contains at least one of `reasons`.
    """

    name: str
    lines: str
    reasons: tuple[str, ...]

    @property
    def change(self) -> str:
        """The shell script that breaks a release in its folder."""
        return f"cat >> {MODULE} <<'END'\n{self.lines}\nEND"


BROKEN: Final = (
    Broken(
        "nostart",
        "raise RuntimeError('this release does not start')",
        ("ansible/site.yml failed on ",),
    ),
    Broken("wrong", _WRONG, ("wrong data: ",)),
    # Health checks have a socket of their own and are answered, so the host looks healthy.
    Broken("hangs", _SLEEPING.format(seconds=3600), ("does not answer: ",)),
    Broken("slow", _SLEEPING.format(seconds=3), ("a page takes ",)),
)
