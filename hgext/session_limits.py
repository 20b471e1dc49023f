"""bound the time, memory, disk and number of SSH sessions of hg.

Core serves a session over SSH (``hg serve --stdio``) without any bound: it reads arguments of any
length into memory, stores a pushed bundle of any size in the temporary folder, waits for ever for
a silent client, and ends with a traceback if a request is malformed. With this extension a
session ends with a sentence instead::

  [hgfleet]
  # a folder on the disk of the repositories that only sessions can read, for slots and pushed
  # bundles; without it sessions are not counted, and bundles go to the temporary folder
  sessions = /srv/hg/repos/.sessions
  # sessions of a person at the same time
  sessions-person = 32
  # memory of a session (data segment, RLIMIT_DATA); 0: no limit
  session-memory = 2 GB
  # seconds without a request, and seconds without data inside of a request
  session-idle = 7200
  session-stall = 300
  # bytes of a push, of all pushes of a person that are under way, and left free on the disk
  push-size = 4 GB
  push-size-person = 8 GB
  push-disk-free = 2 GB

==============================  ==============================================================
state                           answer
==============================  ==============================================================
malformed request               a sentence with the value found and the value expected
phase or bookmark of a          a sentence with the changeset; the session goes on
changeset that is not here
argument or line too long       the same, before it is read
push too large, disk full       the bytes sent, the bytes allowed, the way out
disk full, while it is written  a sentence, without a path of the server
all slots of the person in use  the number, the way out
silent client                   the session ends
client disconnected             the session ends, and the log says ``disconnected``
==============================  ==============================================================

A pushed bundle is received completely before the repository is locked. The file is removed at the
end of the push; if the session was killed, the next push removes the file.

Administrators (``HGFLEET_USER=operator:NAME``) share slots of their own. Each early end has the
event ``session_limits`` (see :hg:`help -e blackbox`), and the access shell logs its reason.

Enable it for everything that runs on the server::

  [extensions]
  session_limits = /opt/hgfleet/current/hgext/session_limits.py
"""

from __future__ import annotations

import os
import resource
import traceback
from typing import TYPE_CHECKING, Any

from mercurial import encoding, error, extensions, registrar, wireprotoserver

from hgfleet.core import names
from hgfleet.hg import unknown_changesets
from hgfleet.hg.sessions import incoming, session_outcome, session_slots, session_start
from hgfleet.hg.sessions.client_stream import ClientStream
from hgfleet.hg.sessions.incoming import SessionEndError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"sessions", default=b"")
configitem(b"hgfleet", b"sessions-person", default=32)
configitem(b"hgfleet", b"session-memory", default=b"2 GB")
configitem(b"hgfleet", b"session-idle", default=7200)
configitem(b"hgfleet", b"session-stall", default=300)
configitem(b"hgfleet", b"push-size", default=b"4 GB")
configitem(b"hgfleet", b"push-size-person", default=b"8 GB")
configitem(b"hgfleet", b"push-disk-free", default=b"2 GB")

OPERATORS = "_operators"
"""The owner of slots of sessions without a person; no person has this name."""


def uisetup(_ui: Any) -> None:
    """Wrap the loop of a session, and where it reads and applies; core 7.2 has no hook there."""
    handler = wireprotoserver.sshv1protocolhandler
    extensions.wrapfunction(wireprotoserver, "_runsshserver", bounded)
    extensions.wrapfunction(handler, "getargs", getargs)
    extensions.wrapfunction(handler, "getpayload", getpayload)
    unknown_changesets.install()


class PushStream(ClientStream):
    """The stream of a client that may push, with the slot and the limits of its data."""

    answer: Any
    folder: str
    limits: incoming.SpoolLimits
    slot: session_slots.Slot | None = None


