"""Refusals of a push before its data is read.

Core (wireprotov1server.unbundle, 7.2) writes all data of a client to a temporary file before it
opens a transaction. So the command is wrapped in core's table of commands. Extensions add checks
here, so that the order of the checks does not depend on the order of the extensions.
"""

from __future__ import annotations

import bisect
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, NamedTuple, NoReturn

from mercurial import encoding, wireprototypes, wireprotov1server

from hgfleet.hg import push_outcome
from hgfleet.hg.hooks import WriteRefusedError, refuse
from hgfleet.hg.sessions.client_stream import ClientStream

if TYPE_CHECKING:
    from collections.abc import Callable

    Check = Callable[[Any], "Refusal | None"]

RIGHTS: Final = 1
"""The check of whether the person may push.

It is first: others could reveal facts about the service.
"""

COPIES: Final = 2
"""The check of whether the push can be copied to other hosts."""


class Refusal(NamedTuple):
    """The sentence for the pusher, and the reason for metrics (`push_outcome.REASONS`)."""

    message: str
    reason: str


_checks: list[tuple[int, Check]] = []


def add(order: int, check: Check) -> None:
    """Add a check. It runs before the data of each push is read, with the repository's ui."""
    if not _checks:
        command = wireprotov1server.commands[b"unbundle"]
        command.func = _refusing(command.func)
    bisect.insort(_checks, (order, check), key=itemgetter(0))


def _refusing(original: Any) -> Any:
    def unbundle(repo: Any, proto: Any, *arguments: Any) -> Any:
        refusal = next((refused for _, check in _checks if (refused := check(repo.ui))), None)
        if refusal is None:
            return original(repo, proto, *arguments)
        push_outcome.record(refusal.reason)
        if proto.name != wireprototypes.SSHV1:
            return original(repo, _Refused(proto, repo.ui, refusal), *arguments)
        # A client over SSH waits for an empty answer before it sends its data. It prints any other
        # answer and gives up. If a client sends its data without waiting, that data must not be
        # taken for commands.
        stream = getattr(proto, "_fin", None)
        if isinstance(stream, ClientStream):
            stream.end()
        return wireprototypes.bytesresponse(encoding.strtolocal(refusal.message))

    return unbundle


class _Refused:
    """The protocol of a client over HTTP whose push is refused: its data is read and discarded.

    Such a client sends all of its data before it reads an answer.
    """

    def __init__(self, proto: Any, ui: Any, refusal: Refusal) -> None:
        self._proto = proto
        self._ui = ui
        self._refusal = refusal

    def __getattr__(self, name: str) -> Any:
        return getattr(self._proto, name)

    def getpayload(self) -> NoReturn:
        for _piece in self._proto.getpayload():
            pass
        try:
            refuse(self._ui, self._refusal.message, reason=self._refusal.reason)
        except WriteRefusedError as refusal:
            # The form that clients with bundle2 understand; all have it (server.bundle1 is off).
            refusal.duringunbundle2 = True
            raise
