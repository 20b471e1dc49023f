"""Push logs for tests: chains of records with made-up pushes."""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any

from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of

if TYPE_CHECKING:
    from pathlib import Path

IDENTITY = "7d" * 16
START_MS = 1_700_000_000_000


def node_of(number: int) -> str:
    """A changeset of a made-up history."""
    return hashlib.sha1(str(number).encode(), usedforsecurity=False).hexdigest()


class Chain:
    """A push log in a file, appended to push by push."""

    def __init__(self, file: Path, identity: str = IDENTITY) -> None:
        self.file = file
        self.identity = identity
        self.id, self.previous = 0, FIRST

    def record(self, changesets: tuple[str, ...], **fields: Any) -> Record:
        """Return the next record."""
        values: dict[str, Any] = {
            "kind": "push",
            "user": "alice",
            "time": START_MS + 60_000 * self.id,
            "key": "SHA256:" + "k" * 43,
            "client": "192.0.2.77",
            "heads": Heads(digest=Heads.digest_of(changesets[-1:])),
            **fields,
        }
        return Record(
            id=self.id + 1,
            repository=self.identity,
            previous=self.previous,
            changesets=changesets,
            **values,
        )

    def push(self, *changesets: str, **fields: Any) -> Record:
        """Append the next record."""
        record = self.record(changesets, **fields)
        line = record.line()
        with self.file.open("ab") as file:
            file.write(line + b"\n")
        self.id, self.previous = record.id, hash_of(line)
        return record
