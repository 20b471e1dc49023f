"""log the cost of clones and pulls over SSH, as input for the plan of clone bundles.

The web part logs each of its requests. For an SSH session, the system log has only its end, which
does not tell a clone from a push. This extension appends a line to a file for each request for
changesets (``getbundle``) over SSH, in the format of the access log of the web part; ``hgfleet
bundles`` reads both::

  {"time": "2026-11-21T10:00:00Z", "repository": "team/x", "command": "getbundle",
   "changesets": true, "full": true, "bytes": 812345, "duration": 2.05}

``full`` marks a client without changesets: a clone without a clone bundle. ``duration`` is the CPU
time of the answer in seconds, so a slow client does not look like an expensive client.

No part of a line comes from the client. A missing or full folder never fails a pull::

  [hgfleet]
  demand-log = /var/log/hgfleet/ssh/changesets.log
"""

from __future__ import annotations

import json
import os
import time
from datetime import UTC, datetime
from typing import Any

from mercurial import registrar, wireprototypes, wireprotov1server

from hgfleet.hg import clone_counts

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
        # Core removes the arguments from the mapping.
        is_full = not clone_counts.has_changesets(others)
        began = time.process_time()
        response = original(repo, proto, others, *more)

        def write(size: int = 0) -> None:
            _append(
                file,
                time=datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z"),
                repository=(repo.ui.config(b"hgfleet", b"path") or b"").decode("utf-8", "replace"),
                command="getbundle",
                changesets=True,
                full=is_full,
                bytes=size,
                duration=round(time.process_time() - began, 3),
            )

        if isinstance(response, wireprototypes.streamres):
            # A client that disconnects has cost as much by then.
            response.gen = clone_counts.measured(response.gen, write)
        else:
            write()
        return response

    return answer


def _append(file: bytes, **fields: object) -> None:
    line = json.dumps(fields, separators=(",", ":")).encode("ascii") + b"\n"
    try:
        descriptor = os.open(file, _APPEND, 0o640)
    except OSError:
        return
    try:
        # A single write for each line: lines of several sessions do not mix.
        os.write(descriptor, line)
    except OSError:
        pass
    finally:
        os.close(descriptor)
