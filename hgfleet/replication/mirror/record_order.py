"""Decision of a mirror about a record, given the end of its own push log. Pure."""

from __future__ import annotations

from enum import StrEnum
from typing import TYPE_CHECKING, NamedTuple

from hgfleet.pushlog import chain
from hgfleet.pushlog.record import hash_of

if TYPE_CHECKING:
    from hgfleet.pushlog.log_file import Tip
    from hgfleet.pushlog.record import Record


class Step(StrEnum):
    """The next step of a mirror."""

    SEEN = "seen"
    """The mirror shows the push."""
    APPLY = "apply"
    GAP = "gap"
    """Earlier records are missing; the source has them."""
    STALE = "stale"
    """A former primary made the record, and a promotion gave it up."""
    DIVERGED = "diverged"
    """The mirror has another history than the primary."""


class Decision(NamedTuple):
    """A step, and the reason for a divergence or for passing over a record."""

    step: Step
    reason: str = ""


def decide(tip: Tip, record: Record, line: bytes) -> Decision:
    """Decide about a record whose canonical line is `line`.

    `tip` is the end of this mirror's log. A record of another repository does not fit a log that
    has begun. A record of an earlier epoch that is not in this log was made by a former primary,
    and is passed over. A record with the number of the tip must have its hash. A record before the
    tip was seen, unless its epoch is later: then this mirror has pushes of a former primary. After
    the tip, only the next record can be applied, if it continues the chain; records between the tip
    and a later record come from the source first.
    """
    if tip.id and record.repository != tip.repository:
        return Decision(
            Step.DIVERGED,
            f"record {record.id} belongs to repository {record.repository}, this chain to "
            f"{tip.repository}",
        )
    if record.epoch < tip.epoch and _is_unknown(tip, record, line):
        # This mirror has the chain of the present primary, which stays as it is.
        return Decision(
            Step.STALE,
            f"record {record.id} has epoch {record.epoch}, and this chain is in epoch {tip.epoch}: "
            "a former primary made it",
        )
    if record.id == tip.id and hash_of(line) != tip.hash:
        return Decision(
            Step.DIVERGED,
            f"record {record.id} of the primary is {hash_of(line)[:12]}, this mirror's record "
            f"{record.id} is {tip.hash[:12]}",
        )
    if record.id <= tip.id:
        if record.epoch > tip.epoch:
            # Epochs never fall within a chain: another host had become the primary before.
            return Decision(
                Step.DIVERGED,
                f"record {record.id} of the primary has epoch {record.epoch}, and this mirror has "
                f"{tip.id} records up to epoch {tip.epoch}: pushes of a former primary",
            )
        return Decision(Step.SEEN)
    if record.id > tip.id + 1:
        return Decision(Step.GAP)
    wrong = chain.problem(tip, record)
    return Decision(Step.APPLY) if wrong is None else Decision(Step.DIVERGED, wrong)


def _is_unknown(tip: Tip, record: Record, line: bytes) -> bool:
    """Whether the end of the chain shows that a record is not in it."""
    return record.id > tip.id or (record.id == tip.id and hash_of(line) != tip.hash)
