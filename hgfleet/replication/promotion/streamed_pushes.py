"""The last push that the stream has of each repository, for a host that compares its logs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.pushlog.record import hash_of
from hgfleet.replication.protocol import messages, streams
from hgfleet.replication.terms import losses
from hgfleet.replication.terms.losses import Known

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from nats.js import JetStreamContext

STREAM: Final = "the stream"


async def last(
    api: JetStreamContext, paths: Mapping[str, str], purged: Collection[str]
) -> list[Known]:
    """Return the last push of each repository that the stream has and that was not deleted."""
    subjects = messages.pushes("*")
    info = await api.stream_info(messages.PUSHES, subjects_filter=subjects)
    pushes = []
    for subject in info.state.subjects or {}:
        identity = subject.rpartition(".")[2]
        if identity in purged:
            continue
        message = await api.get_last_msg(messages.PUSHES, subject)
        headers = message.headers or {}
        number = streams.number_of(headers, identity)
        if number is None:
            continue
        line = (message.data or b"").partition(b"\n")[0]
        path = losses.named(headers.get(messages.PATH_HEADER, identity), identity, paths)
        hashed = hash_of(line) if line else messages.hash_in(headers)
        pushes.append(Known(STREAM, path, identity, number, hashed, streams.epoch_of(headers)))
    return pushes
