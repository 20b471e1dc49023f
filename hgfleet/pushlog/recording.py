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
    repo: Any, transaction: Any, tip: Tip, found: Sequence[tuple[str, Facts]]
) -> tuple[list[bytes], Tip]:
    """Return the lines that a transaction of the primary appends, and the tip after them."""
    state = shared.of(repo)
    by = state.origin or writing.origin(
        {text(name): text(encoding.environ[name]) for name in encoding.environ}
    )
    made: list[bytes] = []
    last, now = tip, round(time.time() * 1000)
    if not tip.id:
        last = writing.beginning(opened_identity.of(repo))._replace(epoch=tip.epoch)
        before = transaction.changes[b"origrepolen"]
        if before or found[0][0] == "strip":
            digest = state.digest_before or facts.digest(repo.changelog, before)
            # A person's push adopts a repository by chance; an operator adopts it by intent.
            user = by.user if OPERATOR.fullmatch(by.user) else ""
            record = writing.adoption(last, digest, user, now)
            made.append(record.line())
            last = writing.after(last, record, made[-1])
            if before:
                # An adoption is told to the user whose push begins the log.
                repo.ui.status(
                    b"the push log begins: record 1 stands for the %d changesets from before\n"
                    % before
                )
    for kind, one in found:
        if not one.is_empty:
            record = writing.push(last, one, by, now, state.verdicts, kind)
            made.append(record.line())
            last = writing.after(last, record, made[-1])
    return made, last


def check(repo: Any) -> None:
    """Refuse a transaction of a repository whose store changed without a record."""
    if shared.applied_record(repo) or shared.of(repo).is_repair:
        # The replication compares the heads itself; the others are an operator's repair.
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
    """Return how the store left its log, None if the log goes on."""
    log = repo.changelog
    try:
        last = log_file.last(reading.file(repo))
    except PushlogError:
        # The record of the transaction cannot be appended: that is told then.
        return None
    from_start = repo.vfs.exists(log_file.FROM_START.encode("ascii"))
    return unrecorded.problem(last, facts.digest(log), changesets=len(log), from_start=from_start)


@contextlib.contextmanager
def given(
    repo: Any, found: Sequence[tuple[str, Facts]], by: writing.Origin | None = None
) -> Iterator[None]:
    """Have the next transaction record this, of this origin; the default is the session's."""
    state = shared.of(repo)
    state.given, state.origin = found, by
    try:
        yield
    finally:
        state.given, state.origin = (), None


def adopt(repo: Any) -> None:
    """Begin the log of a repository that is older than it, with the record of adoption.

    Operators run this for all repositories. The changesets of one that was made under the log are
    left to `accept`.
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
    """Record the changesets that came or went without a record, by the operator who says so.

    Mirrors follow these records as all others.
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
            found = unrecorded.difference((one.record for one in log_file.entries(path)), history)
        except PushlogError as problem:
            raise error.Abort(encoding.strtolocal(str(problem))) from problem
        with given(repo, list(_accepted(repo, history, found))), repo.transaction(b"pushlog"):
            pass
        # A removal that could not be completed is answered for, too.
        repo.svfs.tryunlink(removal.NAME.encode("ascii"))


def _accepted(
    repo: Any, history: dict[str, tuple[str, ...]], found: unrecorded.Difference
) -> Iterator[tuple[str, Facts]]:
    """Yield a removal and a push that lead from the log to the store."""
    kept = unrecorded.heads(history, history.keys() - set(found.added))
    if found.gone:
        yield "strip", facts.Facts(found.gone, Heads(digest=Heads.digest_of(kept)))
    if found.added:
        now = facts.heads(repo.changelog)
        moved = Heads(tuple(sorted(kept - now)), tuple(sorted(now - kept)), Heads.digest_of(now))
        names = {number: name.decode("ascii") for number, name in phases.phasenames.items()}
        yield (
            "push",
            facts.Facts(
                found.added,
                moved,
                tuple(
                    (node, None, names[repo[bytes.fromhex(node)].phase()]) for node in found.added
                ),
            ),
        )
