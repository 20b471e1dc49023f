"""Records of a push log, for tests."""

from __future__ import annotations

from typing import Any, Final

from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of

IDENTITY: Final = "7d" * 16
NODE: Final = "5f" * 20
OTHER: Final = "6a" * 20
DIGEST: Final = "9a" * 32


def record(**changes: Any) -> Record:
    """Return a record that has every field, but for `changes`."""
    values: dict[str, Any] = {
        "id": 1,
        "repository": IDENTITY,
        "kind": "push",
        "user": "alice",
        "time": 1795440000123,
        "previous": FIRST,
        "key": "SHA256:" + "k" * 43,
        "client": "192.0.2.7",
        "changesets": (NODE,),
        "heads": Heads((OTHER,), (NODE,), DIGEST),
        "phases": ((NODE, None, "public"), (OTHER, "draft", "public")),
        "bookmarks": (("@", None, NODE), ("gone", OTHER, None), ("\udcff é", OTHER, NODE)),
        "markers": ("00ff",),
        "verdicts": {"no-symlinks": "allowed"},
    }
    return Record(**values | changes)


def lines(count: int) -> list[bytes]:
    """Return the lines of a valid chain."""
    made, previous = [], FIRST
    for number in range(1, count + 1):
        made.append(record(id=number, previous=previous).line())
        previous = hash_of(made[-1])
    return made
