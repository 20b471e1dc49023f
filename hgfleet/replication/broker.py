"""The relay's connection to the broker: made again whenever it ends, with its streams in order.

The user of the primary needs these subjects of the broker:

| allowed | for |
| --- | --- |
| publish `hgfleet.{pushes,documents,events}.>`, `hgfleet.epoch` | the streams |
| publish `hgfleet.confirmed.>` | leases that the relay has heard |
| publish `hgfleet.asked.>` | questions which pushes a mirror shows |
| publish `$JS.API.INFO`, `$JS.API.STREAM.{INFO,CREATE,UPDATE,MSG.GET}.hgfleet-*` | its streams |
| subscribe `hgfleet.leases.>`, `hgfleet.applied.>`, `_INBOX.>` | mirrors, answers |
| subscribe `hgfleet.epoch` | a promotion of another host |

A former primary has the rights of a mirror: it reads the last term before anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import nats.js.errors

from hgfleet.core.errors import HgfleetError, UnavailableError
from hgfleet.pushlog.record import hash_of
from hgfleet.replication import epochs, messages, streams
from hgfleet.replication.broker_errors import sentence
from hgfleet.replication.connection import CONNECT_SECONDS, FAILURES, Connection
from hgfleet.replication.guard import Guard
from hgfleet.replication.messages import hash_in

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext
    from nats.js.api import RawStreamMsg

    from hgfleet.replication.settings import Settings

ACK_SECONDS: Final = 5.0
"""For an answer of the broker; afterwards the connection counts as dead."""


MOST_READ: Final = 1000
"""Messages that are read one by one for their repositories."""


class BrokerError(UnavailableError):
    """The broker is away, or does not take a message; the sentence says why, and the way out."""


class Broker(Connection):
    """The connection. `ready` is set while there is one and the streams are fine.

    `subscriptions` are functions by subject, `prepare` is awaited with each new connection, before
    `ready`.
    """

    def __init__(
        self,
        settings: Settings,
        say: Callable[..., None],
        subscriptions: Mapping[str, Callable[[Msg], Awaitable[None]]],
        prepare: Callable[[Broker], Awaitable[None]],
    ) -> None:
        super().__init__(
            *(settings, "hgfleet-relay", say, self._serve),
            *(HgfleetError, ValueError),
        )
        self.warnings: tuple[str, ...] = ()
        """Differences of the streams that do not keep pushes from them."""
        self.max_payload = 0
        self.stream: streams.Found | None = None
        self.guard = Guard(settings, say)
        self._subscriptions, self._prepare = subscriptions, prepare

    async def _serve(self, client: Client) -> None:
        self.max_payload = client.max_payload
        await self.guard.listen(client, self.lose)
        await client.flush(CONNECT_SECONDS)
        last = await epochs.last(self._stream_api())
        self.guard.judge(last)
        found = await streams.ensure(self._stream_api(), self._settings.replicas, self._say)
        self.warnings = found.warnings
        if found.refusal:
            raise BrokerError(found.refusal)
        self.stream = found
        await self.guard.confirm(self._stream_api(), last)
        for subject, receive in self._subscriptions.items():
            await client.subscribe(subject, cb=receive)
        await client.flush(CONNECT_SECONDS)
        await self._prepare(self)
        self.established()

    def _stream_api(self) -> JetStreamContext:
        if self.client is None:
            raise BrokerError(self.problem or "the broker is away")
        return self.client.jetstream(timeout=ACK_SECONDS)

    async def publish(
        self, stream: str, subject: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bool]:
        """Publish to a stream; return the message's number, and whether the stream had it already.

        Raises BrokerError. The message may be in the stream nevertheless: publish it again.
        """
        if self.guard.fenced:
            raise BrokerError(self.guard.fenced)
        try:
            ack = await self._stream_api().publish(
                subject, body, timeout=ACK_SECONDS, stream=stream, headers=headers
            )
        except nats.js.errors.APIError as error:
            # The broker answered: it is there, and does not take the message.
            raise BrokerError(sentence(error, self._settings.brokers)) from error
        except FAILURES as error:
            self.lose(error)
            raise BrokerError(sentence(error, self._settings.brokers)) from error
        return ack.seq, bool(ack.duplicate)

    async def streamed(
        self, repository: str, stream: str = messages.PUSHES
    ) -> streams.Streamed | None:
        """Return a stream's last push of a repository; None without one."""
        subject = streams.SUBJECTS[stream].replace("*", repository)
        try:
            found = await self._stream_api().get_last_msg(stream, subject)
        except nats.js.errors.NotFoundError:
            return None
        except FAILURES as error:
            self.lose(error)
            raise BrokerError(sentence(error, self._settings.brokers)) from error
        number = streams.number_of(found.headers, repository)
        if not number:
            return None
        hash_ = hash_in(found.headers)
        if not hash_ and found.data and stream == messages.PUSHES:
            # Of the release before.
            hash_ = hash_of(found.data.partition(b"\n")[0])
        epoch = streams.epoch_of(found.headers)
        return streams.Streamed(number, epoch, hash_, found.seq or 0)

    async def announced(self, repository: str) -> dict[int, str]:
        """Return the hashes of a repository's events in the stream, by the numbers of their pushes.

        Of two pushes of one number it is the later event's. Raises BrokerError.
        """
        found: dict[int, str] = {}
        subject, sequence = messages.events(repository), 0
        try:
            while True:
                message = await self._stream_api().get_msg(
                    messages.EVENTS, sequence + 1, subject, next=True
                )
                if number := streams.number_of(message.headers, repository):
                    found[number] = hash_in(message.headers)
                sequence = message.seq or 0
        except nats.js.errors.NotFoundError:
            return found
        except FAILURES as error:
            self.lose(error)
            raise BrokerError(sentence(error, self._settings.brokers)) from error

    async def since(self, sequence: int) -> set[str]:
        """Return the repositories of the pushes behind a message; of all, if they are many.

        Raises BrokerError.
        """
        assert self.stream is not None
        last = self.stream.last_sequence
        try:
            if last - sequence > MOST_READ:
                wanted = messages.pushes("*")
                info = await self._stream_api().stream_info(messages.PUSHES, subjects_filter=wanted)
                subjects = list(info.state.subjects or {})
            else:
                subjects = [
                    found.subject or ""
                    for number in range(sequence + 1, last + 1)
                    if (found := await self._message(number)) is not None
                ]
        except FAILURES as error:
            self.lose(error)
            raise BrokerError(sentence(error, self._settings.brokers)) from error
        return {subject.rpartition(".")[2] for subject in subjects}

    async def _message(self, sequence: int) -> RawStreamMsg | None:
        try:
            return await self._stream_api().get_msg(messages.PUSHES, sequence)
        except nats.js.errors.NotFoundError:
            return None