def bounded(
    original: Callable[..., None], ui: Any, repo: Any, fin: Any, fout: Any, *more: Any
) -> None:
    """Serve a session within its limits; raise error.Abort with the reason of an early end."""
    # Settings and extensions are read, and the repository is open.
    session_start.done()
    try:
        _limit_memory(ui.configbytes(b"hgfleet", b"session-memory"))
    except OSError as problem:
        # A system call filter may forbid it. A session without this limit is better than none.
        _record(ui, "unlimited", f"memory: {problem}")
    stream = PushStream(
        fin.fileno(),
        ui.configint(b"hgfleet", b"session-idle"),
        ui.configint(b"hgfleet", b"session-stall"),
    )
    stream.answer, stream.folder = fout, os.fsdecode(ui.config(b"hgfleet", b"sessions"))
    stream.limits = incoming.SpoolLimits(
        push=ui.configbytes(b"hgfleet", b"push-size"),
        person=ui.configbytes(b"hgfleet", b"push-size-person"),
        free=ui.configbytes(b"hgfleet", b"push-disk-free"),
    )
    # Core would store the data that `getpayload` has stored already a second time.
    ui.setconfig(b"server", b"streamunbundle", True, b"session_limits")
    repo.ui.setconfig(b"server", b"streamunbundle", True, b"session_limits")
    try:
        if stream.folder:
            stream.slot = _slot(ui, stream.folder)
        original(ui, repo, stream, fout, *more)
    except incoming.DisconnectedError as end:
        _record(ui, end.reason, stream.command)
    except SessionEndError as end:
        _record(ui, end.reason, f"{stream.command}: {end}")
        raise error.Abort(encoding.strtolocal(str(end))) from end
    except MemoryError as end:
        _record(ui, "memory", stream.command)
        raise error.Abort(_memory_sentence(ui)) from end
    except ConnectionError:
        # The answer had no reader; core ends quietly.
        _record(ui, "disconnected", stream.command)
        raise
    except error.Error:
        raise
    except Exception as problem:
        if isinstance(problem, error.LockError) and not incoming.full_disk(problem):
            raise
        raise error.Abort(_failed(ui, stream.command, problem)) from problem
    finally:
        if stream.slot is not None:
            stream.slot.leave()


def _failed(ui: Any, command: str, problem: Exception) -> bytes:
    """Log an error that has no sentence of core's, and return a sentence for the client.

    It is not known whether the error comes from the client's data or from a defect; the log has
    the place. Core would show the path in an OSError to the client.
    """
    if sentence := incoming.full_disk(problem):
        _record(ui, "disk", f"{command}: {problem}")
        return bytes(encoding.strtolocal(sentence))
    place = traceback.extract_tb(problem.__traceback__)[-1]
    where = f"{os.path.basename(place.filename)}:{place.lineno}"  # noqa: PTH119  (slow import)
    detail = f"{command}: {type(problem).__name__}: {problem} ({where})"
    _record(ui, "request-failed", detail)
    return bytes(encoding.strtolocal(incoming.unexpected(incoming.shown(command.encode())[1:-1])))


def _record(ui: Any, reason: str, detail: str) -> None:
    session_outcome.record(reason, detail)
    ui.log(b"session_limits", b"%s: %s\n", reason.encode(), encoding.strtolocal(detail))


def _limit_memory(most: int) -> None:
    """Bound the data segment: the kernel counts private memory, also where cgroups do not."""
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    if most and (hard == resource.RLIM_INFINITY or most < hard):
        resource.setrlimit(resource.RLIMIT_DATA, (most, most))


def _memory_sentence(ui: Any) -> bytes:
    most = incoming.size_text(ui.configbytes(b"hgfleet", b"session-memory"))
    return (
        b"this request needs more memory than the %s that a session may take; push or pull fewer "
        b"changesets at a time (--rev), or smaller files" % most.encode()
    )


def _slot(ui: Any, folder: str) -> session_slots.Slot | None:
    user = encoding.environ.get(b"HGFLEET_USER", b"").decode("ascii", "replace")
    person = user if names.is_person(user) else OPERATORS
    try:
        return session_slots.take(folder, person, ui.configint(b"hgfleet", b"sessions-person"))
    except OSError as problem:
        # A folder that cannot be used must not end every clone; for pushes see `getpayload`.
        _record(ui, "unlimited", str(problem))
        return None


def getargs(original: Any, proto: Any, spec: bytes) -> Any:
    """Read the arguments of a command, within their bounds."""
    stream = getattr(proto, "_fin", None)
    if not isinstance(stream, ClientStream):
        return original(proto, spec)
    keys = spec.split()
    arguments = incoming.read_arguments(keys, stream.line, stream.take)
    return [arguments[key] for key in keys]


def getpayload(original: Any, proto: Any) -> Iterator[bytes]:
    """Receive a pushed bundle completely, and then yield it."""
    stream = getattr(proto, "_fin", None)
    if not isinstance(stream, PushStream):
        yield from original(proto)
        return
    if stream.slot is None and stream.folder:
        raise SessionEndError(
            "spool",
            "this push cannot be received, because the folder for it is not in order; nothing was "
            "changed; tell the operators",
        )
    if sentence := session_slots.check_room(stream.slot, stream.limits):
        raise SessionEndError("spool", sentence)
    # The client sends its data after an empty answer.
    stream.answer.write(b"0\n")
    stream.answer.flush()
    pieces = (piece for size in incoming.chunks(stream.line) for piece in stream.pieces(size))
    with session_slots.received(stream.slot, pieces, stream.limits) as file:
        while piece := file.read(65536):
            yield piece
