"""Changes of a store that no record contains: found before a push, and named to operators. Pure.

A transaction and its record stand or fall together. So the heads before a transaction are the heads
of the last record, unless something bypassed the log: a defect, an intruder in a session, a copied
store, hg with other settings. The next record would have the digest of those heads, and cover them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog.record import Heads

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from hgfleet.pushlog.record import Node, Record

HOW_TO: Final = (
    "compare both with `hgfleet pushlog verify {path}`; remove foreign changesets with `hg strip` "
    "as an operator, or answer for it with `hgfleet pushlog accept {path}` (runbook pushlog)"
)
"""Way out, for operators."""

CENSOR: Final = (
    "`hg censor` replaces the content of a file in unchanged changesets, so mirrors, bundles "
    "and backups would keep it; remove the changesets with `hg debugstrip`, and push new "
    "changesets without the content (page removing-a-secret)"
)
MARKERS: Final = (
    "mirrors would keep obsolescence markers that are deleted here; markers of removed changesets "
    "go with them (`hg debugstrip`), others can be answered by new markers (`hg debugobsolete`)"
)
ROLLBACK: Final = (
    "mirrors have, or will have, the push that `hg rollback` would take back with its record; "
    "remove its changesets with `hg debugstrip`"
)
"""Reasons why a command is refused whose changes no record can contain."""


def problem(last: Record | None, digest: str, *, changesets: int, from_start: bool) -> str | None:
    """Return how the store departed from its log, None if it did not.

    `digest` is of the heads. If a repository is older than its log, its first push adopts it.
    """
    if last is not None:
        if last.heads.digest == digest:
            return None
        return f"its store has other heads than after record {last.id} of its push log"
    if changesets and from_start:
        return f"its store has {changesets} changesets, and its push log has no record"
    return None


class Difference(NamedTuple):
    """Changesets in the records but not in the store, and the reverse, parents first."""

    gone: tuple[Node, ...]
    added: tuple[Node, ...]


def difference(records: Iterable[Record], history: Mapping[Node, Sequence[Node]]) -> Difference:
    """Compare the records with a history: all changesets in the order of the store, with parents.

    Raises PushlogError if an adoption, which names no changesets, leaves that open.
    """
    named: dict[Node, None] = {}
    adopted, last = False, None
    for record in records:
        last = record
        adopted = adopted or record.kind == "adoption"
        for node in record.changesets:
            if record.kind == "strip":
                named.pop(node, None)
            else:
                named[node] = None
    gone = tuple(node for node in named if node not in history)
    if last is None or not adopted:
        return Difference(gone, tuple(node for node in history if node not in named))
    # The log begins with an adoption, which names no changesets, so an unnamed changeset may be
    # adopted or unrecorded. A store keeps its changesets in the order of their arrival: adopted and
    # recorded changesets come first, and unrecorded changesets after them. So look for the first
    # changesets of the store that include every named changeset, and whose heads have the digest
    # of the last record. All others are unrecorded.
    nodes = tuple(history)
    if not gone:
        least = max((place for place, node in enumerate(nodes, 1) if node in named), default=0)
        for count, digest in enumerate(_digests(history)):
            if count >= least and digest() == last.heads.digest:
                return Difference((), nodes[count:])
    raise PushlogError(
        "it is not known which changesets bypassed the log, because it begins with an adoption and "
        "some are missing; bring them back, or begin a new chain (runbook pushlog)"
    )


def _digests(history: Mapping[Node, Sequence[Node]]) -> Iterator[Callable[[], str]]:
    """Yield functions that return the digest of the heads of the first 0, 1, 2... changesets."""
    heads: set[Node] = set()
    yield lambda: Heads.digest_of(heads)
    for node, parents in history.items():
        heads.difference_update(parents)
        heads.add(node)
        yield lambda: Heads.digest_of(heads)


def heads(history: Mapping[Node, Sequence[Node]], nodes: Iterable[Node]) -> set[Node]:
    """Return the heads of some changesets of a history."""
    chosen = set(nodes)
    return chosen - {parent for node in chosen for parent in history[node]}
