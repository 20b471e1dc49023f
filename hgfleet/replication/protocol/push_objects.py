"""Pushes that are too large for a message: objects of a JetStream object store at the brokers.

The object of a push has the parts that are too large for its message: the line of the record, a
line feed, and the changegroup. The relay stores it before it publishes the message, so that a push
in the stream is on another host, however large it is. Its name is the id of the message: identity,
number, epoch and hash. A mirror compares the digest, and asks the source if the brokers do not have
the whole object.

The bucket has its own limit. The oldest objects go first, and no object stays longer than messages.
"""

from __future__ import annotations

import asyncio
import base64
import contextlib
import hashlib
import tempfile
from typing import IO, TYPE_CHECKING, BinaryIO, Final

import nats.js.errors
from nats.js.api import DiscardPolicy, ObjectMeta, ObjectMetaOptions, StorageType, StreamConfig
from nats.js.object_store import OBJ_DIGEST_TYPE, ObjectStore

from hgfleet.core.errors import UnavailableError
from hgfleet.pushlog.record import hash_of
from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.connection import asking, tls

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator

    from nats.js import JetStreamContext

    from hgfleet.pushlog.record import Record
    from hgfleet.replication.protocol.settings import Settings

BUCKET: Final = "hgfleet-changegroups"
STREAM: Final = f"OBJ_{BUCKET}"
"""The stream of the bucket, as clients of NATS name it."""

CHUNK_BYTES: Final = 512 * 1024
"""Bytes of a chunk of an object; a broker syncs each chunk."""

SHARE: Final = 2
"""The largest object is half of the bucket, so that a push does not remove all others."""

ANSWER_SECONDS: Final = 10.0
IN_MEMORY: Final = 8 * 2**20

_META: Final = f"$O.{BUCKET}.M."
_CHUNKS: Final = f"$O.{BUCKET}.C."


def expected(replicas: int, most_bytes: int, max_age: float) -> StreamConfig:
    """Return the configuration of the bucket; nats-py's own would refuse objects when full."""
    return StreamConfig(
        name=STREAM,
        subjects=[f"{_CHUNKS}>", f"{_META}>"],
        storage=StorageType.FILE,
        discard=DiscardPolicy.OLD,
        max_age=max_age,
        max_bytes=most_bytes,
        # The default of brokers: any other value would count as a difference.
        duplicate_window=120.0,
        num_replicas=replicas,
        allow_rollup_hdrs=True,
    )


async def has(api: JetStreamContext, name: str) -> bool:
    """Whether the brokers have the object of a push. Raises the errors of nats-py."""
    try:
        await ObjectStore(BUCKET, STREAM, api).get_info(name)
    except nats.js.errors.NotFoundError:
        return False
    return True


async def put(api: JetStreamContext, name: str, content: IO[bytes]) -> None:
    """Store an object. Raises the errors of nats-py."""
    options = ObjectMetaOptions(max_chunk_size=CHUNK_BYTES)
    await ObjectStore(BUCKET, STREAM, api).put(
        name,
        content,  # type: ignore[arg-type]  # a file
        ObjectMeta(name=name, options=options),
    )


async def withdraw(api: JetStreamContext, purged: Collection[str]) -> list[str]:
    """Remove the objects of deleted repositories; return their names. Raises as `put` does."""
    info = await api.stream_info(STREAM, subjects_filter=f"{_META}>")
    gone = []
    for subject in info.state.subjects or {}:
        name = base64.urlsafe_b64decode(subject.removeprefix(_META)).decode("utf-8", "replace")
        if name.partition(".")[0] not in purged:
            continue
        # In this order, so that after a kill the relay finds the name again.
        with contextlib.suppress(nats.js.errors.NotFoundError):
            info_of = await ObjectStore(BUCKET, STREAM, api).get_info(name, show_deleted=True)
            await api.purge_stream(STREAM, subject=f"{_CHUNKS}{info_of.nuid}")
        await api.purge_stream(STREAM, subject=subject)
        gone.append(name)
    return gone


@contextlib.contextmanager
def fetched(settings: Settings, line: bytes, record: Record) -> Iterator[BinaryIO]:
    """Open the changegroup of a push that the brokers keep, through a separate connection.

    Raises UnavailableError if they do not answer, or do not have the whole object.
    """
    name = messages.message_id(record, hash_of(line))
    with tempfile.SpooledTemporaryFile(IN_MEMORY) as file:
        asyncio.run(_fetch(settings, name, file))
        file.seek(0)
        if file.read(len(line) + 1) != line + b"\n":
            raise UnavailableError(f"the object {name} of the brokers has another record")
        yield file  # type: ignore[misc]  # a BinaryIO in all but name


async def _fetch(settings: Settings, name: str, file: IO[bytes]) -> None:
    """Write an object to a file, with a request for each chunk, which needs no consumer."""
    context = tls(settings)
    # Each broker is tried only once, because the source has the changesets too.
    async with asking(settings, "hgfleet-applier object", context, tries=1) as client:
        api = client.jetstream(timeout=ANSWER_SECONDS)
        hashed, sequence = hashlib.sha256(), 0
        try:
            info = await ObjectStore(BUCKET, STREAM, api).get_info(name)
            for _ in range(info.chunks or 0):
                chunk = await api.get_msg(STREAM, sequence + 1, f"{_CHUNKS}{info.nuid}", next=True)
                file.write(chunk.data or b"")
                hashed.update(chunk.data or b"")
                sequence = chunk.seq or 0
        except (nats.js.errors.NotFoundError, nats.js.errors.BadObjectMetaError) as error:
            raise UnavailableError(f"the brokers do not have all of object {name}") from error
    digest = base64.urlsafe_b64encode(hashed.digest()).decode("ascii")
    if info.digest != f"{OBJ_DIGEST_TYPE}{digest}":
        raise UnavailableError(f"the brokers' object {name} does not have the digest that it names")
