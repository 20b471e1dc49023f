"""tell the pusher which mirrors show a push.

After a push, when the repository is unlocked, the extension wakes the relay of this host and waits
for a short time until the mirrors show the push::

  remote: push 42 recorded; visible on 2/2 mirrors in 0.31 s

==============================  ==============================================================
state                           the pusher reads
==============================  ==============================================================
all mirrors show the push       ``visible on 2/2 mirrors in 0.31 s``
a live mirror is slow           ``hgweb2 does not show it yet (waited 5 s); visible on 1/2
                                mirrors``
a mirror is down                ``visible on 1/2 mirrors in 0.20 s; hgweb2 is down``
the relay or the broker is      ``replication is down, mirrors will show it later``
down
a host without replication      ``push 42 recorded``
==============================  ==============================================================

The push is recorded in the push log (:hg:`help -e pushlog`) and reaches every mirror in any case;
the extension never fails a push. It is configured by::

  [hgfleet]
  path = team/tool
  # the relay's socket; without it the host has no replication
  relay = /run/hgfleet-relay/wake.sock
  # seconds for which a push waits for mirrors; 0: it wakes the relay and does not wait
  replication-wait = 5

Enable it for all processes that write on the server::

  [extensions]
  replicated = /opt/hgfleet/current/hgext/replicated.py
"""

from __future__ import annotations

import os
from typing import Any

from mercurial import encoding, registrar

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"relay", default=b"")
configitem(b"hgfleet", b"replication-wait", default=b"5")

MAX_WAIT = 60.0
"""Seconds; the relay refuses more."""


def reposetup(_ui: Any, repo: Any) -> None:
    """Look at every transaction of a repository on this host's disk, when it is unlocked."""
    if repo.local():
        # Core runs this hook after the release of the lock (7.2); last, because hooks that other
        # jobs of the host wait for come first.
        repo.ui.setconfig(b"hooks", b"txnclose.replicated", tell, b"replicated")
        repo.ui.setconfig(b"hooks", b"priority.txnclose.replicated", -100, b"replicated")


def tell(ui: Any, repo: Any, **_news: object) -> None:
    """Wake the relay and print its answer (a hook); never fails."""
    plain = repo.unfiltered()
    last = getattr(plain, "_pushlog_last", None)
    if last is None:
        return
    # The next transaction may leave no record.
    plain._pushlog_last = None  # noqa: SLF001
    try:
        sentence = _sentence(ui, last[0], last[1])
    except Exception as problem:
        detail = encoding.strtolocal(f"{type(problem).__name__}: {problem}")
        ui.log(b"replicated", b"replication of a push is unknown: %s\n", detail)
        sentence = f"push {last[1]} recorded"
    ui.status(encoding.strtolocal(sentence), b"\n")


def _sentence(ui: Any, identity: Any, number: int) -> str:
    relay, path = ui.config(b"hgfleet", b"relay"), ui.config(b"hgfleet", b"path")
    if not (relay and path):
        return f"push {number} recorded"
    from hgfleet.hg import wake
    from hgfleet.hg.hooks import text

    wait = min(MAX_WAIT, max(0.0, float(ui.config(b"hgfleet", b"replication-wait"))))
    repository = identity.decode("ascii") if isinstance(identity, bytes) else identity
    request = wake.push_request(text(path), repository, number)
    return wake.sentence(number, wake.ask(os.fsdecode(relay), request, wait), wait)
