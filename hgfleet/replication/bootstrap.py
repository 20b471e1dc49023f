"""Fill an empty repository of a mirror with the primary's state and its whole push log.

One transaction brings what thousands of records would bring one by one. It is also the only way to
a repository that was adopted: the changesets before its first record are in no record.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, BinaryIO

from mercurial import phases
from mercurial.node import bin as to_binary

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import chain, log_file, writing
from hgfleet.pushlog.log_file import Entry
from hgfleet.pushlog.record import Heads, parse
from hgfleet.replication import apply, changesets
from hgfleet.replication.failures import DivergedError
from hgfleet.replication.source_client import RepositoryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hgfleet.replication.snapshot import State


def is_empty(repo: Any) -> bool:
    """Whether a repository has neither changesets nor records."""
    return not len(repo) and not apply.tip_of(repo).id


def fill(repo: Any, state: State, lines: Iterable[bytes], data: BinaryIO | None) -> None:
    """Bring a state and its log; `data` has all changesets, None if there are none.

    Raises RepositoryError where the source's changesets, log and state do not belong together,
    DivergedError, PushlogError, or what Mercurial raises; all of them leave the repository empty.
    """
    wanted = list(_up_to(state, lines))
    _check(state, wanted[-1])
    with apply.locked(repo, state.repository):
        if not is_empty(repo):
            raise DivergedError("the repository is not empty any more")
        repo.ui.setconfig(b"hgfleet", b"applied-record", b"all", b"applier")
        setattr(repo, apply.NOT_OF_A_PUSH, True)
        try:
            with repo.transaction(b"replication") as tr:
                if data is not None:
                    changesets.add(repo, tr, data)
                _set(repo, tr, state)
                found = {repo.changelog.node(rev).hex() for rev in repo.changelog.headrevs()}
                if found - {repo.nullid.hex()} != set(state.heads):
                    raise RepositoryError("the source sent other changesets than its state names")
                tip = log_file.Tip()
                tr.addfinalize(
                    b"pushlog-applied", lambda tr: writing.append(repo.svfs, tr, tip, wanted)
                )
        finally:
            setattr(repo, apply.NOT_OF_A_PUSH, False)
            repo.ui.setconfig(b"hgfleet", b"applied-record", None, b"applier")


def _up_to(state: State, lines: Iterable[bytes]) -> Iterator[bytes]:
    """Yield the lines up to the state's record, each checked to follow the one before."""
    last = ""
    for entry in chain.checked(_entries(lines)):
        if entry.record.repository != state.repository:
            raise PushlogError(f"record {entry.record.id} is of another repository than the state")
        yield entry.line
        last = entry.hash
        if entry.record.id == state.id:
            break
    if last != state.hash:
        raise RepositoryError("the source's log and state do not belong together")


def _check(state: State, line: bytes) -> None:
    """Compare a state with its record: a primary that lost changesets has other heads."""
    digest = parse(line).heads.digest
    if digest and Heads.digest_of(state.heads) != digest:
        raise RepositoryError(
            f"the source has other heads ({len(state.heads)}) than its record {state.id} names: it "
            "lost changesets; `hgfleet pushlog verify` on the primary tells which"
        )


def _entries(lines: Iterable[bytes]) -> Iterator[Entry]:
    offset = 0
    for line in lines:
        entry = Entry(offset, line, parse(line))
        yield entry
        offset = entry.end


def _set(repo: Any, tr: Any, state: State) -> None:
    """Set phases, bookmarks and markers."""
    for name, nodes in sorted(
        (state.phases or {}).items(), key=lambda one: phases.phasenumber[one[0].encode("ascii")]
    ):
        number = phases.phasenumber[name.encode("ascii")]
        members = [to_binary(node) for node in nodes]
        phases.advanceboundary(repo, tr, number, members)
        phases.retractboundary(repo, tr, number, members)
    apply.move_bookmarks(repo, tr, [(name, node) for name, node in state.bookmarks])
    apply.add_markers(repo, tr, state.markers)
