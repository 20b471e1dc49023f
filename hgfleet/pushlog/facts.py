"""Facts about a transaction of hg for its record. Only extensions import this module."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from mercurial import encoding, obsolete, phases

from hgfleet.pushlog.record import Heads

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from hgfleet.pushlog.record import Node


class Facts(NamedTuple):
    """Changes of a transaction, in the form of a record."""

    changesets: tuple[Node, ...] = ()
    heads: Heads = Heads()
    phases: tuple[tuple[Node, str | None, str], ...] = ()
    bookmarks: tuple[tuple[str, Node | None, Node | None], ...] = ()
    markers: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the transaction changed nothing that a record contains."""
        return not (self.changesets or self.phases or self.bookmarks or self.markers)


def of_transaction(repo: Any, transaction: Any) -> Facts:
    """Collect the changes of an open transaction of an unfiltered repository.

    The changesets are all added changesets, including secret and obsolete changesets.
    """
    changes, log = transaction.changes, repo.changelog
    before, after = changes[b"origrepolen"], len(log)
    gone: Iterable[bytes] = ()
    new: Iterable[bytes] = ()
    if before < after:
        gone, new = log.diffheads(before, after)
    return Facts(
        tuple(log.node(number).hex() for number in range(before, after)),
        Heads(_sorted(gone), _sorted(new), digest(log)),
        tuple(_phases(log, changes[b"phases"])),
        tuple(_bookmarks(changes[b"bookmarks"])),
        tuple(sorted(_markers(changes[b"obsmarkers"]))),
    )


def digest(log: Any, before: int | None = None) -> str:
    """Return the digest of all heads, or of the heads before the changeset with this number."""
    numbers = log.headrevs(None, before)
    return Heads.digest_of(log.node(number).hex() for number in numbers if number >= 0)


def heads(log: Any) -> set[str]:
    """Return all heads; an empty repository has none."""
    return {log.node(number).hex() for number in log.headrevs() if number >= 0}


def marks(bookmarks: Mapping[bytes, bytes]) -> dict[str, Node]:
    """Return all bookmarks in the form of a record."""
    return {_stored(name): node.hex() for name, node in bookmarks.items()}


def moved(
    before: Mapping[str, Node], after: Mapping[str, Node]
) -> tuple[tuple[str, Node | None, Node | None], ...]:
    """Compare two states of all bookmarks."""
    names = sorted(before.keys() | after.keys())
    states = ((name, before.get(name), after.get(name)) for name in names)
    return tuple(state for state in states if state[1] != state[2])


def _sorted(nodes: Iterable[bytes]) -> tuple[Node, ...]:
    return tuple(sorted(node.hex() for node in nodes if any(node)))


def _phases(log: Any, changes: Any) -> Iterable[tuple[Node, str | None, str]]:
    names = {number: name.decode("ascii") for number, name in phases.phasenames.items()}
    for numbers, (old, new) in sorted(changes, key=lambda change: change[0][0]):
        if old != new:
            was = None if old is None else names[old]
            yield from ((log.node(number).hex(), was, names[new]) for number in numbers)


def _bookmarks(changes: Any) -> Iterable[tuple[str, Node | None, Node | None]]:
    for name, (old, new) in sorted(changes.items()):
        if old != new:
            yield _stored(name), old.hex() if old else None, new.hex() if new else None


def _stored(bookmark: bytes) -> str:
    """Return a name, with lone surrogates for bytes that are not UTF-8, so that none is lost."""
    return encoding.fromlocal(bookmark).decode("utf-8", "surrogateescape")  # type: ignore[no-any-return]


def _markers(changes: Any) -> Iterable[str]:
    encoded = obsolete.encodemarkers(changes, addheader=False, version=obsolete._fm1version)  # noqa: SLF001
    return (marker.hex() for marker in encoded)
