"""Number of recent pushes to a repository, from its push log and the index of that."""

from __future__ import annotations

import sqlite3
from typing import TYPE_CHECKING

from hgfleet.core.errors import HgfleetError
from hgfleet.pushlog import log_file
from hgfleet.pushlog.tables import Selection
from hgfleet.pushlog.view import View

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path


def count(repository: Path, since: datetime) -> int:
    """Count the pushes to a repository on this host; 0 where its push log cannot be read.

    A log that is older costs one look at its time.
    """
    store = repository / ".hg/store"
    try:
        if (store / log_file.NAME).stat().st_mtime < since.timestamp():
            return 0
        with View(store, repository / ".hg/cache") as view:
            return view.count(Selection(from_time=int(since.timestamp() * 1000)))
    except (OSError, HgfleetError, sqlite3.Error):
        return 0
