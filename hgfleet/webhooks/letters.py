"""The stream of letters: the dead events of each receiver, and dead events to be tried again."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import nats.js.errors
from nats.js.api import DiscardPolicy, StreamConfig

from hgfleet.replication.protocol import events, messages

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from nats.js import JetStreamContext

    from hgfleet.replication.protocol.events import Event

STREAM: Final = "hgfleet-webhooks"
_SUBJECT: Final = "hgfleet.webhooks"

DEAD: Final = "dead"
AGAIN: Final = "again"

MOST: Final = 10_000
"""Most letters of a kind and a receiver; beyond that the oldest are dropped."""

MOST_BYTES: Final = 64 * 1024 * 1024
"""Most bytes of all letters: a receiver that is away does not fill the brokers' disks."""

SHARE: Final = 4
"""On small disks of brokers, letters have one part in so many of the bucket for large pushes."""

_RECEIVER: Final = "Hgfleet-Receiver"
_RECEIVED: Final = "Hgfleet-Received"
_ATTEMPTS: Final = "Hgfleet-Attempts"
_REASON: Final = "Hgfleet-Reason"


@dataclass(frozen=True, slots=True)
class Letter:
    """An event of a receiver. `received` is in seconds since 1970."""

    identity: str
    """The identity of the receiver, whose name was `receiver` at that time."""
    receiver: str
    event: Event
    received: float
    attempts: int = 0
    reason: str = ""
    number: int = 0
    """The number in the stream."""


def subject(kind: str, identity: str = "*") -> str:
    """Return the subject of a receiver's letters of a kind."""
    return f"{_SUBJECT}.{kind}.{identity}"


class Letters:
    """The stream, over a connection. All methods raise the errors of nats-py."""

    def __init__(self, api: JetStreamContext) -> None:
        self._api = api

    async def ensure(self, replicas: int, objects_bytes: int) -> None:
        """Create the stream unless it is there."""
        try:
            await self._api.stream_info(STREAM)
        except nats.js.errors.NotFoundError:
            await self._api.add_stream(
                StreamConfig(
                    name=STREAM,
                    subjects=[subject("*")],
                    discard=DiscardPolicy.OLD,
                    max_msgs_per_subject=MOST,
                    max_bytes=min(MOST_BYTES, objects_bytes // SHARE),
                    duplicate_window=3600.0,
                    num_replicas=replicas,
                )
            )

    async def add(self, kind: str, letter: Letter, once: str = "") -> None:
        """Store a letter. For an hour, further letters with the same `once` are dropped."""
        headers = {
            _RECEIVER: letter.receiver,
            _RECEIVED: f"{letter.received:.3f}",
            _ATTEMPTS: str(letter.attempts),
            # A header is a single line, but a reason may quote a certificate.
            _REASON: letter.reason.encode("ascii", "replace").decode().translate(_LINES),
        }
        if once:
            headers[messages.MESSAGE_ID_HEADER] = f"{kind}.{letter.identity}.{once}"
        await self._api.publish(
            subject(kind, letter.identity), letter.event.body, stream=STREAM, headers=headers
        )

    async def read(self, kind: str, identity: str = "*", after: int = 0) -> AsyncIterator[Letter]:
        """Yield the letters of a kind in order, for a receiver or for all of them."""
        while True:
            try:
                message = await self._api.get_msg(
                    STREAM, seq=after + 1, subject=subject(kind, identity), next=True
                )
            except nats.js.errors.NotFoundError:
                return
            after, headers = message.seq or 0, message.headers or {}
            try:
                event = events.decode(message.data or b"")
                received, attempts = float(headers[_RECEIVED]), int(headers[_ATTEMPTS])
            except (ValueError, KeyError):
                continue
            yield Letter(
                (message.subject or "").rpartition(".")[2],
                *(headers.get(_RECEIVER, ""), event, received, attempts),
                *(headers.get(_REASON, ""), after),
            )

    async def dead(self) -> dict[str, int]:
        """Return how many events of each receiver are dead, by the identity of the receiver."""
        info = await self._api.stream_info(STREAM, subjects_filter=subject(DEAD))
        counts = info.state.subjects or {}
        return {name.rpartition(".")[2]: count for name, count in counts.items()}

    async def remove(self, number: int) -> None:
        """Remove a letter if it is there."""
        try:
            await self._api.delete_msg(STREAM, number)
        except nats.js.errors.APIError as error:
            if error.err_code not in _GONE:
                raise

    async def forget(self, identity: str) -> None:
        """Remove the letters that are to be tried again for a receiver."""
        await self._api.purge_stream(STREAM, subject=subject(AGAIN, identity))


_LINES: Final = dict.fromkeys(range(32), " ")
_GONE: Final = frozenset({10037, 10057})
"""The broker's error codes for a missing message (nats-server's errors.json)."""
