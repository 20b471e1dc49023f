"""Frames between a worker and its renderers: a kind, a length, a payload.

Payloads that are not bytes of an answer are JSON, since a renderer reads hostile repositories and
its worker must not unpickle an object of it.
"""

from __future__ import annotations

import json
import struct
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import socket

REQUEST: Final = b"Q"
HEAD: Final = b"H"
"""Status and headers."""
PIECE: Final = b"D"
"""Bytes that hgweb returned."""
WRITTEN: Final = b"W"
"""Bytes that hgweb wrote through WSGI's write()."""
END: Final = b"E"
FAILURE: Final = b"X"

_HEADER: Final = struct.Struct(">cI")
_LARGEST: Final = 16 * 1024 * 1024
"""Bytes of a payload; the largest one is a request with a body of 4 MiB, quoted in JSON."""
PART: Final = 1024 * 1024
"""Bytes of an answer that one frame has at most."""


class ClosedError(Exception):
    """The other end is closed, or has ended in the middle of a frame."""


def send(channel: socket.socket, kind: bytes, payload: bytes = b"") -> None:
    """Send one frame; raises ClosedError."""
    try:
        if len(payload) < 65536:
            channel.sendall(_HEADER.pack(kind, len(payload)) + payload)
        else:
            channel.sendall(_HEADER.pack(kind, len(payload)))
            channel.sendall(payload)
    except OSError as problem:
        raise ClosedError(str(problem)) from problem


def send_json(channel: socket.socket, kind: bytes, value: Any) -> None:
    """Send one frame with a JSON document; raises ClosedError."""
    send(channel, kind, json.dumps(value).encode("ascii"))


def receive(channel: socket.socket) -> tuple[bytes, bytes]:
    """Return the kind and the payload of the next frame; raises ClosedError."""
    kind, length = _HEADER.unpack(_exactly(channel, _HEADER.size))
    if length > _LARGEST:
        raise ClosedError(f"a frame of {length} bytes, expected at most {_LARGEST}")
    return kind, _exactly(channel, length)


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
