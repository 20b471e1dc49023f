"""log what clones and pulls over SSH cost, for those who plan clone bundles.

The web part logs each of its requests. Of an SSH session the system log has when it ended, which is
for people: it does not know a clone from a push. This extension appends one line to a file for each
request for changesets (``getbundle``) that a session answers, as the access log of the web part has
them; ``hgfleet bundles`` reads both::

  {"time": "2026-11-21T10:00:00Z", "repository": "team/x", "command": "getbundle",
   "changesets": true, "full": true, "duration": 2.05}

``full`` says that the client had nothing: a clone that no bundle took over. ``duration`` is the CPU
time of the answer in seconds, so a slow client does not look like an expensive one.

Nothing in a line is chosen by the client. A folder that is missing or full costs nobody a pull::

  [hgfleet]
  demand-log = /var/log/hgfleet/ssh/changesets.log
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from mercurial import registrar, wireprototypes, wireprotov1server

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"demand-log", default=None)
configitem(b"hgfleet", b"path", default=None)

_APPEND = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC


def extsetup(_ui: Any) -> None:
    """Wrap the command in core's table (7.2: `wireprotov1server.commands`)."""
    command = wireprotov1server.commands[b"getbundle"]
    command.func = _logged(command.func)


def _logged(original: Any) -> Any:
    def answer(repo: Any, proto: Any, others: dict[bytes, bytes], *more: Any) -> Any:
        file = repo.ui.config(b"hgfleet", b"demand-log")
        asks = others.get(b"cg", b"1") not in (b"0", b"")
        if not file or not asks or proto.name != wireprototypes.SSHV1:
            return original(repo, proto, others, *more)
        # Core takes the arguments out of the mapping.
        is_full = not any(node.strip(b"0") for node in others.get(b"common", b"").split())
        began = time.process_time()
        response = original(repo, proto, others, *more)

        def write() -> None:
            _append(
                file,
                time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                repository=(repo.ui.config(b"hgfleet", b"path") or b"").decode("utf-8", "replace"),
                command="getbundle",
                changesets=True,
                full=is_full,
                duration=round(time.process_time() - began, 3),
            )

        if isinstance(response, wireprototypes.streamres):
            response.gen = _then(response.gen, write)
        else:
            write()
        return response

    return answer


def _then(pieces: Iterable[bytes], write: Any) -> Iterator[bytes]:
    try:
        yield from pieces
    finally:
        # Also of a client that went away: what it got has been paid for.
        write()


def _append(file: bytes, **fields: object) -> None:
    line = json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
    try:
        descriptor = os.open(file, _APPEND, 0o640)
    except OSError:
        return
    try:
        # One write for a line: those of several sessions do not mix.
        os.write(descriptor, line)
    except OSError:
        pass
    finally:
        os.close(descriptor)
