"""Recent changes of a repository, from its push log and the index of the log."""

from __future__ import annotations

import sqlite3
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from hgfleet.core.errors import HgfleetError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.tables import Selection
from hgfleet.pushlog.view import View

if TYPE_CHECKING:
    from pathlib import Path


def count(repository: Path, since: datetime) -> int:
    """Count the pushes to a repository on this host; 0 where its push log cannot be read.

    An older log costs only a look at its time.
    """
    store = repository / ".hg/store"
    try:
        if (store / log_file.NAME).stat().st_mtime < since.timestamp():
            return 0
        with View(store, repository / ".hg/cache") as view:
            return view.count(Selection(from_time=int(since.timestamp() * 1000)))
    except (OSError, HgfleetError, sqlite3.Error):
        return 0


def removal(repository: Path, since: datetime) -> datetime | None:
    """Return the time of the last removal of changesets from a repository (`hg strip`), or None.

    Removals before `since` do not count. A push log that cannot be read shows no removal: then a
    bundle is withdrawn once its tip is missing in the repository.
    """
    store = repository / ".hg/store"
    from_time = int(since.timestamp() * 1000)
    try:
        if (store / log_file.NAME).stat().st_mtime < since.timestamp():
            return None
        with View(store, repository / ".hg/cache") as view:
            removals = view.newest(Selection(from_time=from_time, kinds=("strip",)), 1)
    except (OSError, HgfleetError, sqlite3.Error):
        return None
    return datetime.fromtimestamp(removals[0].time / 1000, UTC) if removals else None
