"""The streams of replication: their configuration, and how to handle differences from it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import nats.js.errors
from nats.js.api import DiscardPolicy, RetentionPolicy, StorageType, StreamConfig

from hgfleet.replication.protocol import messages

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from nats.js import JetStreamContext
    from nats.js.api import StreamInfo

    from hgfleet.pushlog.log_file import Tip

DAY: Final = 24 * 3600.0

MAX_AGE: Final = 7 * DAY
"""Seconds; a mirror that was away for longer catches up from the source."""

MIB: Final = 2**20

SHARES: Final[dict[str, tuple[int, int]]] = {
    messages.PUSHES: (28, 16 * MIB),
    messages.EVENTS: (6, MIB),
    messages.DOCUMENTS: (1, MIB),
    messages.EPOCHS: (1, MIB),
}
"""The bound of each stream in sixteenths of the bucket for large pushes, and its least bytes.

The bucket has a quarter of a broker's disk, and letters of webhooks have a sixteenth at most. All
bounds together are below the disk, so that a full stream drops its oldest messages, and takes no
room from another stream. At the bound of the server, the broker would refuse messages of every
stream.
"""

NO_ROOM: Final = 10047
"""The broker's code where the bounds of all streams are more than its disk (errors.json)."""

DUPLICATES: Final = 3600.0
"""Seconds for which the broker drops a second message with the same id."""

SUBJECTS: Final[dict[str, str]] = {
    messages.PUSHES: "hgfleet.pushes.*",
    messages.DOCUMENTS: "hgfleet.documents.*",
    messages.EVENTS: "hgfleet.events.*",
    messages.EPOCHS: messages.EPOCH,
}

NEEDED: Final = frozenset({"subjects", "retention", "no_ack", "sealed"})
"""Without these settings a stream would lose pushes, or not confirm them."""


