"""Helpers of the hooks inside hg: the writer of a transaction, and refusals.

Only extensions import this module; it needs Mercurial.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mercurial import encoding, error

from hgfleet.core.principal import Principal
from hgfleet.hg import push_outcome

if TYPE_CHECKING:
    from collections.abc import Sequence

OPERATOR: Final = re.compile(r"operator:[A-Za-z0-9][A-Za-z0-9._-]{0,31}")
"""An administrator at a shell of the server, by the name they gave."""


MAX_MESSAGE: Final = 255
"""Bytes of the message of an `error:abort` part in a bundle2 reply."""


class WriteRefusedError(error.Abort):  # type: ignore[misc]  # core has no published types
    """The refusal that the client sees, also with --quiet.

    Core (mercurial.hook.pythonhook) first prints "hook failed:" with the first argument of the
    exception, and then the message; printing the sentence once is enough.
    """

    def __init__(self, message: bytes) -> None:
        super().__init__(message)
        self.args = (b"write refused",)


def writer() -> Principal:
    """Return the writer named by the session's environment; the name may be empty."""
    groups = text(encoding.environ.get(b"HGFLEET_GROUPS", b"")).split(",")
    return Principal(
        text(encoding.environ.get(b"HGFLEET_USER", b"")),
        frozenset(group for group in groups if group),
        text(encoding.environ.get(b"HGFLEET_PERSON_ID", b"")),
    )


def refuse(ui: Any, sentence: str, details: Sequence[str] = (), *, reason: str) -> NoReturn:
    """End the transaction with a sentence, after the details on lines of their own.

    `reason` is a word of `push_outcome.REASONS`, for metrics.

    The reply to a push has 255 bytes for the sentence (bundle2 stores the length of a parameter in
    a byte), and the server dies of a longer sentence. So a longer sentence is among the details,
    and the reply has its beginning. With --quiet the client only shows the reply.
    """
    push_outcome.record(reason)
    message = encoding.strtolocal(sentence)
    if len(message) > MAX_MESSAGE:
        details = (sentence, *details)
        message = fitting(message)
    for detail in details:
        ui.warn(b"%s\n" % encoding.strtolocal(detail))
    raise WriteRefusedError(message)


def fitting(message: bytes) -> bytes:
    """Return a message that fits into a reply: its beginning, if it is too long.

    Core's `encoding.trim` counts columns, but a letter of one column has up to four bytes.
    """
    if len(message) <= MAX_MESSAGE:
        return message
    return message[: MAX_MESSAGE - 3].decode("utf-8", "ignore").encode() + b"..."


def text(value: bytes) -> str:
    """Decode UTF-8, with replacements for invalid bytes."""
    return value.decode("utf-8", "replace")
