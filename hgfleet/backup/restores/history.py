"""Difference between the running and the restored history of a repository. Pure.

A history is every changeset with its parents, hidden changesets included.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hgfleet.pushlog.record import Record

History = dict[str, tuple[str, ...]]
"""Node of a changeset: the nodes of its parents, in the order of the repository."""

NULL: Final = "0" * 40


@dataclass(frozen=True, slots=True)
class Difference:
    """Changesets and heads that are missing in one of two histories, in the order of the other."""

    missing: tuple[str, ...]
    """Changesets of the backup that the running repository does not have."""
    extra: tuple[str, ...]
    """Changesets of the running repository that the backup does not have."""
    roots: tuple[str, ...]
    """Changesets of `extra` without a parent in `extra`: to remove them removes all."""
    missing_heads: tuple[str, ...]
    extra_heads: tuple[str, ...]

    def __bool__(self) -> bool:
        """Whether the histories differ."""
        return bool(self.missing or self.extra)


def parse(lines: Iterable[str]) -> History:
    """Read lines of `{node} {p1node} {p2node}`."""
    parents_of: History = {}
    for line in lines:
        node, *parents = line.split()
        parents_of[node] = tuple(parent for parent in parents if parent != NULL)
    return parents_of


def heads(history: Mapping[str, tuple[str, ...]]) -> tuple[str, ...]:
    """Return the changesets without a child."""
    parents = {parent for above in history.values() for parent in above}
    return tuple(node for node in history if node not in parents)


def difference(running: History, restored: History) -> Difference:
    """Compare two histories."""
    extra = [node for node in running if node not in restored]
    among = set(extra)
    running_heads, restored_heads = heads(running), heads(restored)
    return Difference(
        missing=tuple(node for node in restored if node not in running),
        extra=tuple(extra),
        roots=tuple(node for node in extra if among.isdisjoint(running[node])),
        missing_heads=tuple(node for node in restored_heads if node not in running_heads),
        extra_heads=tuple(node for node in running_heads if node not in restored_heads),
    )


def later(records: Iterable[Record], push_id: int, at: float | None) -> tuple[int, int]:
    """Count the pushes that a backup misses: up to the wanted time, and after that time.

    The first number is how far the chosen backup is behind the state at that time (seconds since
    1970).
    """
    before = after = 0
    for record in records:
        if record.id <= push_id:
            continue
        if at is not None and record.time <= round(at * 1000):
            before += 1
        else:
            after += 1
    return before, after
