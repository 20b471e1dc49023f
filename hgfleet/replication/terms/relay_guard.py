"""Guard of a relay, which works only while the brokers confirm that its host is the primary."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from hgfleet.core.errors import HgfleetError, HostError, UnavailableError
from hgfleet.replication.protocol import messages
from hgfleet.replication.terms import broker_terms, host_terms
from hgfleet.replication.terms.host_terms import Standing

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from nats.aio.client import Client
    from nats.aio.msg import Msg
    from nats.js import JetStreamContext

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.terms.broker_terms import Last


class FencedError(UnavailableError):
    """Another host is the primary."""


class Guard:
    """The term of this host according to the brokers, and the files that sessions read."""

    def __init__(self, settings: Settings, say: Callable[..., None]) -> None:
        self._settings, self._say = settings, say
        self.fenced = ""
        """Why nothing may be published; empty while this host is the primary."""
        self.epoch = 1
        """Epoch of the confirmed term."""

    async def listen(self, client: Client, lose: Callable[[BaseException], None]) -> None:
        """Judge each term that is added; `lose` gives up the connection if the host is fenced."""

        async def heard(message: Msg) -> None:
            try:
                term = host_terms.decode(message.data)
                if self.judge(broker_terms.Last(term, 0)) is Standing.CONFIRMED:
                    # The term is of this host, which was restored.
                    self.epoch = max(term.epoch, self.epoch)
            except (HgfleetError, ValueError) as error:
                lose(error)

        await client.subscribe(messages.EPOCH, cb=heard)

    def judge(self, last: Last) -> Standing:
        """Compare the last term with this host's. Raises FencedError and HostError."""
        with _files(self._settings):
            return self._judged(last)

    def _judged(self, last: Last) -> Standing:
        own = host_terms.own(self._settings)
        standing = host_terms.standing(last.term, own, self._settings.host)
        if standing is not Standing.FENCED:
            self.fenced = ""
            return standing
        term = last.term
        if term is None or term.epoch < own[0]:
            term = host_terms.Term(*own)
        if not self.fenced:
            self._say("fenced", primary=term.primary, epoch=term.epoch)
        self.fenced = host_terms.operators(term, self._settings.host)
        # First refuse pushes: after a kill in between, the next relay does the rest.
        host_terms.fence(self._settings, host_terms.sentence(term))
        host_terms.remember(self._settings, term)
        raise FencedError(self.fenced)

    async def confirm(self, api: JetStreamContext, last: Last) -> None:
        """Claim the term if the brokers have none, and let sessions take pushes.

        Raises ClaimedError, FencedError, HostError and the errors of nats-py.
        """
        term = last.term
        if self.judge(last) is Standing.CLAIM:
            with _files(self._settings):
                epoch, _ = host_terms.own(self._settings)
            term = broker_terms.made(
                epoch, self._settings.host, host_terms.address_of(self._settings.hgrc)
            )
            await broker_terms.add(api, term, last.sequence)
            self._say("term-begun", epoch=term.epoch)
        assert term is not None
        self.epoch = term.epoch
        with _files(self._settings):
            host_terms.confirm(self._settings, term)


@contextlib.contextmanager
def _files(settings: Settings) -> Iterator[None]:
    try:
        yield
    except (OSError, ValueError) as error:
        raise HostError(
            f"the term of this host cannot be read or written ({error}); the role `replication` "
            f"makes {settings.terms} and {settings.fence} for the user hg"
        ) from error
