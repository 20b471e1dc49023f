"""The push log of an opened repository of hg, for commands. Only extensions import this module."""

from __future__ import annotations

import os
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from mercurial import dagop, error
from mercurial.utils import dateutil, stringutil

from hgfleet.core.errors import HgfleetError, UsageError
from hgfleet.pushlog import coverage, log_file, query, removal, shared
from hgfleet.pushlog.record import Heads

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.pushlog.query import Query
    from hgfleet.pushlog.record import Record


def file(repo: Any) -> str:
    """Return the path of the log."""
    return os.fsdecode(repo.sjoin(os.fsencode(log_file.NAME)))


def conditions(user: bytes | None, date: bytes | None, ids: bytes | None) -> Query:
    """Parse conditions as a person writes them. Raises Abort."""
    fits_user = None
    if user:
        matcher = stringutil.stringmatcher(user)[2]

        def fits_user(name: str) -> bool:
            return bool(matcher(name.encode()))

    try:
        numbers = query.ids(ids.decode("ascii", "replace")) if ids else None
    except UsageError as problem:
        raise error.Abort(str(problem).encode()) from problem
    return query.Query(fits_user, dateutil.matchdate(date) if date else None, numbers)


def last(repo: Any, wanted: Query, limit: int | None) -> Iterator[Record]:
    """Return the records that match, the newest first; `limit` is their greatest number."""
    matching = (entry.record for entry in log_file.entries(file(repo)) if wanted.fits(entry.record))
    return reversed(deque(matching, limit))


def pushes_of(repo: Any) -> dict[str, Record]:
    """Return the push of each changeset by its node; read again when the file has changed."""
    repo = repo.unfiltered()
    try:
        status = os.stat(file(repo))  # noqa: PTH116
    except FileNotFoundError:
        return {}
    seen = (status.st_size, status.st_mtime_ns, status.st_ino)
    state = shared.of(repo)
    kept = state.pushes
    if kept is None or kept[0] != seen:
        records = (entry.record for entry in log_file.entries(file(repo)))
        kept = state.pushes = (seen, query.pushes_of(records))
    return kept[1]


def problems(repo: Any) -> Iterator[str]:
    """Verify the log; yield a sentence for each problem. Pushes may go on during the check."""
    repo = repo.unfiltered()
    path = file(repo)
    try:
        with repo.lock():
            repo.invalidate()
            end, log = log_file.tip(path).end, repo.changelog
            size = os.path.getsize(path) if end else 0  # noqa: PTH202
    except HgfleetError as problem:
        yield str(problem)
        return
    if repo.svfs.exists(removal.NAME.encode("ascii")):
        yield "a removal of changesets was interrupted and is not complete (journal: recovery)"
    if size > end:
        yield f"{size - end} bytes of an incomplete record follow; the next push replaces them"

    def digest_of(nodes: frozenset[str]) -> str:
        numbers = {log.rev(bytes.fromhex(node)) for node in nodes}
        heads = dagop.headrevs(numbers, log.parentrevs)
        return Heads.digest_of(log.node(number).hex() for number in heads)

    contents = coverage.Contents(frozenset(log.node(number).hex() for number in log), digest_of)
    entries = takewhile(lambda entry: entry.end <= end, log_file.entries(path))
    yield from coverage.problems(entries, contents)
