"""The terms of primaries in the stream of the brokers: read the last term, add the next."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple

import nats.js.errors
from nats.js.api import Header

from hgfleet.core.errors import HgfleetError, TemporaryError
from hgfleet.replication.protocol import messages
from hgfleet.replication.terms import host_terms

if TYPE_CHECKING:
    from nats.js import JetStreamContext

    from hgfleet.replication.terms.host_terms import Term

WRONG_LAST_SEQUENCE: Final = 10071
"""The broker's code for an unexpected last message (nats-server's errors.json)."""


class Last(NamedTuple):
    """The last term, None if there is none, and its number in the stream."""

    term: Term | None
    sequence: int


class MalformedError(HgfleetError):
    """The last message of the stream is not a term."""


class ClaimedError(TemporaryError):
    """Another host has added a term at the same moment."""


async def last(api: JetStreamContext) -> Last:
    """Read the last term. Raises MalformedError, and the errors of nats-py."""
    try:
        message = await api.get_last_msg(messages.EPOCHS, messages.EPOCH)
    except nats.js.errors.NotFoundError:
        return Last(None, 0)
    try:
        return Last(host_terms.decode(message.data or b""), message.seq or 0)
    except ValueError as error:
        raise MalformedError(
            f"the last message of the stream {messages.EPOCHS} is not a term ({error}); a newer "
            "release or an operator wrote it: update this host, or delete that message"
        ) from error


async def add(api: JetStreamContext, term: Term, after: int) -> int:
    """Add a term directly after the message `after`; return its number.

    Raises ClaimedError if another message follows `after`, and the errors of nats-py.
    """
    try:
        ack = await api.publish(
            messages.EPOCH,
            term.body(),
            stream=messages.EPOCHS,
            headers={Header.EXPECTED_LAST_SEQUENCE.value: str(after)},
        )
    except nats.js.errors.APIError as error:
        if error.err_code == WRONG_LAST_SEQUENCE:
            raise ClaimedError(
                "another host has begun a term at the same moment; run the command again"
            ) from error
        raise
    return ack.seq


def made(epoch: int, host: str, address: str) -> Term:
    """Return a term that begins now."""
    return host_terms.Term(epoch, host, address, round(time.time() * 1000))
