"""Records of the changes of a transaction, and of an operator's adoptions.

Only the extension `pushlog` imports this module; it needs Mercurial. `shared` has the state that
its parts hand each other.
"""

from __future__ import annotations

import contextlib
import time
from typing import TYPE_CHECKING, Any

from mercurial import encoding, error, phases

from hgfleet.core.errors import PushlogError
from hgfleet.hg import opened_identity
from hgfleet.hg.hooks import OPERATOR, refuse, text
from hgfleet.pushlog import facts, log_file, reading, removal, shared, unrecorded, writing
from hgfleet.pushlog.record import Heads

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from hgfleet.pushlog.facts import Facts
    from hgfleet.pushlog.log_file import Tip


def lines(
    repo: Any, transaction: Any, tip: Tip, changes: Sequence[tuple[str, Facts]]
) -> tuple[list[bytes], Tip]:
    """Return the lines that a transaction of the primary appends, and the tip after them.

    A log without records begins with the identity of the repository. If the repository had
    changesets before this transaction, or if the transaction records a removal, a record of
    adoption comes first: it has the digest of the heads that the repository had then. After it,
    each change that is not empty becomes a record. A record has the hash of the record before it,
    so the records are made in order, and `last` is the tip that the next record continues.
    """
    state = shared.of(repo)
    by = state.origin or writing.origin(
        {text(name): text(encoding.environ[name]) for name in encoding.environ}
    )
    made: list[bytes] = []
    last, now = tip, round(time.time() * 1000)
    if not tip.id:
        last = writing.beginning(opened_identity.of(repo))._replace(epoch=tip.epoch)
        # The record of the transaction needs a predecessor to continue. The changesets of a removal
        # are gone by now, so `digest_before` has the digest of the heads before it.
        before = transaction.changes[b"origrepolen"]
        if before or changes[0][0] == "strip":
            digest = state.digest_before or facts.digest(repo.changelog, before)
            # A person's push adopts a repository by chance; an operator adopts it by intent.
            user = by.user if OPERATOR.fullmatch(by.user) else ""
            record = writing.adoption(last, digest, user, now)
            made.append(record.line())
            last = writing.after(last, record, made[-1])
            if before:
                # The user whose push begins the log is told of the adoption.
                repo.ui.status(
                    b"the push log begins: record 1 stands for the %d changesets from before\n"
                    % before
                )
    for kind, change in changes:
        if not change.is_empty:
            record = writing.push(last, change, by, now, state.verdicts, kind)
            made.append(record.line())
            last = writing.after(last, record, made[-1])
    return made, last


def check(repo: Any) -> None:
    """Refuse a transaction of a repository whose store changed without a record."""
    state = shared.of(repo)
    if state.applied or state.is_repair:
        # The replication compares the heads itself; the other cases are an operator's repair.
        return
    if (told := foreign(repo)) is None:
        return
    path = text(repo.ui.config(b"hgfleet", b"path"))
    if repo.svfs.exists(removal.NAME.encode("ascii")):
        told += ", and a removal of changesets was interrupted"
    refuse(
        repo.ui,
        f"{path} takes no changes, and nothing was changed: {told}; tell the operators",
        (f"operators: {unrecorded.HOW_TO.format(path=path)}",),
        reason="unrecorded",
    )


def foreign(repo: Any) -> str | None:
    """Return how the store departed from its log, None if it did not."""
    log = repo.changelog
    try:
        last = log_file.last(reading.file(repo))
    except PushlogError:
        # The record of the transaction cannot be appended, which is reported then.
        return None
    from_start = repo.vfs.exists(log_file.FROM_START.encode("ascii"))
    return unrecorded.problem(last, facts.digest(log), changesets=len(log), from_start=from_start)


@contextlib.contextmanager
def given(
    repo: Any, changes: Sequence[tuple[str, Facts]], by: writing.Origin | None = None
) -> Iterator[None]:
    """Have the next transaction record these changes; their origin defaults to the session."""
    state = shared.of(repo)
    state.given, state.origin = changes, by
    try:
        yield
    finally:
        state.given, state.origin = (), None


def adopt(repo: Any) -> None:
    """Begin the log of a repository that is older than the log, with the record of adoption.

    Operators run this for all repositories. In a repository that was made under the log, unrecorded
    changesets are left to `accept`.
    """
    if not repo.vfs.exists(log_file.FROM_START.encode("ascii")):
        _adopt(repo)


def _adopt(repo: Any) -> None:
    with repo.lock():
        if not len(repo) or log_file.tip(reading.file(repo)).id:
            return
        state = shared.of(repo)
        state.adopts = True
        try:
            with repo.transaction(b"pushlog"):
                pass
        finally:
            state.adopts = False


def accept(repo: Any) -> None:
    """Record changesets that came or went without a record, on behalf of the operator.

    Mirrors follow these records like all others.
    """
    path = reading.file(repo)
    with repo.lock():
        if not log_file.tip(path).id:
            _adopt(repo)
            return
        if foreign(repo) is None:
            return
        log = repo.changelog
        history = {
            log.node(number).hex(): tuple(
                log.node(parent).hex() for parent in log.parentrevs(number) if parent >= 0
            )
            for number in log
        }
        try:
            difference = unrecorded.difference(
                (entry.record for entry in log_file.entries(path)), history
            )
        except PushlogError as problem:
            raise error.Abort(encoding.strtolocal(str(problem))) from problem
        with given(repo, list(_accepted(repo, history, difference))), repo.transaction(b"pushlog"):
            pass
        # A removal that could not be completed is accepted, too.
        repo.svfs.tryunlink(removal.NAME.encode("ascii"))


def _accepted(
    repo: Any, history: dict[str, tuple[str, ...]], difference: unrecorded.Difference
) -> Iterator[tuple[str, Facts]]:
    """Yield a removal and a push that together lead from the log to the store."""
    kept = unrecorded.heads(history, history.keys() - set(difference.added))
    if difference.gone:
        yield "strip", facts.Facts(difference.gone, Heads(digest=Heads.digest_of(kept)))
    if difference.added:
        now = facts.heads(repo.changelog)
        moved = Heads(tuple(sorted(kept - now)), tuple(sorted(now - kept)), Heads.digest_of(now))
        names = {number: name.decode("ascii") for number, name in phases.phasenames.items()}
        yield (
            "push",
            facts.Facts(
                difference.added,
                moved,
                tuple(
                    (node, None, names[repo[bytes.fromhex(node)].phase()])
                    for node in difference.added
                ),
            ),
        )
