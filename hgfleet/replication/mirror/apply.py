"""Apply a record of the primary to a mirror's repository, in a single transaction of hg.

Changesets, phases, bookmarks, obsolescence markers and the record's line are written together or
not at all, so the mirror's own push log is the position of the mirror. The primary's policies have
already decided about the push: here no policy applies, and no hook of a person runs.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, BinaryIO, Final

from mercurial import extensions, obsolete, phases
from mercurial import ui as ui_module
from mercurial.node import bin as to_binary
from mercurial.node import hex as to_hexadecimal
from mercurial.repo import factory

from hgfleet.core import identity
from hgfleet.hg import repository_settings
from hgfleet.pushlog import log_file, shared, writing
from hgfleet.pushlog.record import Heads
from hgfleet.replication.mirror.record_order import Step, decide
from hgfleet.replication.repositories.errors import DivergedError, MissingError, RemovalError
from hgfleet.replication.source import changesets

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from hgfleet.pushlog.log_file import Tip
    from hgfleet.pushlog.record import Record

LOCK_WAIT_SECONDS: Final = 10

# Extensions of the service that decide about people's pushes, or serve clients.
_OFF: Final = (
    b"admission",
    b"bundle_trigger",
    b"clonebundles_steer",
    b"clonecounts",
    b"getbundlelog",
    b"owner_quota",
    b"pinned_store",
    b"policies",
    b"pullbundles",
    b"pushcounts",
    b"replicated",
    b"session_limits",
    b"signedbundles",
)
# Hooks for the right to write (the applier is an operator), for the record's line and its index.
_HOOKS: Final = (b"access", b"pushlog", b"pushlog_index")


class IncompleteError(Exception):
    """The changegroup and the record do not have the same changesets."""


def new_ui() -> Any:
    """Return a ui with the configuration of HGRCPATH, without hooks of people."""
    ui = ui_module.ui.load()
    repository_settings.skip(ui)
    for name in _OFF:
        ui.setconfig(b"extensions", name, b"!", b"applier")
        ui.setconfig(b"extensions", name + b":required", b"no", b"applier")
    for section, name, value in (
        (b"ui", b"interactive", b"no"),
        (b"ui", b"quiet", b"yes"),
        (b"ui", b"timeout", b"%d" % LOCK_WAIT_SECONDS),
        (b"server", b"validate", b"yes"),
        (b"experimental", b"evolution", b"all"),
    ):
        ui.setconfig(section, name, value, b"applier")
    return ui


def open_repository(path: Path) -> Any:
    """Open a repository with all its changesets, hidden changesets included."""
    ui = new_ui()
    # A push log is written only for a registered repository, which is a repository with a path.
    ui.setconfig(b"hgfleet", b"path", os.fsencode(path), b"applier")
    repo = factory.repository(ui, os.fsencode(path)).unfiltered()
    for name, _command in list(repo.ui.configitems(b"hooks", untrusted=True)):
        if name.split(b".", 1)[-1] not in _HOOKS:
            repo.ui.setconfig(b"hooks", name, b"", b"applier")
    return repo


def tip_of(repo: Any) -> Tip:
    """Return the end of the repository's push log."""
    name = log_file.NAME.encode("ascii")
    return log_file.tip(os.fsdecode(repo.svfs.join(name)))


@contextlib.contextmanager
def locked(repo: Any, expected: str) -> Iterator[None]:
    """Lock a repository, and undo a transaction that a killed process left.

    Raises MissingError if the folder belongs to another repository: the lock belongs to a path, and
    another folder may have come there since the repository was opened.
    """
    with repo.wlock(), repo.lock():
        place = os.fsdecode(repo.root)
        # An earlier release, or a mistake, may have left a file that contradicts the push log.
        named = {identity.of(place), tip_of(repo).repository} - {""}
        if named != {expected}:
            got = " and ".join(sorted(named))
            got = f"repository {got}" if got else "a repository without identity"
            raise MissingError(f"{place}: got {got}, expected {expected}; the documents bring it")
        if repo.svfs.exists(b"journal"):
            repo.recover()
        yield


def apply(repo: Any, line: bytes, record: Record, data: BinaryIO | None) -> Step:
    """Apply a record unless the repository has it or has a gap before it; return which.

    `data` is a changegroup of version 03, compressed with zlib, or None. Raises MissingError for a
    record of another repository, even if the log is empty, DivergedError, IncompleteError, or
    errors of Mercurial. Each error leaves the repository as it was.

    The lock comes first, because the decision depends on the end of this mirror's log, and another
    process could append to it. One transaction then has everything: changesets, phases, bookmarks,
    markers, and the record. While `applied` is set, the extension `pushlog` refuses no change and
    appends this line as it is, not a record of its own; without the extension, `_append` does it.
    Before the transaction commits, its heads and phases are compared with the record: if they
    differ, all of it is rolled back.
    """
    with locked(repo, record.repository):
        step = next_step(repo, line, record)
        if step is not Step.APPLY:
            return step
        shared.of(repo).applied = line
        try:
            with repo.transaction(b"replication") as tr:
                _content(repo, tr, record, data)
                _check(repo, record)
                if not _has_push_log(repo):
                    _append(repo, tr, tip_of(repo), [line])
        finally:
            shared.of(repo).applied = None
    return step


