"""tell the bundle jobs of this host what was pushed.

When a transaction closes that adds changesets or makes some public, the extension notes the
repository in a spool (``hgfleet.hg.push_spool``), and systemd starts a run that decides whether
its bundles are stale. It costs the push the creation of an empty file, and never fails it.

==============================  ==============================================================
state                           what happens
==============================  ==============================================================
the registry gives it bundles   noted
it has no bundles               nothing
no folder                       nothing: this host has no bundle jobs
the folder cannot be written    nothing, and the operators have a line in their log; the timer
                                of the jobs finds the push
==============================  ==============================================================

Whether a repository has bundles is told by the link ``.hg/clonebundles.manifest``, which ``hgfleet
registry apply`` makes. The name comes from the registry too, not from a client::

  [hgfleet]
  path = team/tool
  pushed = /var/lib/hgfleet/pushed

Enable it for everything that writes on the server::

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

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pushed", default=b"")

NEWS = frozenset({"node", "phases_moved", "new_obsmarkers"})
"""What core tells a hook after a transaction that changed what a bundle holds (localrepo, 7.2)."""


def reposetup(_ui: Any, repo: Any) -> None:
    """Look at every transaction of a repository on this host's disk, when it has closed."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"txnclose.bundle_trigger", note, b"bundle_trigger")


def note(ui: Any, repo: Any, **news: object) -> None:
    """Note the repository (a hook); never fails."""
    spool, path = ui.config(b"hgfleet", b"pushed"), ui.config(b"hgfleet", b"path")
    if not (spool and path and NEWS & news.keys() and repo.vfs.islink(b"clonebundles.manifest")):
        return
    try:
        push_spool.mark(os.fsdecode(spool), text(path))
    except FileNotFoundError:
        pass
    except OSError as problem:
        line = logfmt.line("pushed", decision="fail", repo=text(path), detail=problem)
        ui.log(b"bundle_trigger", b"%s\n", encoding.strtolocal(line))
        syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_WARNING, line)
