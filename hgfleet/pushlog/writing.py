"""Making of records, and their append to the file inside a transaction of hg."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from hgfleet.core import identity
from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain, log_file
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of, parse

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.pushlog.facts import Facts

_TEXT: Final = re.compile(r"[\x20-\x7e]{0,256}")


class Origin(NamedTuple):
    """Where a write comes from: the user, the key or certificate, the address of the client."""

    user: str
    key: str = ""
    client: str = ""


def origin(environment: Mapping[str, str]) -> Origin:
    """Read the environment of a session; a value that is not allowed in a record is left out."""
    client = environment.get("SSH_CONNECTION", "").partition(" ")[0]
    values = (environment.get("HGFLEET_USER", ""), environment.get("HGFLEET_KEY", ""), client)
    return Origin(*(value if _TEXT.fullmatch(value) else "" for value in values))


def push(
    tip: Tip, facts: Facts, by: Origin, time_ms: int, verdicts: Mapping[str, str], kind: str
) -> Record:
    """Make the record of a push, or of a strip, that follows `tip`."""
    return Record(
        id=tip.id + 1,
        repository=tip.repository,
        kind=kind,
        user=by.user,
        time=time_ms,
        previous=tip.hash,
        key=by.key,
        client=by.client,
        epoch=tip.epoch,
        changesets=facts.changesets,
        heads=facts.heads,
        phases=facts.phases,
        bookmarks=facts.bookmarks,
        markers=facts.markers,
        verdicts=verdicts,
    )


def adoption(tip: Tip, digest: str, user: str, time_ms: int) -> Record:
    """Make the first record of a repository that has changesets; `digest` is of its heads."""
    return Record(
        id=tip.id + 1,
        repository=tip.repository,
        kind="adoption",
        user=user,
        time=time_ms,
        previous=tip.hash,
        epoch=tip.epoch,
        heads=Heads(digest=digest),
    )


def beginning(own: str) -> Tip:
    """Return the tip that the first record of a new chain continues.

    `own` is the identity of the repository. If it has none, an identity is made here, and the next
    `registry apply` adopts it.
    """
    return Tip(hash=FIRST, repository=own or identity.made())


def after(tip: Tip, record: Record, line: bytes) -> Tip:
    """Return the end of the chain after this line."""
    end = tip.end + len(line) + 1
    return Tip(record.id, hash_of(line), record.repository, end, record.epoch)


def applied(tip: Tip, line: bytes, digest: str) -> Record:
    """Read a record of the primary that a mirror appends. Raises PushlogError if it does not fit.

    `digest` is of the heads that the mirror has after the transaction.
    """
    record = parse(line)
    if wrong := chain.problem(tip, record):
        raise PushlogError(wrong)
    if record.heads.digest != digest:
        raise PushlogError(
            f"after record {record.id} the heads have the digest {digest[:12]} here, and "
            f"{record.heads.digest[:12]} on the primary"
        )
    return record


def append(store: Any, transaction: Any, tip: Tip, lines: list[bytes]) -> None:
    """Append lines after `tip` (I/O); an abort of the transaction removes them.

    `store` is the vfs of the store. An incomplete line after `tip` belongs to no transaction, since
    the store is locked and has no journal: it is overwritten.
    """
    name = os.fsencode(log_file.NAME)
    transaction.add(name, tip.end)
    with store(name, b"r+b" if store.exists(name) else b"wb") as file:
        file.seek(tip.end)
        file.truncate()
        file.write(b"".join(line + b"\n" for line in lines))