def next_step(repo: Any, line: bytes, record: Record) -> Step:
    """Decide about a record, under the lock of the repository; raises DivergedError."""
    tip = tip_of(repo)
    step, reason = decide(tip, record, line)
    if step is Step.DIVERGED:
        raise DivergedError(reason)
    if step is Step.APPLY:
        _check_origin(repo, record, tip)
    return step


def _has_push_log(repo: Any) -> bool:
    """Whether the extension `pushlog` appends the record that is applied."""
    try:
        extension = extensions.find(b"pushlog")
    except KeyError:
        return False
    return bool(extension.is_logged(repo))


def _append(repo: Any, tr: Any, tip: Tip, lines: list[bytes]) -> None:
    """Let the transaction append lines to the push log, once the changelog is complete."""
    tr.addfinalize(b"pushlog-applied", lambda tr: writing.append(repo.svfs, tr, tip, lines))


def _check_origin(repo: Any, record: Record, tip: Tip) -> None:
    """Refuse a first record if the repository has changesets that no record names."""
    if record.kind == "strip":
        # hg removes changesets in several transactions; until then readers use the old repository.
        raise RemovalError(f"record {record.id} removes changesets")
    if tip.id == 0 and record.kind == "push" and len(repo):
        raise DivergedError(
            f"the mirror has {len(repo)} changesets and no push log, and the primary begins with "
            "an empty repository"
        )


def _content(repo: Any, tr: Any, record: Record, data: BinaryIO | None) -> None:
    if data is not None:
        known = len(repo)
        changesets.add(repo, tr, data)
        unexpected = {
            to_hexadecimal(repo.changelog.node(rev)).decode("ascii")
            for rev in range(known, len(repo))
        }.difference(record.changesets)
        if unexpected:
            raise IncompleteError(f"changeset {min(unexpected)} is not in the record")
    missing = [node for node in record.changesets if not repo.changelog.hasnode(to_binary(node))]
    if missing:
        raise IncompleteError(f"{len(missing)} changesets are missing, {missing[0]} among them")
    _phases(repo, tr, record)
    move_bookmarks(repo, tr, [(name, after) for name, _before, after in record.bookmarks])
    add_markers(repo, tr, record.markers)
    repo.invalidatevolatilesets()


def move_bookmarks(repo: Any, tr: Any, moves: Sequence[tuple[str, str | None]]) -> None:
    """Set bookmarks to changesets, or delete a bookmark if its changeset is None."""
    if not moves:
        return
    changes = [
        (name.encode("utf-8", "surrogateescape"), None if node is None else to_binary(node))
        for name, node in moves
    ]
    repo._bookmarks.applychanges(repo, tr, changes)  # noqa: SLF001  (core has no other name)


def add_markers(repo: Any, tr: Any, markers: Sequence[str]) -> None:
    """Add obsolescence markers."""
    if markers:
        version = obsolete.encodeheader(obsolete._fm1version)  # noqa: SLF001
        encoded = b"".join(bytes.fromhex(marker) for marker in markers)
        repo.obsstore.mergemarkers(tr, version + encoded)


def _phases(repo: Any, tr: Any, record: Record) -> None:
    """Set the phases after the push: first move changesets down, then up."""
    by_phase: dict[int, list[bytes]] = {}
    for node, _before, after in record.phases:
        number = phases.phasenumber[after.encode("ascii")]
        by_phase.setdefault(number, []).append(to_binary(node))
    for number in sorted(by_phase):
        phases.advanceboundary(repo, tr, number, by_phase[number])
    for number in sorted(by_phase):
        phases.retractboundary(repo, tr, number, by_phase[number])


def _check(repo: Any, record: Record) -> None:
    """Compare the result with the record; raises DivergedError."""
    for node, _before, after in record.phases:
        phase = repo[to_binary(node)].phasestr().decode("ascii")
        if phase != after:
            raise DivergedError(f"changeset {node} is {phase} after the push, expected {after}")
    heads = [to_hexadecimal(head).decode("ascii") for head in repo.changelog.heads()]
    if record.heads.digest and Heads.digest_of(heads) != record.heads.digest:
        raise DivergedError(
            f"the mirror has other heads ({len(heads)}) after record {record.id} than the primary: "
            "it has changesets of its own, or changesets are missing"
        )
