"""The relay's connection to the broker: made again whenever it ends, with its streams.

The rights of a primary at the broker are in the template `nats.conf.j2` of the role `replication`.
A former primary has the rights of a mirror: it reads the last term before anything else.
"""

from __future__ import annotations

import contextlib
from typing import IO, TYPE_CHECKING, Final

import nats.js.errors

from hgfleet.core.errors import HgfleetError, UnavailableError
from hgfleet.pushlog.record import hash_of
from hgfleet.replication.protocol import messages, push_objects, streams
from hgfleet.replication.protocol.broker_errors import sentence
from hgfleet.replication.protocol.connection import CONNECT_SECONDS, FAILURES, Connection
from hgfleet.replication.protocol.messages import hash_in
from hgfleet.replication.terms import broker_terms
from hgfleet.replication.terms.relay_guard import Guard

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterator, Mapping

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from hgfleet.replication.protocol.settings import Settings

ACK_SECONDS: Final = 5.0
"""Time for an answer of the broker; after it the connection counts as dead."""


MOST_READ: Final = 1000
"""Messages that are read one by one for their repositories."""


class BrokerError(UnavailableError):
    """The broker is away, or refuses a message; the sentence has the reason and the way out."""


class Broker(Connection):
    """The connection. `ready` is set while it is up and the streams are fine.

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
        """Differences in the settings of the streams that do not prevent pushes."""
        self.max_payload = 0
        self.stream: streams.Found | None = None
        self.has_objects = False
        """Whether the brokers keep pushes that are too large for a message."""
        self.objects_problem = ""
        self.guard = Guard(settings, say)
        self._subscriptions, self._prepare = subscriptions, prepare

    async def _serve(self, client: Client) -> None:
        self.max_payload = client.max_payload
        await self.guard.listen(client, self.lose)
        await client.flush(CONNECT_SECONDS)
        last = await broker_terms.last(self.stream_api())
        self.guard.judge(last)
        settings = self._settings
        found = await streams.ensure(
            self.stream_api(), settings.replicas, settings.objects_bytes, self._say
        )
        self.warnings = found.warnings
        if found.refusal:
            raise BrokerError(found.refusal)
        self.stream = found
        await self._ensure_objects()
        await self.guard.confirm(self.stream_api(), last)
        for subject, receive in self._subscriptions.items():
            await client.subscribe(subject, cb=receive)
        await client.flush(CONNECT_SECONDS)
        await self._prepare(self)
        self.established()

    def stream_api(self) -> JetStreamContext:
        """Return the streams of the broker; raises BrokerError while it is away."""
        if self.client is None:
            raise BrokerError(self.problem or "the broker is away")
        return self.client.jetstream(timeout=ACK_SECONDS)

    async def _ensure_objects(self) -> None:
        """Make the bucket for large pushes. Without it they are published, with a warning.

        Brokers of the previous release do not answer requests for it.
        """
        settings, self.has_objects = self._settings, False
        wanted = push_objects.expected(settings.replicas, settings.objects_bytes, streams.MAX_AGE)
        try:
            ensured = await streams.ensured(self.stream_api(), wanted, self._say)
        except FAILURES as error:
            self.objects_problem = (
                f"bucket {push_objects.BUCKET}: {sentence(error, settings.brokers)}; pushes "
                "too large for a message are only on this host until mirrors fetch them"
            )
        else:
            self.has_objects, self.objects_problem = True, ensured[1]

    @contextlib.contextmanager
    def _asking(self) -> Iterator[None]:
        """Ask the broker; without an answer the connection is lost. Raises BrokerError."""
        try:
            yield
        except FAILURES as error:
            if not isinstance(error, nats.js.errors.APIError):
                self.lose(error)
            raise BrokerError(sentence(error, self._settings.brokers)) from error

    async def publish(
        self, stream: str, subject: str, body: bytes, headers: dict[str, str]
    ) -> tuple[int, bool]:
        """Publish to a stream; return the message's number, and whether the stream had it already.

        After BrokerError the message may still be in the stream: publish it again.
        """
        self._check_fence()
        with self._asking():
            ack = await self.stream_api().publish(
                subject, body, timeout=ACK_SECONDS, stream=stream, headers=headers
            )
        return ack.seq, bool(ack.duplicate)

    def _check_fence(self) -> None:
        if self.guard.fenced:
            raise BrokerError(self.guard.fenced)

    async def has_object(self, name: str) -> bool:
        """Whether the brokers keep the object of a push. Raises BrokerError."""
        with self._asking():
            return await push_objects.has(self.stream_api(), name)

    async def store(self, name: str, content: IO[bytes]) -> None:
        """Store the object of a push at the brokers. Raises BrokerError."""
        self._check_fence()
        with self._asking():
            await push_objects.put(self.stream_api(), name, content)

    async def tend_objects(self, purged: Collection[str]) -> None:
        """Remove the objects of deleted repositories; a later call tries again after a failure.

        If the bucket could not be made at the start of the connection, it is made here.
        """
        with contextlib.suppress(BrokerError), self._asking():
            if self.ready.is_set() and not self.has_objects:
                await self._ensure_objects()
            if self.ready.is_set() and self.has_objects:
                for name in await push_objects.withdraw(self.stream_api(), purged):
                    self._say("object-withdrawn", push=name)

    async def streamed(
        self, repository: str, stream: str = messages.PUSHES
    ) -> streams.Streamed | None:
        """Return a stream's last push of a repository; None if it has none."""
        subject = streams.SUBJECTS[stream].replace("*", repository)
        with self._asking():
            try:
                message = await self.stream_api().get_last_msg(stream, subject)
            except nats.js.errors.NotFoundError:
                return None
        number = streams.number_of(message.headers, repository)
        if not number:
            return None
        hash_ = hash_in(message.headers)
        if not hash_ and message.data and stream == messages.PUSHES:
            # The previous release sent no header with the hash.
            hash_ = hash_of(message.data.partition(b"\n")[0])
        epoch = streams.epoch_of(message.headers)
        return streams.Streamed(number, epoch, hash_, message.seq or 0)

    async def announced(self, repository: str) -> dict[int, str]:
        """Return the hashes of a repository's events in the stream, by the numbers of their pushes.

        If two pushes have the same number, the later event counts. Raises BrokerError.
        """
        hashes: dict[int, str] = {}
        subject, sequence = messages.events(repository), 0
        with self._asking(), contextlib.suppress(nats.js.errors.NotFoundError):
            while True:
                message = await self.stream_api().get_msg(
                    messages.EVENTS, sequence + 1, subject, next=True
                )
                if number := streams.number_of(message.headers, repository):
                    hashes[number] = hash_in(message.headers)
                sequence = message.seq or 0
        return hashes

    async def since(self, sequence: int) -> set[str]:
        """Return the repositories of the pushes after a message, or of all if there are many.

        Raises BrokerError.
        """
        assert self.stream is not None
        last, subjects = self.stream.last_sequence, list[str]()
        with self._asking():
            if last - sequence > MOST_READ:
                wanted = messages.pushes("*")
                info = await self.stream_api().stream_info(messages.PUSHES, subjects_filter=wanted)
                subjects += info.state.subjects or {}
            else:
                for number in range(sequence + 1, last + 1):
                    with contextlib.suppress(nats.js.errors.NotFoundError):
                        message = await self.stream_api().get_msg(messages.PUSHES, number)
                        subjects.append(message.subject or "")
        return {subject.rpartition(".")[2] for subject in subjects}

    def state(self, refused: str) -> dict[str, object]:
        """Describe the connection for other programs; `refused` is why it refuses messages."""
        return {
            "connected": self.ready.is_set(),
            "problem": self.problem or refused,
            "warnings": [*filter(None, (*self.warnings, self.objects_problem))],
        }
