"""Frames between a worker and its renderers: a kind, the number of a request, a length, a payload.

Payloads that are not bytes of an answer are JSON, since a renderer reads hostile repositories and
its worker must not unpickle an object of it.

The frames of an answer have the number of its request, and come in a fixed order (`Sequence`). A
frame with another number, or of a kind that has no place there, is a broken channel: the worker
kills the renderer, and takes no byte of the frame for an answer.

The renderer of a data stream also sends facts for the access log (NOTE), and asks questions (ASK),
each of which gets a REPLY: the worker knows what the renderer cannot.
"""

from __future__ import annotations

import json
import re
import struct
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.hg import clone_counts

if TYPE_CHECKING:
    import socket

HELLO: Final = b"G"
"""The first frame of a renderer."""
REQUEST: Final = b"Q"
HEAD: Final = b"H"
"""Status and headers."""
PIECE: Final = b"D"
"""Bytes that hgweb returned."""
WRITTEN: Final = b"W"
"""Bytes that hgweb wrote through WSGI's write()."""
END: Final = b"E"
FAILURE: Final = b"X"
NOTE: Final = b"N"
"""Fields of the access log, of a data stream."""
ASK: Final = b"K"
"""A question of a data stream, from `QUESTIONS`."""
REPLY: Final = b"Y"
"""The worker's reply: a sentence that refuses, or nothing."""

GO_ON: Final = "go on"
CLONE: Final = "clone"
QUESTIONS: Final = frozenset({GO_ON, CLONE})
"""Whether the client would still be let in, and whether the worker has a thread for a clone."""

_FOLLOWING: Final = {
    REQUEST: frozenset({HEAD, END, FAILURE}),
    HEAD: frozenset({WRITTEN, PIECE, END, FAILURE}),
    WRITTEN: frozenset({WRITTEN, PIECE, END, FAILURE}),
    PIECE: frozenset({PIECE, END, FAILURE}),
    END: frozenset[bytes](),
    FAILURE: frozenset[bytes](),
}
"""The kinds of frames that may follow each. hgweb says nothing at all to some HEAD requests."""

_NOTED: Final = {
    "answer": frozenset(clone_counts.SOURCES),
    "source": frozenset(name for sources in clone_counts.SOURCES.values() for name in sources),
}
"""Fields of a note with words, and their values; a note may also have `waited` (seconds)."""

