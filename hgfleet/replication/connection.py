"""Connections to a broker, as the relay and the appliers make them: one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final, TypeVar

import nats
import nats.errors

if TYPE_CHECKING:
    from collections.abc import Coroutine

    from nats.aio.client import Client

    from hgfleet.replication.settings import Settings

T = TypeVar("T")

CONNECT_SECONDS: Final = 3
PING_SECONDS: Final = 5
"""Between pings; a broker that leaves two unanswered is away."""

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Between attempts to connect, in seconds; doubled each time."""

FAILURES: Final = (nats.errors.Error, OSError, TimeoutError, asyncio.TimeoutError)
"""Errors of nats-py and of the network; `nats.js.errors` are below `nats.errors.Error`."""


async def connect(settings: Settings, program: str, **callbacks: Any) -> Client:
    """Connect as this host; raises FAILURES. A connection that ends stays ended."""
    callbacks.setdefault("error_cb", _ignore)
    return await ending(
        nats.connect(
            list(settings.brokers),
            name=f"{program} {settings.host}",
            tls=tls(settings),
            connect_timeout=CONNECT_SECONDS,
            allow_reconnect=False,
            ping_interval=PING_SECONDS,
            max_outstanding_pings=2,
            **callbacks,
        )
    )


async def ending(work: Coroutine[Any, Any, T]) -> T:
    """Return what a coroutine returns, in a task of its own: a cancellation ends this one.

    While nats-py connects it may swallow a cancellation, and so does `asyncio.wait_for` before
    Python 3.12 where an answer comes in the same moment; the daemon would go on.
    """
    task = asyncio.ensure_future(work)
    try:
        await asyncio.wait({task})
    except asyncio.CancelledError:
        task.cancel()
        await asyncio.wait({task}, timeout=CONNECT_SECONDS)
        if task.done() and not task.cancelled():
            task.exception()
        raise
    return task.result()


async def _ignore(_error: Exception) -> None:
    """Errors end the connection, and are told where it is used."""


async def tell(
    client: Client | None, subject: str, body: bytes, headers: dict[str, str] | None = None
) -> None:
    """Publish without an answer; a lost connection loses the message."""
    if client is not None:
        with contextlib.suppress(*FAILURES):
            await client.publish(subject, body, headers=headers or None)


async def close(client: Client | None) -> None:
    """End a connection, in a bounded time."""
    if client is None:
        return
    # A task of its own: nats-py cancels tasks there, and the end of the program passes here.
    closing = asyncio.ensure_future(client.close())
    await asyncio.wait({closing}, timeout=CONNECT_SECONDS)
    if not closing.done():
        closing.cancel()
    elif not closing.cancelled():
        closing.exception()


def tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS of a host's connections to brokers; None where a test has a broker without."""
    if not any(url.startswith("tls://") for url in settings.brokers):
        return None
    context = ssl.create_default_context(cafile=str(settings.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.certificate, settings.key)
    return context
