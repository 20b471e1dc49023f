"""tell the pusher which mirrors show a push.

After a push, when the repository is unlocked, the extension wakes the relay of this host and waits
for a short time until the mirrors show the push::

  remote: push 42 recorded; visible on 2/2 mirrors in 0.31 s; id 1f2e3d4c5b6a7988

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

The id is the session's id. ``hgfleet log ID`` shows operators the log lines of the session, the
relay and the mirrors; this extension writes the line ``event=push``. A write without a session,
by an operator on the host, has no id.

The push is recorded in the push log (:hg:`help -e pushlog`) and reaches every mirror in any case;
the extension never fails a push that has begun. A site may refuse pushes that would be on a single
host (``replication-require``): then the extension asks the relay before the data of a push is
read, and again when its transaction opens.

==============================  ==============================================================
``replication-require``         a push is refused
==============================  ==============================================================
``none``                        never
``broker``                      while the relay or the broker is down, or takes no pushes
``mirror``                      the same, and while no mirror is connected and up to date
==============================  ==============================================================

A relay or a broker that is being restarted is waited for, as long as for mirrors after a push.
Administrators (``HGFLEET_USER=operator:NAME``) may write nevertheless: they repair the host.
Commands of the self-service change no repository's content, and go on.

The extension is configured by::

  [hgfleet]
  path = team/tool
  # the relay's socket; without it the host has no replication
  relay = /run/hgfleet-relay/wake.sock
  # seconds for which a push waits for mirrors; 0: it wakes the relay and does not wait
  replication-wait = 5
  # the copy that has to be possible before a push begins: none, broker or mirror
  replication-require = none

Enable it for all processes that write on the server::

  [extensions]
  replicated = /opt/hgfleet/current/hgext/replicated.py
"""

from __future__ import annotations

import os
import syslog
from typing import Any

from mercurial import encoding, error, registrar

from hgfleet.core import logfmt, trace
from hgfleet.hg import early_refusal, required_copy
from hgfleet.hg.hooks import OPERATOR, refuse, text, writer

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"relay", default=b"")
configitem(b"hgfleet", b"replication-wait", default=b"5")
configitem(b"hgfleet", b"replication-require", default=b"none")

MAX_WAIT = 60.0
"""Seconds; the relay refuses more."""


def extsetup(_ui: Any) -> None:
    """Check each push before its data is read."""
    early_refusal.add(early_refusal.COPIES, refusal)


def refusal(ui: Any) -> early_refusal.Refusal | None:
    """Return why a push may not begin on this host now, None if it may."""
    required = text(ui.config(b"hgfleet", b"replication-require"))
    relay = ui.config(b"hgfleet", b"relay")
    if required == required_copy.NONE or OPERATOR.fullmatch(writer().name):
        return None
    answer = None
    if relay and required in required_copy.CHOICES:
        from hgfleet.hg import wake

        try:
            wait = _wait(ui)
        except error.ConfigError:
            # The operators require the copy; waiting for it is a courtesy.
            wait = 0.0
        answer = wake.ask(os.fsdecode(relay), required_copy.request(required), wait)
    sentence = required_copy.refusal(required, answer)
    return early_refusal.Refusal(sentence, "uncopied") if sentence else None


def check(ui: Any, **_news: object) -> None:
    """Refuse a transaction whose changes would only be on this host (a hook).

    A push may take long to arrive, and other commands (`pushkey`) bring no data.
    """
    if (refused := refusal(ui)) is not None:
        refuse(ui, refused.message, reason=refused.reason)


def reposetup(_ui: Any, repo: Any) -> None:
    """Check every transaction of a repository on this host's disk, before and after it."""
    if repo.local():
        # After the check of rights (`access`): others could learn facts about the service.
        repo.ui.setconfig(b"hooks", b"pretxnopen.replicated", check, b"replicated")
        repo.ui.setconfig(b"hooks", b"priority.pretxnopen.replicated", -100, b"replicated")
        # Core runs this hook after the release of the lock (7.2); last, because hooks that other
        # jobs of the host wait for come first.
        repo.ui.setconfig(b"hooks", b"txnclose.replicated", report, b"replicated")
        repo.ui.setconfig(b"hooks", b"priority.txnclose.replicated", -100, b"replicated")


def report(ui: Any, repo: Any, **_news: object) -> None:
    """Wake the relay and print its answer (a hook); never fails."""
    from hgfleet.pushlog import shared

    state = shared.of(repo)
    last = state.recorded
    if last is None:
        return
    # The next transaction may leave no record.
    state.recorded = None
    try:
        sentence = _sentence(ui, last.repository, last.id, last.hash)
    except Exception as problem:
        detail = encoding.strtolocal(f"{type(problem).__name__}: {problem}")
        ui.log(b"replicated", b"replication of a push is unknown: %s\n", detail)
        sentence = f"push {last.id} recorded"
    _log(ui, last.repository, last.id, sentence)
    session = trace.current()
    ui.status(encoding.strtolocal(f"{sentence}; id {session}" if session else sentence), b"\n")


def _log(ui: Any, repository: str, number: int, sentence: str) -> None:
    line = logfmt.line(
        "push",
        user=writer().name or None,
        repository=text(ui.config(b"hgfleet", b"path") or b"") or None,
        push=f"{repository}.{number}",
        detail=sentence,
    )
    ui.log(b"replicated", b"%s\n", encoding.strtolocal(line))
    # The identifier is the identifier of the program.
    syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_INFO, line)


def _sentence(ui: Any, repository: str, number: int, hash_: str) -> str:
    relay, path = ui.config(b"hgfleet", b"relay"), ui.config(b"hgfleet", b"path")
    if not (relay and path):
        return f"push {number} recorded"
    from hgfleet.hg import wake

    wait = _wait(ui)
    request = wake.push_request(text(path), repository, number, hash_, trace.current())
    return wake.sentence(number, wake.ask(os.fsdecode(relay), request, wait), wait)


def _wait(ui: Any) -> float:
    return min(MAX_WAIT, max(0.0, float(ui.configwith(float, b"hgfleet", b"replication-wait"))))
