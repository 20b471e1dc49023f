"""Messages of a stream through a durable consumer, as they come."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig

from hgfleet.core.errors import UnavailableError
from hgfleet.replication import connection
from hgfleet.replication.connection import FAILURES, FIRST_PAUSE, LONGEST_PAUSE

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import DeliverPolicy

    from hgfleet.replication.settings import Settings

ANSWER_SECONDS: Final = 5.0
BATCH: Final = 64
PULL_SECONDS: Final = 20.0
"""For which one request for messages is open."""

ACK_SECONDS: Final = 30.0
"""After which the broker delivers a message again that was not acknowledged."""


class LostError(UnavailableError):
    """The broker does not answer, or does not deliver."""


async def for_ever(
    settings: Settings,
    program: str,
    receive: Callable[[Client, Callable[[], None]], Awaitable[None]],
    say: Callable[..., None],
    *failures: type[Exception],
) -> None:
    """Connect and run `receive` with the connection, again and again, until cancelled.

    `receive` calls its second argument when messages come from then on. `failures` are errors of
    its own after which it is run again, as after those of the connection.
    """
    known: tuple[type[Exception], ...] = (*FAILURES, LostError, *failures)
    problem, pause = "", FIRST_PAUSE

    def receives() -> None:
        nonlocal problem, pause
        problem, pause = "", FIRST_PAUSE
        say("broker-connected")

    while True:
        client: Client | None = None
        try:
            client = await connection.connect(settings, program)
            await receive(client, receives)
        except known as error:
            sentence = str(error) or type(error).__name__
            if sentence != problem:
                say("events-away", reason=sentence)
            problem = sentence
        finally:
            await connection.close(client)
        await asyncio.sleep(pause)
        pause = min(pause * 2, LONGEST_PAUSE)


async def ensure_consumer(
    client: Client,
    stream: str,
    name: str,
    policy: DeliverPolicy,
    most_unacknowledged: int,
    ack_seconds: float = ACK_SECONDS,
) -> None:
    """Create a durable consumer unless it is there. Raises the errors of nats-py.

    With one unacknowledged message at most, messages come in their order, also after a failure.
    """
    api = client.jetstream(timeout=ANSWER_SECONDS)
    try:
        await api.consumer_info(stream, name)
    except nats.js.errors.NotFoundError:
        # The stream is made by the relay; without it this fails, and is tried again.
        await api.add_consumer(
            stream,
            ConsumerConfig(
                name=name,
                durable_name=name,
                deliver_policy=policy,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ack_seconds,
                max_ack_pending=most_unacknowledged,
            ),
        )


async def messages_of(client: Client, stream: str, consumer: str) -> AsyncIterator[Msg]:
    """Yield messages as they come; raises LostError when the broker ends that.

    `fetch` of nats-py waits for a whole batch, or for the end of its time.
    """
    inbox = client.new_inbox()
    pulled = await client.subscribe(inbox)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    request = {"batch": BATCH, "expires": int(PULL_SECONDS * 1e9)}
    while True:
        await client.publish(subject, json.dumps(request).encode("ascii"), reply=inbox)
        for _number in range(BATCH):
            message = await _next(client, pulled)
            if message is None:
                break
            status = (message.headers or {}).get("Status")
            if status is None:
                yield message
            elif status in ("404", "408"):
                break
            elif status != "100":
                description = (message.headers or {}).get("Description", "")
                raise LostError(f"the broker ends the delivery ({status} {description})")


async def _next(client: Client, pulled: Any) -> Msg | None:
    """Wait for a message, or for the end of the request.

    nats-server 2.9 says that a request ended when the next message comes, and not before; a broker
    that is gone is noticed by its pings.
    """
    for _second in range(int(PULL_SECONDS) + 1):
        try:
            message: Msg = await pulled.next_msg(timeout=1.0)
        except nats.errors.TimeoutError:
            if client.is_closed:
                raise LostError("the connection ended") from None
            continue
        return message
    return None
