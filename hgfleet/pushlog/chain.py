"""Rules of a chain of records: which record may follow another record. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core.errors import PushlogError
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import FIRST

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from hgfleet.pushlog.log_file import Entry
    from hgfleet.pushlog.record import Record


def problem(tip: Tip, record: Record) -> str | None:
    """Return why a record cannot follow the end of a chain, None if it can."""
    if record.id != tip.id + 1:
        return f"record {record.id} follows record {tip.id}"
    if record.previous != tip.hash:
        return (
            f"record {record.id} continues {record.previous[:12]}, and record {tip.id} of this "
            f"chain is {tip.hash[:12]}"
        )
    if tip.id and record.repository != tip.repository:
        return (
            f"record {record.id} belongs to repository {record.repository}, this chain to "
            f"{tip.repository}"
        )
    if record.epoch < tip.epoch:
        return f"record {record.id} has epoch {record.epoch}, the record before it {tip.epoch}"
    return None


def checked(entries: Iterable[Entry]) -> Iterator[Entry]:
    """Pass on the entries of a whole file; raises PushlogError if an entry does not follow."""
    tip = Tip(hash=FIRST)
    for entry in entries:
        wrong = problem(tip, entry.record)
        if wrong is not None:
            raise PushlogError(f"the chain is broken at byte {entry.offset}: {wrong}")
        yield entry
        record = entry.record
        tip = Tip(record.id, entry.hash, record.repository, entry.end, record.epoch)
