"""Earlier state of a restored repository: the state after the last push up to a time.

A backup has the log of all pushes before it, and each record names the changes of its push. Pushes
append, so the recovery point of an earlier push is a shorter prefix of the same files, once the
phases and bookmarks that later pushes moved are put back. A removal of changesets (`strip`)
rewrites the store, so a backup after the removal leads to no state before it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hgfleet.backup.point import recovered, revlog_index
from hgfleet.backup.point.capture import CHANGELOG, PUSHLOG
from hgfleet.core.errors import HostError
from hgfleet.pushlog import log_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.backup.point.point import Point
    from hgfleet.backup.point.revlog_index import Changeset
    from hgfleet.pushlog.log_file import Entry
    from hgfleet.pushlog.record import Record

OBSSTORE: Final = "store/obsstore"
PHASEROOTS: Final = "store/phaseroots"
BOOKMARKS: Final = ("store/bookmarks", "bookmarks")

PUBLIC: Final = 0
PHASES: Final[Mapping[str, int]] = {
    "public": PUBLIC,
    "draft": 1,
    "secret": 2,
    "archived": 32,
    "internal": 96,
}
"""Mercurial's numbers of the phases, as in the file `phaseroots`."""


class UnreachableError(HostError):
    """No backup after the wanted time leads back to it."""


def rewind(control: Path, point: Point, at: float) -> Point:
    """Take a rebuilt repository, given its .hg, back to a time; return its new recovery point.

    The time is in seconds since 1970. Raises UnreachableError, and HostError for a damaged copy.
    """
    last, undone = divided(log_file.entries(control / PUSHLOG), at)
    if last is None:
        raise UnreachableError(f"{point.path}: its log has no push up to that time")
    if not undone:
        return point
    changelog = control / CHANGELOG
    index = changelog.read_bytes() if changelog.exists() else b""
    before = earlier(point, last, undone, index)
    if before.sizes[OBSSTORE] < point.sizes[OBSSTORE]:
        markers = (control / OBSSTORE).read_bytes()[before.sizes[OBSSTORE] :]
        check_markers(point.path, markers, undone)
    recovered.rebuild(control, before)
    return before


def divided(entries: Iterable[Entry], at: float) -> tuple[Entry | None, list[Record]]:
    """Return the last record of a log up to a time, and all records after it. Pure."""
    last: Entry | None = None
    later: list[Record] = []
    for entry in entries:
        if entry.record.time <= round(at * 1000):
            last, later = entry, []
        else:
            later.append(entry.record)
    return last, later


def earlier(point: Point, last: Entry, undone: Sequence[Record], index: bytes) -> Point:
    """Return the recovery point before the undone records, given the changelog's index. Pure.

    `last` is the record before them.
    """
    for record in undone:
        if record.kind != "push":
            raise UnreachableError(
                f"{point.path}: record {record.id}, which came after that time, is no push but "
                f"{record.kind}; only a backup from before that record has the changesets"
            )
    changesets = point.changesets - sum(len(record.changesets) for record in undone)
    kept = revlog_index.keep(index, changesets)
    markers = sum(len(marker) // 2 for record in undone for marker in record.markers)
    replaced = dict(point.replaced)
    roots = replaced[PHASEROOTS]
    if roots is not None:
        history = list(revlog_index.changesets(index, kept))
        replaced[PHASEROOTS] = phase_roots(roots, history, undone)
    for name in BOOKMARKS:
        text = replaced[name]
        if text is not None:
            replaced[name] = bookmarks(text, undone)
    return replace(
        point,
        time=last.record.time / 1000,
        changesets=changesets,
        tip=revlog_index.last_node(index, kept),
        sizes={PUSHLOG: last.end, OBSSTORE: point.sizes[OBSSTORE] - markers},
        replaced=replaced,
        push_id=last.record.id,
        push_hash=last.hash,
        heads=last.record.heads.digest,
    )


def phase_roots(text: str, history: Sequence[Changeset], undone: Sequence[Record]) -> str:
    """Return the content of `phaseroots` before the undone records. Pure.

    `history` has the changesets of the state before. A root is a changeset whose phase is higher
    than the phase of each parent; the file lists the roots that are not public.
    """
    roots: dict[str, int] = {}
    for line in text.splitlines():
        phase, node = line.split()
        roots[node] = max(int(phase), roots.get(node, PUBLIC))
    before = {
        node: PHASES[old]
        for record in reversed(undone)
        for node, old, _ in record.phases
        if old is not None
    }
    now: list[int] = []
    for changeset in history:
        now.append(
            max((roots.get(changeset.node, PUBLIC), *(now[above] for above in changeset.parents)))
        )
    then = [
        before.get(changeset.node, phase) for changeset, phase in zip(history, now, strict=True)
    ]
    return "".join(
        f"{phase} {changeset.node}\n"
        for changeset, phase in zip(history, then, strict=True)
        if phase > max((then[above] for above in changeset.parents), default=PUBLIC)
    )


def bookmarks(text: str, undone: Sequence[Record]) -> str:
    """Return the content of the file of bookmarks before the undone records. Pure."""
    nodes = {}
    # A name may have any line separator but a line feed.
    for line in text.removesuffix("\n").split("\n") if text else ():
        node, _, name = line.partition(" ")
        nodes[name] = node
    for record in reversed(undone):
        for name, old, _ in record.bookmarks:
            if old is None:
                nodes.pop(name, None)
            else:
                nodes[name] = old
    return "".join(f"{node} {name}\n" for name, node in sorted(nodes.items()))


def check_markers(path: str, appended: bytes, undone: Sequence[Record]) -> None:
    """Check that the undone records brought the obsolescence markers that are cut off. Pure.

    Raises HostError.
    """
    named = [bytes.fromhex(marker) for record in undone for marker in record.markers]
    if len(appended) != sum(map(len, named)) or any(marker not in appended for marker in named):
        raise HostError(
            f"{path}: the last {len(appended)} bytes of the obsolescence markers do not come from "
            "the pushes after that time"
        )