_HEADER: Final = struct.Struct(">cQI")
_LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a payload; the largest is a request with a body of 4 MiB, quoted in JSON."""
PART: Final = 1024 * 1024
"""Most bytes of an answer in a frame."""

_STATUS: Final = re.compile(r"[1-5][0-9]{2}( .*)?")


class ClosedError(Exception):
    """The other end is closed, or has ended in the middle of a frame."""


class BrokenError(Exception):
    """The other end sent a frame that has no place there; the channel is of no more use."""


class Head(NamedTuple):
    """Status and headers of an answer."""

    status: str
    headers: list[tuple[str, str]]


class End(NamedTuple):
    """The end of an answer: processor time (seconds), and why the answer is not whole.

    `kind` is "" for a whole answer. `ends`: the renderer ends too, and takes no further request.
    `is_told`: the bytes of the answer themselves tell the client that it is not whole.
    """

    ends: bool
    cpu: float
    kind: str = ""
    cause: str = ""
    is_told: bool = False


class Sequence:
    """The frames of an answer as they come: all of the same request, in the order of an answer.

    The frames of a data stream (`is_stream`) have notes and questions between them.
    """

    def __init__(self, number: int, *, is_stream: bool = False) -> None:
        self._number = number
        self._last = REQUEST
        self._between = frozenset({NOTE, ASK}) if is_stream else frozenset[bytes]()

    def check(self, kind: bytes, number: int) -> None:
        """Take the next frame; raises BrokenError for a frame that has no place there."""
        if number != self._number:
            raise BrokenError(f"got a frame of request {number}, expected {self._number}")
        if kind in self._between and self._last not in (END, FAILURE):
            return
        if kind not in _FOLLOWING[self._last]:
            raise BrokenError(f"got a frame {kind!r} after {self._last!r} in request {number}")
        self._last = kind


def send(channel: socket.socket, kind: bytes, number: int, payload: bytes = b"") -> None:
    """Send a frame; raises ClosedError."""
    header = _HEADER.pack(kind, number, len(payload))
    try:
        if len(payload) < 65536:
            channel.sendall(header + payload)
        else:
            channel.sendall(header)
            channel.sendall(payload)
    except OSError as problem:
        raise ClosedError(str(problem)) from problem


def send_json(channel: socket.socket, kind: bytes, number: int, value: Any) -> None:
    """Send a frame with a JSON document; raises ClosedError."""
    send(channel, kind, number, json.dumps(value).encode("ascii"))


def receive(channel: socket.socket) -> tuple[bytes, int, bytes]:
    """Return kind, number and payload of the next frame; raises ClosedError and BrokenError."""
    kind, number, length = _HEADER.unpack(_exactly(channel, _HEADER.size))
    if length > _LARGEST:
        raise BrokenError(f"got a frame of {length} bytes, expected at most {_LARGEST}")
    return kind, number, _exactly(channel, length)


def greeting(kind: bytes, payload: bytes) -> int:
    """Return the process id that a new renderer sends; raises BrokenError."""
    fields = _object(payload)
    pid = fields.get("pid")
    if kind != HELLO or type(pid) is not int:
        raise BrokenError(f"got {payload!r:.80} as a renderer's first frame")
    return pid


def head(payload: bytes) -> Head:
    """Read the payload of HEAD; raises BrokenError."""
    fields = _object(payload)
    status, headers = fields.get("status"), fields.get("headers")
    if not isinstance(status, str) or not _STATUS.fullmatch(status):
        raise BrokenError(f"got {status!r:.80} as the status of an answer")
    if not isinstance(headers, list) or not all(map(_is_header, headers)):
        raise BrokenError(f"got {headers!r:.80} as the headers of an answer")
    return Head(status, [(name, value) for name, value in headers])


def end(kind: bytes, payload: bytes) -> End:
    """Read the payload of END or FAILURE; raises BrokenError."""
    fields = _object(payload)
    ends, cpu = fields.get("ends"), fields.get("cpu")
    why, cause = fields.get("kind", ""), fields.get("cause", "")
    is_told = fields.get("is_told", False)
    if type(is_told) is not bool or type(ends) is not bool or not isinstance(cpu, int | float):
        raise BrokenError(f"got {payload!r:.80} as the end of an answer")
    if not isinstance(why, str) or not isinstance(cause, str) or bool(why) != (kind == FAILURE):
        raise BrokenError(f"got {payload!r:.80} as the end of an answer")
    return End(ends, float(cpu), why, cause, is_told)


def note(payload: bytes) -> dict[str, object]:
    """Read the payload of NOTE; raises BrokenError for any other field of the access log."""
    fields = _object(payload)
    for name, value in fields.items():
        if name == "waited":
            is_right = isinstance(value, int | float) and not isinstance(value, bool)
        else:
            is_right = name in _NOTED and isinstance(value, str) and value in _NOTED[name]
        if not is_right:
            raise BrokenError(f"got {payload!r:.80} as fields of the access log")
    return fields


def question(payload: bytes) -> str:
    """Read the payload of ASK; raises BrokenError."""
    asked = _object(payload).get("question")
    if not isinstance(asked, str) or asked not in QUESTIONS:
        raise BrokenError(f"got {payload!r:.80} as a question")
    return asked


def ask(channel: socket.socket, number: int, asked: str) -> str:
    """Ask the worker; return the sentence that refuses, or "". Raises ClosedError, BrokenError."""
    send_json(channel, ASK, number, {"question": asked})
    kind, of, payload = receive(channel)
    if (kind, of) != (REPLY, number):
        raise BrokenError(f"got a frame {kind!r} of request {of}, expected a reply in {number}")
    return str(_object(payload).get("refusal", ""))


def _is_header(item: object) -> bool:
    return isinstance(item, list) and len(item) == 2 and all(isinstance(part, str) for part in item)


def _object(payload: bytes) -> dict[str, Any]:
    try:
        decoded = json.loads(payload)
    except (ValueError, RecursionError) as problem:
        raise BrokenError(f"got {payload!r:.80}, expected JSON") from problem
    if not isinstance(decoded, dict):
        raise BrokenError(f"got {payload!r:.80}, expected a JSON object")
    return decoded


def _exactly(channel: socket.socket, size: int) -> bytes:
    buffer = bytearray(size)
    view = memoryview(buffer)
    have = 0
    while have < size:
        try:
            count = channel.recv_into(view[have:])
        except OSError as problem:
            raise ClosedError(str(problem)) from problem
        if not count:
            raise ClosedError("the other end is closed")
        have += count
    return bytes(buffer)
