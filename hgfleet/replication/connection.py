"""Connections to a broker, as the relay and the appliers make them: one after the other."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from typing import TYPE_CHECKING, Any, Final

import nats
import nats.errors

if TYPE_CHECKING:
    from nats.aio.client import Client

    from hgfleet.replication.settings import Settings

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
    return await nats.connect(
        list(settings.brokers),
        name=f"{program} {settings.host}",
        tls=tls(settings),
        connect_timeout=CONNECT_SECONDS,
        allow_reconnect=False,
        ping_interval=PING_SECONDS,
        max_outstanding_pings=2,
        **callbacks,
    )


async def _ignore(_error: Exception) -> None:
    """Errors end the connection, and are told where it is used."""


async def tell(client: Client | None, subject: str, body: bytes) -> None:
    """Publish without an answer; a lost connection loses the message."""
    if client is not None:
        with contextlib.suppress(*FAILURES):
            await client.publish(subject, body)


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
