"""Deliveries to a receiver: events from its consumer at the brokers, posted in order.

An event is acknowledged when the receiver has it, or when its dead letter is stored. So no event is
lost with a broker or with this host. If the daemon is killed, the requests that it was sending are
sent twice.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import time
from typing import TYPE_CHECKING, Final

from hgfleet.replication.protocol import events, messages, pulling
from hgfleet.replication.protocol.connection import FAILURES, LONGEST_PAUSE
from hgfleet.replication.protocol.tasks import until
from hgfleet.webhooks import attempts, consumers, letters
from hgfleet.webhooks.attempts import Verdict
from hgfleet.webhooks.delivery_request import RequestError, post
from hgfleet.webhooks.letters import Letter, Letters
from hgfleet.webhooks.lines import Lines, Place, Waiting

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

    from nats.aio.client import Client
    from nats.aio.msg import Msg

    from hgfleet.webhooks.consumers import Taken
    from hgfleet.webhooks.receiver_identities import Known
    from hgfleet.webhooks.settings import Receiver, Settings

PARALLEL: Final = 4
"""Most requests to a receiver at a time."""

LOOK_SECONDS: Final = 0.25
"""Between checks whether every event that the broker handed out has arrived."""


class Deliveries:
    """Delivers to a receiver, across reconnections.

    `known` is the receiver's identity, once it is known; `taken` are events that the release before
    has taken.
    """

    def __init__(
        self,
        receiver: Receiver,
        secret: bytes,
        settings: Settings,
        tls: ssl.SSLContext,
        log: Callable[..., None],
    ) -> None:
        self.receiver, self.secret = receiver, secret
        self.known: Known | None = None
        self.taken: Taken | None = None
        self.lines = Lines()
        self._settings, self._tls, self._log = settings, tls, log
        self._slots = asyncio.Semaphore(PARALLEL)
        self._client: Client | None = None
        self._stream = ""
        """Time at which the stream of events was made; another stream has other numbers."""
        self._online, self._settled = asyncio.Event(), asyncio.Event()
        self._letters_came, self._last_letter = asyncio.Event(), 0
        self._tasks: asyncio.TaskGroup | None = None

    async def run(self) -> None:
        """Deliver events until cancelled."""
        async with asyncio.TaskGroup() as self._tasks:
            await asyncio.Event().wait()

    def poll_letters(self) -> None:
        """Fetch letters that are to be tried again."""
        self._letters_came.set()

    # -- arrival ---------------------------------------------------------------------------------

    async def receive(self, client: Client) -> None:
        """Take events and letters from a connection, until it ends. Raises FAILURES, LostError."""
        assert self.known is not None
        assert self._tasks is not None
        api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
        stream = str((await api.stream_info(messages.EVENTS)).created)
        if self._stream not in ("", stream):
            self.lines.begin_era()
        self._stream = stream
        if self.taken is not None and self.taken.stream != stream:
            self.taken = None
        await consumers.ensure(api, self.known, self.lines.next_event)
        self._client = client
        self._online.set()
        self._last_letter, beat = 0, None
        try:
            # Letters come before the first event in their lines, so they are read first.
            await self._read_letters(client)
            beat = self._tasks.create_task(self._beat(client))
            async for message in pulling.messages_of(client, messages.EVENTS, self.known.consumer):
                await self._receive(message)
        finally:
            self._online.clear()
            self._settled.clear()
            if beat is not None:
                beat.cancel()
            # The next daemon gets them at once, instead of when they count as lost.
            for reply in self.lines.replies():
                with contextlib.suppress(*FAILURES):
                    await client.publish(reply, b"-NAK")

    async def _receive(self, message: Msg) -> None:
        try:
            event = events.decode(message.data)
        except ValueError as error:
            self._log("event-unreadable", subject=message.subject, reason=error)
            await message.ack()
            return
        metadata = message.metadata
        number = metadata.sequence.stream
        if (
            not self.receiver.takes(event)
            or self.lines.was_done(event.repository, number)
            or (self.taken is not None and self.taken.has(number, metadata.timestamp.timestamp()))
        ):
            await message.ack()
            return
        place = Place(self.lines.era, is_event=True, number=number)
        self._add(Waiting(event, place, metadata.timestamp.timestamp(), message.reply))

    def _add(self, waiting: Waiting) -> None:
        assert self._tasks is not None
        # A time from a clock that ran ahead would lengthen the time of its attempts.
        waiting.received = min(waiting.received, time.time())
        if self.lines.add(waiting):
            self._tasks.create_task(self._serve(waiting.event.repository))

    async def _read_letters(self, client: Client) -> None:
        assert self.known is not None
        self._letters_came.clear()
        stored = Letters(client.jetstream(timeout=pulling.ANSWER_SECONDS))
        async for letter in stored.read(letters.AGAIN, self.known.identity, self._last_letter):
            self._last_letter = letter.number
            if self.receiver.takes(letter.event):
                place = Place(self.lines.era, is_event=False, number=letter.number)
                self._add(Waiting(letter.event, place, letter.received))
            else:
                await stored.remove(letter.number)

    async def _beat(self, client: Client) -> None:
        """Begin deliveries once the first event of each line is known, and extend held events.

        The broker sends new events before it repeats events that a former daemon or connection did
        not acknowledge. The repeated events come after ACK_SECONDS at the latest, and belong before
        the new events.
        """
        assert self.known is not None
        api = client.jetstream(timeout=pulling.ANSWER_SECONDS)
        while not client.is_closed:
            try:
                if not self._settled.is_set():
                    info = await api.consumer_info(messages.EVENTS, self.known.consumer)
                    if (info.num_ack_pending or 0) <= len(self.lines.replies()):
                        self._settled.set()
                        continue
                else:
                    for reply in self.lines.replies():
                        await client.publish(reply, b"+WPI")
                    await until(self._letters_came, consumers.ACK_SECONDS / 3)
                    if self._letters_came.is_set():
                        await self._read_letters(client)
                    continue
            except FAILURES:
                self._letters_came.set()
            await asyncio.sleep(LOOK_SECONDS)

    # -- delivery --------------------------------------------------------------------------------

    async def _serve(self, repository: str) -> None:
        """Deliver the events of a repository in turn, until none waits."""
        while True:
            await self._settled.wait()
            waiting = self.lines.take(repository)
            if waiting is None:
                return
            reason = await self._deliver(waiting)
            waiting.is_over = True
            await self._finish(waiting, reason)
            self.lines.done(waiting)
            if reason:
                self._log_event("dead", waiting, reason=reason)

    async def _deliver(self, waiting: Waiting) -> str:
        """Send requests until the event is delivered; return why it is given up, else ""."""
        while True:
            async with self._slots:
                # Without the brokers, another host may be the primary and deliver.
                await self._online.wait()
                waiting.attempts += 1
                began = time.monotonic()
                verdict, waiting.reason = await self._attempt(waiting)
            if verdict is Verdict.DELIVERED:
                self._log_event("delivered", waiting, seconds=time.monotonic() - began)
                return ""
            now, due = time.time(), None
            if verdict is Verdict.RETRY:
                due = attempts.next_attempt(
                    *(waiting.received, now, waiting.attempts, random.random()),  # noqa: S311
                    self._settings.retry_seconds,
                )
            if due is None:
                return waiting.reason
            self._log_event("failed", waiting, reason=waiting.reason)
            await asyncio.sleep(due - now)

    async def _attempt(self, waiting: Waiting) -> tuple[Verdict, str]:
        event = waiting.event
        made = attempts.headers(event, self.secret, time.time())
        seconds = self._settings.timeout_seconds
        try:
            status = await post(self.receiver.url, made, event.body, seconds, self._tls)
        except RequestError as error:
            return Verdict.RETRY, str(error)
        return attempts.verdict(status), f"status {status}"

    async def _finish(self, waiting: Waiting, reason: str) -> None:
        """Tell the broker that an event was delivered, or is dead for a reason."""
        problem, pause = "", LOOK_SECONDS
        while True:
            await self._online.wait()
            assert self._client is not None
            try:
                await self._settle(self._client, waiting, reason)
            except FAILURES as error:
                if str(error) != problem:
                    self._log_event("not-noted", waiting, reason=error)
                problem = str(error)
            else:
                return
            await asyncio.sleep(pause)
            pause = min(pause * 2, LONGEST_PAUSE)

    async def _settle(self, client: Client, waiting: Waiting, reason: str) -> None:
        assert self.known is not None
        stored = Letters(client.jetstream(timeout=pulling.ANSWER_SECONDS))
        if reason:
            letter = Letter(
                *(self.known.identity, self.receiver.name, waiting.event),
                *(waiting.received, waiting.attempts, reason),
            )
            once = f"{waiting.event.id}.{waiting.place.is_event:d}.{waiting.place.number}"
            await stored.add(letters.DEAD, letter, once)
        if waiting.place.era != self.lines.era:
            return
        if waiting.place.is_event:
            await client.request(waiting.reply, b"+ACK", timeout=pulling.ANSWER_SECONDS)
        else:
            await stored.remove(waiting.place.number)

    def _log_event(self, name: str, waiting: Waiting, **more: object) -> None:
        event = waiting.event
        fields = {"delivery": event.id, "repository": event.path}
        self._log(name, receiver=self.receiver.name, **fields, **more)
