"""record each push in the push spool, for the bundle jobs of this host.

When a transaction that adds changesets or makes some public closes, the extension records the
repository in a spool (``hgfleet.hg.push_spool``), and systemd starts a run that decides whether
its bundles are stale. It costs the push the creation of an empty file, and never fails it.

==============================  ==============================================================
state                           result
==============================  ==============================================================
the registry gives it bundles   recorded
its bundles begin at a size     recorded if the store has that size, or bundles are published
it has no bundles               nothing
no spool                        nothing: this host has no bundle jobs
the spool cannot be written     nothing but a line in the system log; the timer of the bundle
                                jobs finds the push
==============================  ==============================================================

A repository has clone bundles if it has the link ``.hg/clonebundles.manifest``, and pull bundles if
it has the link ``.hg/pullbundles`` and is not small. ``hgfleet registry apply`` makes the links.
The name comes from the registry too, not from a client::

  [hgfleet]
  path = team/tool
  pushed = /var/lib/hgfleet/pushed
  # a repository with fewer changesets, and without clone bundles, is not recorded
  pushed-changesets = 1000
  # bytes of the store from which on it gets clone bundles; without it at any size
  bundles-from = 10485760

Enable it for all processes that write on the server::

  [extensions]
  bundle_trigger = /opt/hgfleet/current/hgext/bundle_trigger.py
"""

from __future__ import annotations

import os
import syslog
from typing import Any

from mercurial import encoding, registrar

from hgfleet.core import logfmt
from hgfleet.hg import push_spool
from hgfleet.hg.hooks import text
from hgfleet.hg.store_size import reaches

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pushed", default=b"")
configitem(b"hgfleet", b"pushed-changesets", default=1000)
configitem(b"hgfleet", b"bundles-from", default=0)

NEWS = frozenset({"node", "phases_moved", "new_obsmarkers"})
"""Arguments of core's hook after a transaction that changes the content of bundles (7.2)."""


def reposetup(_ui: Any, repo: Any) -> None:
    """Check every transaction of a repository on this host's disk, when it has closed."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"txnclose.bundle_trigger", record, b"bundle_trigger")


def record(ui: Any, repo: Any, **news: object) -> None:
    """Record the repository (a hook); never fails."""
    spool, path = ui.config(b"hgfleet", b"pushed"), ui.config(b"hgfleet", b"path")
    if not (spool and path and NEWS & news.keys() and _has_bundles(ui, repo)):
        return
    try:
        push_spool.mark(os.fsdecode(spool), text(path))
    except FileNotFoundError:
        pass
    except OSError as problem:
        line = logfmt.line("pushed", decision="fail", repository=text(path), detail=problem)
        ui.log(b"bundle_trigger", b"%s\n", encoding.strtolocal(line))
        syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_WARNING, line)


def _has_bundles(ui: Any, repo: Any) -> bool:
    """Whether the bundle jobs have work after a push."""
    if repo.vfs.islink(b"clonebundles.manifest"):
        least = ui.configbytes(b"hgfleet", b"bundles-from")
        # Published bundles may have become stale, or have to go.
        if repo.vfs.exists(b"clonebundles.manifest") or reaches(os.fsdecode(repo.spath), least):
            return True
    is_large = len(repo) >= ui.configint(b"hgfleet", b"pushed-changesets")
    return bool(is_large and repo.vfs.islink(b"pullbundles"))
