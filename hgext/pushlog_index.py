"""keep the index of the push log behind its log by no more than a few pushes.

Web workers answer questions about pushes from ``.hg/cache/pushlog.sqlite`` and the part of the log
after it (``hgfleet.pushlog.view``). They cannot write to repositories, so the sessions update the
index. When a transaction has closed and its lock is released, the extension compares two sizes. A
session that finds 16 KiB of the log uncovered updates the index; about one in thirty does.

==============================  ==============================================================
state                           result
==============================  ==============================================================
the index is close to the log   nothing
the index is due                updated
another session updates it      nothing
it cannot be written            nothing; ``hgfleet pushlog index`` names the reason
==============================  ==============================================================

Enable it for all processes that write on the server::

  [extensions]
  pushlog_index = /opt/hgfleet/current/hgext/pushlog_index.py
"""

from __future__ import annotations

import os
from typing import Any

from hgfleet.pushlog import index_step, log_file

testedwith = b"7.2"
minimumhgversion = b"7.2"


def reposetup(_ui: Any, repo: Any) -> None:
    """Check the log after every transaction of a repository on this host's disk."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"txnclose.pushlog_index", update, b"pushlog_index")


def update(ui: Any, repo: Any, **_news: object) -> None:
    """Update the index if it is due (a hook, after the release of the lock); never fails."""
    del ui
    log = os.fsdecode(repo.svfs.join(log_file.NAME.encode("ascii")))
    file = os.fsdecode(repo.cachevfs.join(index_step.NAME.encode("ascii")))
    if index_step.is_due(log, file):
        # The other sessions do not load SQLite.
        from hgfleet.pushlog import index

        index.refresh(log, file)
