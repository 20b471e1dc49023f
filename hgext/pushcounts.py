"""count pushes over SSH, how they end and how long they take, for metrics.

Each push (the request ``unbundle``) adds to the counters in a folder, from which ``hgfleet
metrics`` makes metrics. Extensions that refuse a push record the reason
(``hgfleet.hg.push_outcome``); the other reasons are found here:

================================  ============================================================
state                             counted as
================================  ============================================================
the push is in the repository     accepted, with the seconds from its last byte to the answer:
                                  the wait for the lock and for mirrors are among them
refused by an extension           its reason: ``access``, ``policies``, ``quota``, ``mirror``...
another push came first           ``raced``
the data is not a bundle, not   ``invalid``
complete or malformed
the session ends in the middle    ``limits``, ``malformed``, ``disconnected``, ``disk``,
                                  ``memory``
another push holds the lock for   ``locked``
too long
anything else                     ``error``
the process is killed             nothing
================================  ============================================================

No part of a count comes from the client. A missing or full folder never fails a push::

  [hgfleet]
  counters = /run/hgfleet-counters

Enable it for everything that runs on the server, after the extensions that refuse pushes::

  [extensions]
  pushcounts = /opt/hgfleet/current/hgext/pushcounts.py
"""

from __future__ import annotations

import errno
import os
import time
from typing import Any

from mercurial import error, exchange, extensions, registrar, wireprototypes, wireprotov1server

from hgfleet.hg import push_outcome
from hgfleet.hg.sessions.incoming import SessionEndError

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"counters", default=b"")


class _Push:
    """The push that this session makes at the moment."""

    seconds: float | None
    """The result of core's function, set if the push is in the repository."""
    problem: BaseException | None

    def begin(self) -> None:
        self.seconds = self.problem = None


_push = _Push()


def extsetup(_ui: Any) -> None:
    """Wrap the command in core's table, and the function that applies a push (7.2).

    Core turns most errors of that function into answers, so the command sees none of them.
    """
    command = wireprotov1server.commands[b"unbundle"]
    command.func = _counted(command.func)
    extensions.wrapfunction(exchange, "unbundle", _applied)


def _counted(original: Any) -> Any:
    def unbundle(repo: Any, proto: Any, *arguments: Any) -> Any:
        folder = repo.ui.config(b"hgfleet", b"counters")
        if not folder or proto.name != wireprototypes.SSHV1:
            return original(repo, proto, *arguments)
        _push.begin()
        push_outcome.take()
        try:
            return original(repo, proto, *arguments)
        except BaseException as problem:
            _push.problem = problem
            raise
        finally:
            noted = push_outcome.take()
            if _push.seconds is None:
                _add(repo.ui, folder, noted or reason_of(_push.problem), 0.0)
            else:
                _add(repo.ui, folder, None, _push.seconds)

    return unbundle


def _applied(original: Any, *arguments: Any, **named: Any) -> Any:
    """Apply a push, and keep how long it took, or why it failed."""
    began = time.monotonic()
    try:
        result = original(*arguments, **named)
    except BaseException as problem:
        _push.problem = problem
        raise
    _push.seconds = time.monotonic() - began
    return result


def reason_of(problem: BaseException | None) -> str:
    """Return the reason of a push that no extension has refused; None stands for core's answer."""
    if isinstance(problem, SessionEndError):
        return push_outcome.ENDS.get(problem.reason, "error")
    if isinstance(problem, MemoryError):
        return "memory"
    # A client that disconnects may end the session with a signal.
    if isinstance(problem, (ConnectionError, KeyboardInterrupt)):
        return "disconnected"
    if isinstance(problem, error.PushRaced):
        return "raced"
    if isinstance(problem, error.LockError):
        return "locked"
    if isinstance(problem, OSError) and problem.errno in (errno.ENOSPC, errno.EDQUOT):
        return "disk"
    if problem is None or isinstance(problem, (error.Abort, error.BundleValueError)):
        return "invalid"
    return "error"


def _add(ui: Any, folder: bytes, reason: str | None, seconds: float) -> None:
    from hgfleet.core import counters

    amounts = push_outcome.counts(reason, seconds)
    problem = counters.try_add(os.fsdecode(folder), push_outcome.FILE, amounts)
    if problem is not None:
        ui.log(b"pushcounts", b"not counted: %s\n", problem.encode("utf-8", "replace"))