def bound(name: str, objects_bytes: int) -> int:
    """Return the most bytes of a stream, by the bytes of the bucket for large pushes."""
    share, least = SHARES[name]
    return max(least, objects_bytes * share // 16)


def expected(name: str, replicas: int, most_bytes: int = -1) -> StreamConfig:
    """Return the configuration of a stream."""
    return StreamConfig(
        name=name,
        subjects=[SUBJECTS[name]],
        retention=RetentionPolicy.LIMITS,
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=0.0 if name == messages.EPOCHS else MAX_AGE,
        max_consumers=-1,
        max_msgs=-1,
        max_bytes=most_bytes,
        max_msg_size=-1,
        max_msgs_per_subject=1 if name == messages.DOCUMENTS else -1,
        duplicate_window=DUPLICATES,
        num_replicas=replicas,
        no_ack=False,
        sealed=False,
    )


def differences(wanted: StreamConfig, found: StreamConfig) -> dict[str, tuple[Any, Any]]:
    """Return the settings that differ: name, (found, wanted). Others stay as they are."""
    result = {}
    for name, value in wanted.as_dict().items():
        has = found.as_dict().get(name)
        if has != value and not (has is None and value is False):
            result[name] = (has, value)
    return result


@dataclass(frozen=True, slots=True)
class Found:
    """The stream of pushes as the broker has it, and problems of the streams."""

    created: str = ""
    last_sequence: int = 0
    has_events: bool = False
    """Whether the stream of events has ever had an event."""
    refusal: str = ""
    """Why nothing may be published; empty if all is well."""
    warnings: tuple[str, ...] = ()


async def ensure(
    api: JetStreamContext, replicas: int, objects_bytes: int, say: Callable[..., None]
) -> Found:
    """Create the streams, or change those that differ. Raises the errors of nats-py."""
    created, last, has_events, refusal, warnings = "", 0, False, "", []
    for name in SUBJECTS:
        wanted = expected(name, replicas, bound(name, objects_bytes))
        info, problem, is_needed = await ensured(api, wanted, say, may_be_unbounded=True)
        if problem and is_needed:
            refusal = refusal or problem
        elif problem:
            warnings.append(problem)
        if name == messages.PUSHES:
            created, last = str(info.created), info.state.last_seq
        elif name == messages.EVENTS:
            has_events = info.state.last_seq > 0
    return Found(created, last, has_events, refusal, tuple(warnings))


async def ensured(
    api: JetStreamContext,
    wanted: StreamConfig,
    say: Callable[..., None],
    *,
    may_be_unbounded: bool = False,
) -> tuple[StreamInfo, str, bool]:
    """Create a stream, or change it if it differs. Raises the errors of nats-py.

    Return it, the sentence about settings that the broker does not change, and whether pushes
    would be lost with those. A broker without room for the bound creates the stream without it,
    where that is allowed: pushes are not kept from mirrors, and the sentence names the bound.
    """
    name = str(wanted.name)
    try:
        info = await api.stream_info(name)
    except nats.js.errors.NotFoundError:
        info = await _created(api, wanted, may_be_unbounded=may_be_unbounded)
        say("stream-created", stream=name)
    differing = differences(wanted, info.config)
    if not differing:
        return info, "", False
    try:
        changes = {setting: getattr(wanted, setting) for setting in differing}
        info = await api.update_stream(info.config.evolve(**changes))
    except nats.js.errors.APIError as error:
        problem = unchangeable(name, differing, str(error.description))
        return info, problem, bool(NEEDED & differing.keys())
    say("stream-changed", stream=name, settings=",".join(differing))
    return info, "", False


async def _created(
    api: JetStreamContext, wanted: StreamConfig, *, may_be_unbounded: bool
) -> StreamInfo:
    try:
        return await api.add_stream(wanted)
    except nats.js.errors.APIError as error:
        if error.err_code != NO_ROOM or not may_be_unbounded:
            raise
    return await api.add_stream(wanted.evolve(max_bytes=-1))


def unchangeable(name: str, differing: Mapping[str, tuple[Any, Any]], said: str) -> str:
    """Return the sentence for a stream with a configuration that the broker does not change."""
    listed = "; ".join(
        f"{setting} is {has!r}, expected {value!r}" for setting, (has, value) in differing.items()
    )
    if not NEEDED & differing.keys():
        return (
            f"stream {name}: {listed}; the broker does not change it ({said}); compare the limits "
            "of the broker's configuration with the settings of this host: the role `replication` "
            "writes both"
        )
    return (
        f"stream {name}: {listed}; the broker does not change it ({said}); delete the stream: the "
        "relay makes it again, and mirrors fetch the pushes in between from the source"
    )


class Streamed(NamedTuple):
    """The last push of a repository that the stream has."""

    id: int
    epoch: int = 1
    hash: str = ""
    """Hash of the record; empty if the previous release's relay published it without its line."""
    sequence: int = 0
    """Number of the message in the stream."""

    def is_at(self, tip: Tip) -> bool:
        """Whether it is the push at the end of a chain."""
        return (self.id, self.epoch) == (tip.id, tip.epoch) and not self.differs(tip)

    def differs(self, tip: Tip) -> bool:
        """Whether it is another push with the same number and epoch."""
        is_same = (self.id, self.epoch) == (tip.id, tip.epoch)
        return is_same and self.hash not in ("", tip.hash)

    def is_after(self, tip: Tip) -> bool:
        """Whether it is a later push; a push of a later epoch may have a lower number."""
        return (self.epoch, self.id) > (tip.epoch, tip.id)


def number_of(headers: Mapping[str, str] | None, repository: str) -> int | None:
    """Return the number in the id of a message of a repository; None if it has another id."""
    push = messages.named(headers)
    return push[1] if push and push[0] == repository else None


def epoch_of(headers: Mapping[str, str] | None) -> int:
    """Return the epoch in the id of a message."""
    push = messages.named(headers)
    return push[2] if push else 1
