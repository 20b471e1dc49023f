"""A request to a receiver: a POST, of whose answer only the status counts.

No redirect is followed, no body of an answer is read, and a single timeout covers name lookup,
connection, TLS, request and answer. So a receiver cannot redirect the request, delay it, or fill
the memory.
"""

from __future__ import annotations

import asyncio
import re
import ssl
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Mapping

MOST_ANSWER_BYTES: Final = 16 * 1024
"""Most bytes of status line and headers."""

_STATUS: Final = re.compile(rb"HTTP/1\.[01] ([1-9][0-9]{2})(?: [^\r\n]*)?\r?\n")


class RequestError(Exception):
    """No answer with a status came; the message says why."""


async def post(
    url: str, headers: Mapping[str, str], body: bytes, seconds: float, tls: ssl.SSLContext
) -> int:
    """Post a body; return the status of the answer. Raises RequestError."""
    try:
        async with asyncio.timeout(seconds):
            return await _post(url, headers, body, tls)
    except TimeoutError as error:
        raise RequestError(f"no answer within {seconds:g} s") from error
    except ssl.SSLCertVerificationError as error:
        raise RequestError(f"its certificate is refused: {error.verify_message}") from error
    except (OSError, asyncio.IncompleteReadError) as error:
        reason = getattr(error, "strerror", None) or "the connection ended before an answer"
        raise RequestError(f"{reason}") from error
    except (asyncio.LimitOverrunError, UnicodeError) as error:
        raise RequestError("the answer is no HTTP") from error


async def _post(url: str, headers: Mapping[str, str], body: bytes, tls: ssl.SSLContext) -> int:
    parts = urlsplit(url)
    is_secure = parts.scheme == "https"
    reader, writer = await asyncio.open_connection(
        parts.hostname,
        parts.port or (443 if is_secure else 80),
        ssl=tls if is_secure else None,
        limit=MOST_ANSWER_BYTES,
    )
    try:
        target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
        lines = [
            f"POST {target} HTTP/1.1",
            f"Host: {parts.netloc}",
            f"Content-Length: {len(body)}",
            "Connection: close",
            *(f"{name}: {value}" for name, value in headers.items()),
        ]
        writer.write("\r\n".join([*lines, "", ""]).encode("ascii") + body)
        # A receiver may answer, and close the connection, before it has read the whole request.
        return await _status(reader)
    finally:
        # Abort: an orderly close of TLS would wait for the receiver.
        writer.transport.abort()


async def _status(reader: asyncio.StreamReader) -> int:
    """Read the status of the final answer, after any provisional answers."""
    for _provisional in range(5):
        match = _STATUS.fullmatch(await reader.readuntil(b"\n"))
        if match is None:
            raise RequestError("the answer is no HTTP")
        if match[1][:1] != b"1":
            return int(match[1])
        while (await reader.readuntil(b"\n")).strip():
            pass
    raise RequestError("the answer has no final status")
