"""tell the bundle jobs of this host what was pushed.

When a transaction has closed that brought changesets, or made some public, the repository is noted
in a folder (see ``hgfleet.pushed``), and systemd starts a run that looks whether its bundles should
be made anew. It costs the push the creation of an empty file, and never fails it.

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
  hgfleet_pushed = /opt/hgfleet/current/hgext/pushed.py
"""

from __future__ import annotations

import os
import syslog
from typing import Any

from mercurial import encoding, registrar

from hgfleet import events, pushed
from hgfleet.hghooks import text

testedwith = b"7.2"
minimumhgversion = b"7.2"
buglink = b"the issue tracker of hgfleet"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"pushed", default=b"")

NEWS = frozenset({"node", "phases_moved", "new_obsmarkers"})
"""What core tells a hook after a transaction that changed what a bundle holds (localrepo, 7.2)."""


def reposetup(_ui: Any, repo: Any) -> None:
    """Look at every transaction of a repository on this host's disk, when it has closed."""
    if repo.local():
        repo.ui.setconfig(b"hooks", b"txnclose.hgfleet_pushed", note, b"hgfleet_pushed")


def note(ui: Any, repo: Any, **news: object) -> None:
    """Note the repository (a hook); never fails."""
    spool, path = ui.config(b"hgfleet", b"pushed"), ui.config(b"hgfleet", b"path")
    if not (spool and path and NEWS & news.keys() and repo.vfs.islink(b"clonebundles.manifest")):
        return
    try:
        pushed.mark(os.fsdecode(spool), text(path))
    except FileNotFoundError:
        pass
    except OSError as problem:
        line = events.line("pushed", decision="fail", repo=text(path), detail=problem)
        ui.log(b"hgfleet_pushed", b"%s\n", encoding.strtolocal(line))
        syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_WARNING, line)
