"""The disk's confirmation of a record, before the client is told of it. Runs inside hg."""

from __future__ import annotations

from typing import Any, Final

from mercurial import error

from hgfleet.hg.hooks import refuse, text
from hgfleet.pushlog import shared
from hgfleet.pushlog.held_disk import Held

_CATEGORY: Final = b"pushlog"


def hold(repo: Any) -> Held | None:
    """Open the disk before a transaction writes, once for all transactions under the same lock.

    However the transactions end, the disk is closed when the lock is released. None if the host
    does not sync, or leaves the sync to the replication. Raises Abort.
    """
    ui, lock = repo.ui, repo.currentwlock() or repo.currentlock()
    state = shared.of(repo)
    # A mirror syncs once for many records, before it reports that it shows them.
    if lock is None or state.applied or not ui.configbool(b"hgfleet", b"durable"):
        return None
    held = state.held
    if held is None or not held.is_of(lock):
        try:
            held = Held(repo, lock)
        except OSError as problem:
            refuse(
                ui,
                f"{text(ui.config(b'hgfleet', b'path'))}: nothing was changed: its disk could not "
                "be opened",
                (f"operators: {problem.strerror}; see the runbook pushlog",),
                reason="disk",
            )
        state.held = held
        repo._afterlock(held.released)  # noqa: SLF001
    return held


def report_after(repo: Any, transaction: Any, recorded: shared.Recorded) -> None:
    """Report a transaction's record once it is committed and the disk has it.

    When the lock is released, core runs callbacks in their order: the sync first, then this, and
    then the hooks `txnclose` of the transaction, whose category comes later (7.2). The hooks of an
    earlier transaction under the same lock run before, and must not report this record.
    """
    held = hold(repo)
    is_committed: list[bool] = []

    def committed(_transaction: Any) -> None:
        is_committed.append(True)
        if held is not None:
            held.has_record = True

    def unlocked(_success: bool) -> None:
        if is_committed:
            if held is not None and held.problem is not None:
                _refuse(repo, recorded.id, held.problem)
            shared.of(repo).recorded = recorded

    transaction.addpostclose(_CATEGORY, committed)
    repo._afterlock(unlocked)  # noqa: SLF001


def _refuse(repo: Any, number: int, problem: OSError) -> None:
    path = text(repo.ui.config(b"hgfleet", b"path"))
    sentence = (
        f"push {number} to {path} is in the repository, and the disk has not confirmed it: it "
        "may be lost; tell the operators"
    )
    told = (f"operators: {problem.strerror}; see the runbook pushlog",)
    try:
        refuse(repo.ui, sentence, told, reason="disk")
    except error.Abort as refusal:
        # Core releases the lock after it has set this, which chooses the form of the reply.
        refusal.duringunbundle2 = True
        raise
