"""Delivery of a stream's messages through a durable consumer."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final

import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig

from hgfleet.replication.protocol.connection import FAILURES, LostError

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js.api import DeliverPolicy

ANSWER_SECONDS: Final = 5.0
BATCH: Final = 64
PULL_SECONDS: Final = 20.0
"""How long a request for messages stays open."""

ACK_SECONDS: Final = 30.0
"""Time after which the broker delivers an unacknowledged message again."""


async def ensure_consumer(
    client: Client,
    stream: str,
    name: str,
    policy: DeliverPolicy,
    most_unacknowledged: int,
) -> None:
    """Create a durable consumer unless it is there. Raises the errors of nats-py."""
    api = client.jetstream(timeout=ANSWER_SECONDS)
    try:
        await api.consumer_info(stream, name)
    except nats.js.errors.NotFoundError:
        # The relay creates the stream; until then this fails, and is tried again.
        await api.add_consumer(
            stream,
            ConsumerConfig(
                name=name,
                durable_name=name,
                deliver_policy=policy,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ACK_SECONDS,
                max_ack_pending=most_unacknowledged,
            ),
        )


async def messages_of(client: Client, stream: str, consumer: str) -> AsyncIterator[Msg]:
    """Yield messages as they come; raises LostError when the broker ends the delivery.

    `fetch` of nats-py is not used, because it waits for a whole batch, or for the end of its time.
    """
    inbox = client.new_inbox()
    pulled = await client.subscribe(inbox)
    subject = f"$JS.API.CONSUMER.MSG.NEXT.{stream}.{consumer}"
    request = {"batch": BATCH, "expires": int(PULL_SECONDS * 1e9)}
    try:
        while True:
            await client.publish(subject, json.dumps(request).encode("ascii"), reply=inbox)
            # nats-server 2.9 reports the end of a request only when the next message comes.
            with contextlib.suppress(nats.errors.TimeoutError):
                for _number in range(BATCH):
                    message = await pulled.next_msg(timeout=PULL_SECONDS + 1)
                    status = (message.headers or {}).get("Status")
                    if status is None:
                        yield message
                    elif status in ("404", "408"):
                        break
                    elif status != "100":
                        description = (message.headers or {}).get("Description", "")
                        raise LostError(f"the broker ends the delivery ({status} {description})")
    finally:
        with contextlib.suppress(*FAILURES):
            await pulled.unsubscribe()
