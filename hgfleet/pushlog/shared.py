"""State of an opened repository that extensions and modules of hgfleet hand each other.

The push log, the policies, the hardening and the replication are extensions of their own, which see
the same repository and transaction. All that one of them leaves there for another is declared here.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.pushlog.facts import Facts
    from hgfleet.pushlog.held_disk import Held
    from hgfleet.pushlog.record import Record
    from hgfleet.pushlog.writing import Origin

_NAME = "hgfleet_shared"


class Recorded(NamedTuple):
    """The record of a transaction: the end of the log after it, in bytes, and its hash."""

    repository: str
    id: int
    end: int
    hash: str


@dataclass(slots=True)
class Shared:
    """The state of one repository, as long as the process has it open."""

    strips: bool = False
    """A removal of changesets is under way: its transactions leave no record."""

    completes: bool = False
    """The intent of a removal is the one of this process: transactions leave it alone."""

    applied: bytes | None = None
    """The line of the primary's log that a mirror applies; None in any other transaction."""

    adopts: bool = False
    """The next transaction records the adoption of a repository that is older than its log."""

    given: Sequence[tuple[str, Facts]] = ()
    """Kinds and facts that the next transaction records instead of its own."""

    origin: Origin | None = None
    """The origin of these; the session is, where there is none."""

    digest_before: str = ""
    """The digest of the heads before a removal, for the adoption that comes with its record."""

    verdicts: Mapping[str, str] = field(default_factory=dict)
    """The verdicts of the policies about the transaction, for its record."""

    recorded: Recorded | None = None
    """The record of the last transaction, on the disk, until the client is told."""

    held: Held | None = None
    """The disk, from the first transaction under a lock to the lock's release."""

    pushes: tuple[object, dict[str, Record]] | None = None
    """The push of each changeset, and the state of the log in which it was read."""

    @property
    def is_repair(self) -> bool:
        """Whether the transaction is an operator's repair, or the end of a killed removal."""
        return bool(self.strips or self.adopts or self.given)


def of(repo: Any) -> Shared:
    """Return the state of a repository; views of it (filtered ones) have the same."""
    plain = repo.unfiltered()
    state: Shared | None = getattr(plain, _NAME, None)
    if state is None:
        state = Shared()
        setattr(plain, _NAME, state)
    return state
