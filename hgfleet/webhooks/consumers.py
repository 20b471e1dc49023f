"""The durable consumers of receivers in the stream of events."""

from __future__ import annotations

import contextlib
import json
from typing import TYPE_CHECKING, Final, NamedTuple

import nats.errors
import nats.js.errors
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy

from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.pulling import ANSWER_SECONDS
from hgfleet.webhooks import receiver_identities

if TYPE_CHECKING:
    from nats.aio.client import Client
    from nats.js import JetStreamContext
    from nats.js.api import ConsumerInfo

    from hgfleet.webhooks.receiver_identities import Known

FORMER: Final = "webhooks"
"""The consumer of the release before, which all receivers shared."""

ACK_SECONDS: Final = 15.0
"""Time after which the broker sends an event again that is neither acknowledged nor extended,
because its daemon was killed or its host is gone."""

MOST_HELD: Final = 512
"""Most events that a receiver holds unacknowledged; further events stay in the stream."""

FORGOTTEN_SECONDS: Final = 30 * 24 * 3600.0
"""Time after which the broker deletes a consumer that no daemon uses: without receivers no daemon
runs."""


CLOCK_SECONDS: Final = 60.0
"""Difference that is allowed between the clocks of brokers."""


async def receivers(client: Client) -> dict[Known, ConsumerInfo]:
    """Return the receivers that the brokers know. Raises the errors of nats-py.

    A list with descriptions leaves out receivers whose broker does not answer, so names are listed
    first.
    """
    api = client.jetstream(timeout=ANSWER_SECONDS)
    names: list[str] = []
    while True:
        answer = await client.request(
            f"$JS.API.CONSUMER.NAMES.{messages.EVENTS}",
            json.dumps({"offset": len(names)}).encode("ascii"),
            timeout=ANSWER_SECONDS,
        )
        page = json.loads(answer.data)
        if "error" in page:
            raise nats.errors.Error(f"no list of consumers: {page['error']}")
        if not page.get("consumers"):
            break
        names += page["consumers"]
    receivers: dict[Known, ConsumerInfo] = {}
    for name in names:
        if receiver_identities.parse(name, None) is not None:
            info = await api.consumer_info(messages.EVENTS, name)
            if (receiver := receiver_identities.parse(name, info.config.description)) is not None:
                receivers[receiver] = info
    return receivers


async def ensure(api: JetStreamContext, receiver: Known, start: int = 0) -> None:
    """Create a receiver's consumer, or change its description. Raises the errors of nats-py.

    A new consumer gets the events from the number `start` on; without `start`, from now on.
    """
    try:
        info = await api.consumer_info(messages.EVENTS, receiver.consumer)
    except nats.js.errors.NotFoundError:
        last = (await api.stream_info(messages.EVENTS)).state.last_seq
        await api.add_consumer(
            messages.EVENTS,
            ConsumerConfig(
                name=receiver.consumer,
                durable_name=receiver.consumer,
                description=receiver.description,
                deliver_policy=DeliverPolicy.BY_START_SEQUENCE,
                opt_start_seq=start or last + 1,
                ack_policy=AckPolicy.EXPLICIT,
                ack_wait=ACK_SECONDS,
                max_ack_pending=MOST_HELD,
                inactive_threshold=FORGOTTEN_SECONDS,
            ),
        )
        return
    if info.config.description != receiver.description:
        changed = info.config.evolve(name=receiver.consumer, description=receiver.description)
        await api.add_consumer(messages.EVENTS, changed)


class Taken(NamedTuple):
    """The events of a stream that the daemon of the release before has taken.

    That daemon ran before this release, or after a rollback from it. After a rollback, receivers
    have consumers already, and earlier events may wait there.
    """

    stream: str
    """Time at which the stream was made; numbers of another stream mean nothing here."""
    since: float
    """Time from which its consumer got events (seconds since 1970)."""
    next: int
    """The number of the first event that it had not taken."""

    def has(self, number: int, published: float) -> bool:
        """Whether it has taken an event; events of the first minute do not count as taken."""
        return number < self.next and published >= self.since + CLOCK_SECONDS


async def taken(api: JetStreamContext) -> Taken | None:
    """Return the events that the daemon of the release before has taken; None if it never ran."""
    try:
        info = await api.consumer_info(messages.EVENTS, FORMER)
    except nats.js.errors.NotFoundError:
        return None
    stream = str((await api.stream_info(messages.EVENTS)).created)
    began = info.created.timestamp() if info.created else 0.0
    return Taken(stream, began, info.ack_floor.stream_seq + 1 if info.ack_floor else 1)


async def remove(api: JetStreamContext, name: str) -> None:
    """Delete a consumer if it is there. Raises the errors of nats-py."""
    with contextlib.suppress(nats.js.errors.NotFoundError):
        await api.delete_consumer(messages.EVENTS, name)
