"""Connections to the brokers: made again and again, each with the same life."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
import time
from typing import TYPE_CHECKING, Any, Final

import nats
import nats.errors

from hgfleet.core.errors import UnavailableError
from hgfleet.replication.protocol import tasks
from hgfleet.replication.protocol.broker_errors import sentence

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.aio.client import Client

    from hgfleet.replication.protocol.settings import Settings

CONNECT_SECONDS: Final = 3
PING_SECONDS: Final = 5
"""Time between pings; a broker that leaves two pings unanswered is away."""

PAUSE_SECONDS: Final = 2.0
"""Time between attempts of nats-py to reach a broker within a connection."""

FIRST_PAUSE: Final = 0.25
LONGEST_PAUSE: Final = 5.0
"""Seconds between attempts to connect; doubled each time."""

FAILURES: Final = (nats.errors.Error, OSError, TimeoutError, asyncio.TimeoutError)
"""Errors of nats-py and of the network; `nats.js.errors` are below `nats.errors.Error`."""


class LostError(UnavailableError):
    """The broker does not answer, or does not deliver."""


class Connection:
    """Keeps a connection, and makes it again when it ends, until it is cancelled.

    `live` is awaited with each new connection. It calls `established` once everything that it needs
    is in place, and ends, or is cancelled, with the connection. FAILURES, LostError and `failures`
    end a connection; other errors end the daemon.
    """

    def __init__(
        self,
        settings: Settings,
        program: str,
        say: Callable[..., None],
        live: Callable[[Client], Awaitable[None]],
        *failures: type[Exception],
    ) -> None:
        self.ready = asyncio.Event()
        """Set while a connection is established."""
        self.changed_at = time.monotonic()
        """When `ready` last changed."""
        self.problem = "the broker has not answered yet"
        self.client: Client | None = None
        self._settings, self._program, self._say = settings, program, say
        self._live = live
        self._failures: tuple[type[Exception], ...] = (*FAILURES, LostError, *failures)
        self._lost: asyncio.Future[BaseException] | None = None
        self._cause: BaseException | None = None
        self._pause = FIRST_PAUSE

    async def run(self) -> None:
        """Connect, again and again, until cancelled."""
        while True:
            try:
                await self._life()
            except self._failures as error:
                # The broker does not answer a request that it does not permit; the reason comes
                # separately, as `_cause`.
                cause = self._cause if isinstance(error, TimeoutError) else None
                problem = sentence(cause or error, self._settings.brokers)
                if problem != self.problem:
                    self._say("broker-away", reason=problem)
                self.problem = problem
            await asyncio.sleep(self._pause)
            self._pause = min(self._pause * 2, LONGEST_PAUSE)

    def established(self) -> None:
        """Record that the connection is ready for use."""
        address = self.client.connected_url if self.client else None
        self.problem, self._pause = "", FIRST_PAUSE
        self.changed_at = time.monotonic()
        self.ready.set()
        self._say("broker-connected", broker=address.netloc if address else "")

    def lose(self, error: BaseException) -> None:
        """Give up the connection, because an answer did not come."""
        self._is_away()
        if self._lost is not None and not self._lost.done():
            self._lost.set_result(error)

    async def tell(self, subject: str, body: bytes, headers: dict[str, str] | None = None) -> None:
        """Publish without an answer; a lost connection loses the message."""
        if self.client is not None:
            with contextlib.suppress(*FAILURES):
                await self.client.publish(subject, body, headers=headers or None)

    async def _life(self) -> None:
        """Connect, and live until the connection is lost. Raises the reason."""
        self._cause, self._lost = None, asyncio.get_running_loop().create_future()
        # A separate task: while nats-py connects it may swallow a cancellation, and so may
        # `asyncio.wait_for` before Python 3.12 if an answer comes at the same moment.
        life = asyncio.ensure_future(self._connected(self._lost))
        both: set[asyncio.Future[Any]] = {life, self._lost}
        try:
            await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
            if life.done():
                life.result()
        finally:
            self._is_away()
            await tasks.cancel([life])
            if not life.cancelled():
                life.exception()
            client, self.client = self.client, None
            await _close(client)
        raise self._lost.result()

    async def _connected(self, lost: asyncio.Future[BaseException]) -> None:
        async def failed(error: Exception) -> None:
            self._cause = error

        async def ended() -> None:
            # If there is no client yet, `connect` fails.
            if self.client is not None:
                self.lose(self._ended())

        client = await connect(
            *(self._settings, self._program),
            error_cb=failed,
            closed_cb=ended,
            disconnected_cb=ended,
        )
        self.client = client
        if client.is_closed:
            raise self._ended()
        await self._live(client)
        await asyncio.wait({lost})

    def _ended(self) -> BaseException:
        is_end = self._cause is None or isinstance(self._cause, nats.errors.UnexpectedEOF)
        ended = ConnectionError("the connection ended")
        return ended if is_end else self._cause or ended

    def _is_away(self) -> None:
        if self.ready.is_set():
            self.ready.clear()
            self.changed_at = time.monotonic()


async def connect(settings: Settings, program: str, **options: Any) -> Client:
    """Connect as this host; raises FAILURES. A connection that ends stays ended."""
    if "tls" not in options:
        options["tls"] = tls(settings)
    options.setdefault("error_cb", _ignore)
    return await nats.connect(
        list(settings.brokers),
        name=f"{program} {settings.host}",
        connect_timeout=CONNECT_SECONDS,
        allow_reconnect=False,
        ping_interval=PING_SECONDS,
        max_outstanding_pings=2,
        **options,
    )


@contextlib.asynccontextmanager
async def asking(
    settings: Settings, program: str, tls: ssl.SSLContext | None, *, tries: int = 60
) -> AsyncIterator[Client]:
    """Connect for a command. Raises UnavailableError, also for FAILURES in the block.

    nats-py tries each broker `tries` times before it gives up, `PAUSE_SECONDS` apart.
    """
    try:
        client = await connect(
            settings,
            program,
            tls=tls,
            max_reconnect_attempts=tries,
            reconnect_time_wait=PAUSE_SECONDS,
        )
        try:
            yield client
        finally:
            await _close(client)
    except FAILURES as error:
        raise UnavailableError(sentence(error, settings.brokers)) from error


async def _ignore(_error: Exception) -> None:
    """Errors end the connection, and the code that uses it reports them."""


async def _close(client: Client | None) -> None:
    """End a connection, in a bounded time."""
    if client is None:
        return
    # A separate task, because nats-py cancels tasks there, and the program may end here.
    closing = asyncio.ensure_future(client.close())
    await asyncio.wait({closing}, timeout=CONNECT_SECONDS)
    if not closing.done():
        closing.cancel()
    elif not closing.cancelled():
        closing.exception()


def tls(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context for connections to brokers; None for a test's broker without TLS."""
    if not any(url.startswith("tls://") for url in settings.brokers):
        return None
    context = ssl.create_default_context(cafile=str(settings.ca))
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.load_cert_chain(settings.certificate, settings.key)
    return context
