"""A request of a webhook: the status of its answer, and its time."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time

import pytest

from hgfleet.webhooks import (
    delivery_request,
)
from testing.integration.replication.relaying import SECONDS


async def answered(answer: bytes, *, seconds: float = 60.0, drips: bool = False) -> int:
    """Send a request to a server with this answer; return the status."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            await reader.read(1)
            if not drips:
                writer.write(answer)
                await writer.drain()
            while drips:
                writer.write(b"H")
                await writer.drain()
                await asyncio.sleep(0.01)
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    tls = ssl.create_default_context()
    try:
        return await delivery_request.post(f"http://127.0.0.1:{port}/", {}, b"{}", seconds, tls)
    finally:
        server.close()


@pytest.mark.parametrize(
    ("answer", "expected"),
    [
        (b"HTTP/1.1 200 OK\r\n\r\n", 200),
        (b"HTTP/1.0 404\r\n\r\n", 404),
        (b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 202 Accepted\r\n", 202),
        (b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\nHTTP/1.1 500 \r\n", 500),
    ],
)
def test_the_status_of_the_final_answer_counts(answer: bytes, expected: int) -> None:
    assert asyncio.run(answered(answer)) == expected


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"", "ended before an answer"),
        (b"HTTP/1.1 2", "ended before an answer"),
        (b"SSH-2.0-OpenSSH\r\n", "no HTTP"),
        (b"HTTP/1.1 abc\r\n", "no HTTP"),
        (b"H" * 1_000_000, "no HTTP|ended before an answer|reset"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 9, "no final status"),
    ],
)
def test_an_answer_that_is_none_is_an_error(answer: bytes, said: str) -> None:
    with pytest.raises(delivery_request.RequestError, match=said):
        asyncio.run(answered(answer))


def test_one_time_bounds_a_request_also_where_an_answer_drips() -> None:
    began = time.monotonic()
    with pytest.raises(delivery_request.RequestError, match=r"no answer within 0.5 s|no HTTP"):
        asyncio.run(answered(b"", seconds=0.5, drips=True))
    assert time.monotonic() - began < SECONDS
