"""Verification of a push log against its repository: each changeset is in a single record. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.pushlog.record import Node, Record

MAX_NAMED: Final = 10
"""Changesets that the report of a problem names."""


class Contents(NamedTuple):
    """Changesets of a repository, and the digest of the heads of some of them."""

    nodes: frozenset[Node]
    digest_of: Callable[[frozenset[Node]], str]


class _Coverage:
    """Changesets that the records up to now name, and their records."""

    def __init__(self) -> None:
        self.named: dict[Node, int] = {}
        self.adoption: Record | None = None
        self.adopted_lost = False
        self.last: Record | None = None

    def follow(self, record: Record) -> Iterator[str]:
        """Take the next record; yield its problems."""
        self.last = record
        if record.kind == "adoption":
            if record.id != 1:
                yield f"record {record.id} is an adoption, and only the first record can be one"
            self.adoption = self.adoption or record
        for node in record.changesets:
            if record.kind == "strip":
                if node in self.named:
                    del self.named[node]
                elif self.adoption:
                    self.adopted_lost = True
                else:
                    yield f"record {record.id} removes {node[:12]}, which no record before it has"
            elif node in self.named:
                yield f"changeset {node[:12]} is in records {self.named[node]} and {record.id}"
            else:
                self.named[node] = record.id


def problems(entries: Iterable[Entry], contents: Contents) -> Iterator[str]:
    """Yield a sentence for each problem; nothing if log and repository match."""
    covered = _Coverage()
    try:
        for entry in chain.checked(entries):
            yield from covered.follow(entry.record)
    except PushlogError as problem:
        yield str(problem)
        return
    missing: dict[int, list[Node]] = {}
    for node, number in covered.named.items():
        if node not in contents.nodes:
            missing.setdefault(number, []).append(node)
    for number, nodes in missing.items():
        yield f"record {number} has {_shown(nodes)}, missing in the repository"
    others = contents.nodes - covered.named.keys()
    if covered.last is None:
        if others:
            yield f"no log, and {len(others)} changesets; `hgfleet pushlog adopt` begins a log"
        return
    adoption = covered.adoption
    if adoption is None:
        if others:
            yield f"no record has {_shown(sorted(others))}"
    elif not covered.adopted_lost and contents.digest_of(others) != adoption.heads.digest:
        yield "the changesets without a push are not the changesets that were adopted"
    if contents.digest_of(contents.nodes) != covered.last.heads.digest:
        yield f"the repository has other heads than after its last record {covered.last.id}"


def _shown(nodes: list[Node]) -> str:
    text = ", ".join(node[:12] for node in nodes[:MAX_NAMED])
    more = f" and {len(nodes) - MAX_NAMED} more" if len(nodes) > MAX_NAMED else ""
    return f"{'changeset' if len(nodes) == 1 else 'changesets'} {text}{more}"
