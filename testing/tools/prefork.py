"""An `hg` that starts in a fifth of the time: each command is a fork of a process that has core.

    with prefork.running(folder) as program:
        subprocess.run([program, "log"])

`hg version` takes 0.16 s of CPU, nearly all of it imports of core; a story runs some 60 commands.
The server imports core once and forks for each command, as Mercurial's own `chg` does. A command
has the arguments, environment, working directory, umask and standard streams of its client, and
loads its configuration, its extensions and hgfleet as ever: they are not imported before the fork.

The client gets the exit code, and does not pass signals on: a test that kills a session starts the
real hg. An environment that core reads as it is imported (HGENCODING and the like) gets a real hg.
"""

from __future__ import annotations

import array
import contextlib
import importlib
import os
import socket
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

HG: Final = Path(sys.executable).with_name("hg")
TOP: Final = Path(__file__).resolve().parents[2]

READ_AT_IMPORT: Final = ("HGENCODING", "HGENCODINGMODE", "HGENCODINGAMBIGUOUS", "LC_ALL")
"""Variables whose value core, or Python, takes when it starts."""

# fmt: off
CORE: Final = (
    "bundle2", "changegroup", "commands", "context", "dispatch", "exchange", "hook", "localrepo",
    "logcmdutil", "merge", "sshpeer", "templatekw", "wireprotoserver", "wireprotov1server",
)
# fmt: on

CLIENT: Final = """\
#!{python} -IS
import _socket, array, os, struct, sys
if {initial!r} != {{name: os.environ.get(name) for name in {initial!r}}}:
    os.execv({hg!r}, [{hg!r}, *sys.argv[1:]])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({path!r})
umask = os.umask(0o022)
os.umask(umask)
words = [os.fsencode(word) for word in sys.argv[1:]]
names = [b"%s=%s" % pair for pair in os.environb.items()]
parts = [b"%d" % umask, os.getcwdb(), b"%d" % len(words), *words, *names]
data = b"\\0".join(parts)
streams = array.array("i", (0, 1, 2))
server.sendmsg([struct.pack(">I", len(data))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(data)
for stream in streams:
    os.close(stream)
sys.exit(int(server.recv(4) or b"255"))
"""


@contextlib.contextmanager
def running(folder: Path, environment: Mapping[str, str]) -> Iterator[Path]:
    """Start a server; yield the program that stands in for hg, `folder`/hg."""
    path = folder / "hg.socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        program = folder / "hg"
        initial = {name: environment.get(name) for name in READ_AT_IMPORT}
        program.write_text(
            CLIENT.format(python=sys.executable, path=str(path), hg=str(HG), initial=initial)
        )
        program.chmod(0o755)
        server = subprocess.Popen(
            [sys.executable, "-m", "testing.tools.prefork", str(listening.fileno()), str(program)],
            cwd=TOP,
            env={**environment, "PYTHONPATH": str(TOP)},
            pass_fds=[listening.fileno()],
            # Streams that cannot seek: core remembers that of them, also after a replacement.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield program
        finally:
            server.kill()
            server.communicate()


def serve(listening: socket.socket, program: str) -> NoReturn:
    """Fork for each command, for ever."""
    import_core()
    while True:
        connection, _ = listening.accept()
        if os.fork() == 0:
            listening.close()
            command(connection, program)
        connection.close()
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def import_core() -> None:
    """Import the parts of core that clones and pushes need, on both ends."""
    for name in CORE:
        importlib.import_module(f"mercurial.{name}")


def command(connection: socket.socket, program: str) -> NoReturn:
    """Run one command as its client would; ends the process."""
    code = 255
    try:
        umask, folder, words, environment, streams = receive(connection)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        os.umask(umask)
        os.chdir(folder)
        sys.path[:0] = os.fsdecode(environment.get(b"PYTHONPATH", b"")).split(os.pathsep)
        os.environb.clear()
        os.environb.update(environment)
        code = run(words, program)
        sys.stdout.flush()
        sys.stderr.flush()
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        with contextlib.suppress(OSError):
            connection.sendall(b"%d" % code)
        os._exit(code)


def receive(
    connection: socket.socket,
) -> tuple[int, bytes, list[bytes], dict[bytes, bytes], array.array[int]]:
    """Read a request: umask, folder, arguments, environment, and the three standard streams."""
    streams = array.array("i")
    size = 3 * streams.itemsize
    head, rights, _, _ = connection.recvmsg(4, socket.CMSG_SPACE(size))
    streams.frombytes(rights[0][2][:size])
    left = int.from_bytes(head, "big")
    data = b""
    while len(data) < left:
        piece = connection.recv(left - len(data))
        if not piece:
            raise EOFError("the client ended before its request did")
        data += piece
    umask, folder, count, *rest = data.split(b"\0")
    pairs = (name.partition(b"=") for name in rest[int(count) :])
    environment = {name: value for name, _, value in pairs}
    return int(umask), folder, rest[: int(count)], environment, streams


def run(words: list[bytes], program: str) -> int:
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


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])), sys.argv[2])
