"""The server of testing/support/prefork.py: imports core once, and forks for each command."""

from __future__ import annotations

import array
import atexit
import contextlib
import gc
import importlib
import os
import runpy
import selectors
import signal
import socket
import sys
import types
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NoReturn

# fmt: off
CORE: Final = (
    "bundle2", "changegroup", "commands", "context", "dispatch", "exchange", "hook", "localrepo",
    "logcmdutil", "merge", "sshpeer", "templatekw", "wireprotoserver", "wireprotov1server",
)
# fmt: on


@dataclass(frozen=True, slots=True)
class Request:
    """A command: what to run, and everything that its process gets."""

    umask: int
    folder: bytes
    kind: bytes
    words: list[bytes]
    environment: dict[bytes, bytes]
    streams: array.array[int]


def serve(listening: socket.socket, program: str) -> NoReturn:
    """Fork for each command, until the process is killed."""
    for name in CORE:
        importlib.import_module(f"mercurial.{name}")
    # A garbage collection in a command would write to all pages that it shares with the server.
    gc.collect()
    gc.freeze()
    commands: dict[int, tuple[int, socket.socket]] = {}
    with selectors.DefaultSelector() as events:
        events.register(listening, selectors.EVENT_READ)
        while True:
            for key, _ in events.select():
                if key.fileobj is listening:
                    _begin(events, commands, listening, program)
                elif key.data in commands:
                    _after(events, commands, key.data, has_ended=isinstance(key.fileobj, int))


def _begin(
    events: selectors.BaseSelector,
    commands: dict[int, tuple[int, socket.socket]],
    listening: socket.socket,
    program: str,
) -> None:
    connection, _ = listening.accept()
    try:
        request = receive(connection)
    except (EOFError, OSError):
        connection.close()
        return
    pid = os.fork()
    if pid == 0:
        events.close()
        for held in (listening, connection, *(other for _, other in commands.values())):
            held.close()
        for other, _ in commands.values():
            os.close(other)
        command(request, program)
    for stream in request.streams:
        os.close(stream)
    process = os.pidfd_open(pid)
    commands[pid] = process, connection
    events.register(process, selectors.EVENT_READ, pid)
    events.register(connection, selectors.EVENT_READ, pid)


def _after(
    events: selectors.BaseSelector,
    commands: dict[int, tuple[int, socket.socket]],
    pid: int,
    *,
    has_ended: bool,
) -> None:
    """Send the client the exit code of its command, or end the command if its client has ended."""
    process, connection = commands[pid]
    if not has_ended:
        events.unregister(connection)
        os.kill(pid, signal.SIGKILL)
        return
    del commands[pid]
    _, status = os.waitpid(pid, 0)
    events.unregister(process)
    os.close(process)
    with contextlib.suppress(KeyError):
        events.unregister(connection)
    with connection, contextlib.suppress(OSError):
        connection.sendall(b"%d" % os.waitstatus_to_exitcode(status))


def command(request: Request, program: str) -> NoReturn:
    """Run a command as its client would; ends the process."""
    code = 255
    try:
        for number, stream in enumerate(request.streams):
            os.dup2(stream, number)
            os.close(stream)
        os.umask(request.umask)
        os.chdir(request.folder)
        more = os.fsdecode(request.environment.get(b"PYTHONPATH", b""))
        sys.path[:0] = more.split(os.pathsep)
        os.environb.clear()
        os.environb.update(request.environment)
        run = run_hg if request.kind == b"hg" else run_python
        code = run(request.words, program)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(code)


def receive(connection: socket.socket) -> Request:
    """Read a request: umask, folder, arguments, environment, and the three standard streams."""
    streams = array.array("i")
    size = 3 * streams.itemsize
    head, rights, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(size))
    if not rights:
        raise EOFError("the client ended before its request")
    streams.frombytes(rights[0][2][:size])
    left = int.from_bytes(head, "big")
    data = b""
    while len(data) < left:
        piece = connection.recv(left - len(data))
        if not piece:
            for stream in streams:
                os.close(stream)
            raise EOFError("the client ended before its request did")
        data += piece
    umask, folder, kind, count, *rest = data.split(b"\0")
    pairs = (name.partition(b"=") for name in rest[int(count) :])
    environment = {name: value for name, _, value in pairs}
    return Request(int(umask), folder, kind, rest[: int(count)], environment, streams)


def run_hg(words: list[bytes], program: str) -> int:
    """Run hg in this process as its script would; return the exit code."""
    from mercurial import dispatch, pycompat
    from mercurial.utils import procutil

    core: Any = pycompat
    core.sysargv = [b"hg", *words]
    procutil._sethgexecutable(os.fsencode(program))
    try:
        dispatch.run()
    except SystemExit as end:
        return int(end.code or 0)
    return 0


def run_python(words: list[bytes], _program: str) -> int:
    """Run `-c CODE`, `-m MODULE` or a file with its arguments; return the exit code."""
    option, *arguments = map(os.fsdecode, words)
    name = ""
    if option in ("-c", "-m"):
        name, *arguments = arguments
    sys.argv[:] = [option, *arguments]
    status = 0
    try:
        if option == "-m":
            runpy.run_module(name, run_name="__main__", alter_sys=True)
        elif option != "-c":
            sys.path.insert(0, str(Path(option).absolute().parent))
            runpy.run_path(option, run_name="__main__")
        else:
            main = types.ModuleType("__main__")
            sys.modules["__main__"] = main
            exec(compile(name, "<string>", "exec"), main.__dict__)  # noqa: S102  (of a test)
    except SystemExit as end:
        if isinstance(end.code, str):
            sys.stderr.write(f"{end.code}\n")
        status = end.code if isinstance(end.code, int) else int(end.code is not None)
    except Exception:
        sys.excepthook(*sys.exc_info())
        status = 1
    atexit._run_exitfuncs()
    return status & 255


if __name__ == "__main__":
    for module in sys.argv[3:]:
        importlib.import_module(module)
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
