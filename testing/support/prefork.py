"""An `hg` that starts five times as fast: each command is a fork of a process with core loaded.

    with prefork.running(folder, environment) as server:
        subprocess.run([server.program, "log"])
        subprocess.run([server.interpreter, "-m", "hgfleet", "--help"])
        server.hg(["log"], environment)
        server.python("import sys; sys.exit(3)", [], environment)

`hg version` takes 0.16 s of CPU, nearly all of it imports of core; a story runs some 60 commands.
The server imports core once and forks for each command, as Mercurial's own `chg` does. A command
has the arguments, environment, working directory, umask and standard streams of its client, and
loads its configuration, its extensions and hgfleet as usual: they are not imported before the fork,
except for the modules that a test names.

`program` stands in for hg wherever a path is needed. `hg` and `python` start no client, which
saves half of the time of a short command.

The client gets the exit code, or the signal that ended the command. When a client ends, its command
is killed, as by SIGKILL. Other signals are not passed on, so a test that sends them starts the real
hg. An environment that Python or core reads as it starts (HGENCODING and the like) gets a real hg.
"""

from __future__ import annotations

import array
import atexit
import contextlib
import functools
import os
import selectors
import socket
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

HG: Final = Path(sys.executable).with_name("hg")
TOP: Final = Path(__file__).resolve().parents[2]

READ_AT_START: Final = (
    *("HGENCODING", "HGENCODINGMODE", "HGENCODINGAMBIGUOUS", "LC_ALL", "TZ"),
    *("PYTHONPYCACHEPREFIX", "PYTHONUNBUFFERED"),
)
"""Variables whose value core, or Python, takes when it starts."""

CLIENT: Final = """\
#!{python} -IS
import _socket, array, os, struct, sys
if {initial!r} != {{name: os.environ.get(name) for name in {initial!r}}}:
    os.execv({real!r}, [{real!r}, *sys.argv[1:]])
server = _socket.socket(_socket.AF_UNIX, _socket.SOCK_STREAM)
server.connect({path!r})
umask = os.umask(0o022)
os.umask(umask)
words = [os.fsencode(word) for word in sys.argv[1:]]
names = [b"%s=%s" % pair for pair in os.environb.items()]
parts = [b"%d" % umask, os.getcwdb(), b"{kind}", b"%d" % len(words), *words, *names]
data = b"\\0".join(parts)
streams = array.array("i", (0, 1, 2))
server.sendmsg([struct.pack(">I", len(data))], [(_socket.SOL_SOCKET, _socket.SCM_RIGHTS, streams)])
server.sendall(data)
for stream in streams:
    os.close(stream)
code = int(server.recv(4) or b"255")
if code < 0:
    os.kill(os.getpid(), -code)
# The streams are closed, so nothing is left to do at exit.
os._exit(code)
"""


@dataclass(frozen=True, slots=True)
class Server:
    """A running server: `program` stands in for hg, `interpreter` for Python with -c or a file."""

    program: Path
    initial: Mapping[str, str | None]

    @property
    def interpreter(self) -> Path:
        """Return the program that stands in for `python -c CODE` and `python -m MODULE`."""
        return self.program.with_name("python")

    def hg(
        self,
        words: Sequence[object],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        given: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """Run hg with `given` on its stdin, to its end."""
        if not self.fits(environment):
            return _real([HG, *words], environment, cwd, given)
        return self._run(b"hg", words, environment, cwd, given)

    def python(
        self,
        code: str,
        arguments: Sequence[object],
        environment: Mapping[str, str],
        cwd: Path | None = None,
        given: bytes = b"",
    ) -> subprocess.CompletedProcess[bytes]:
        """Run `python -c code` to its end."""
        if not self.fits(environment):
            return _real([sys.executable, "-c", code, *arguments], environment, cwd, given)
        return self._run(b"python", ["-c", code, *arguments], environment, cwd, given)

    def fits(self, environment: Mapping[str, str]) -> bool:
        """Whether commands with this environment can be forks of this server."""
        return dict(self.initial) == read_at_start(environment)

    def _run(
        self,
        kind: bytes,
        words: Sequence[object],
        environment: Mapping[str, str],
        cwd: Path | None,
        given: bytes,
    ) -> subprocess.CompletedProcess[bytes]:
        arguments = [os.fsencode(str(word)) for word in words]
        names = [os.fsencode(f"{name}={value}") for name, value in environment.items()]
        parts = [_umask(), os.fsencode(cwd or Path.cwd()), kind, b"%d" % len(arguments)]
        data = b"\0".join([*parts, *arguments, *names])
        with contextlib.ExitStack() as stack:
            ends = [_pipe(stack) for _ in range(3)]
            (taken, stdin), (stdout, out), (stderr, err) = ends
            streams = array.array("i", (taken.fileno(), out.fileno(), err.fileno()))
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.connect(os.fspath(self.program.with_name("hg.socket")))
            rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, streams)]
            connection.sendmsg([len(data).to_bytes(4, "big")], rights)
            connection.sendall(data)
            for end in (taken, out, err):
                end.close()
            said = _communicate(stdin, given, (stdout, stderr))
            code = int(connection.recv(4) or b"255")
        return subprocess.CompletedProcess([kind, *map(str, words)], code, *said)


def read_at_start(environment: Mapping[str, str]) -> dict[str, str | None]:
    """Return the variables that a process reads only when it starts."""
    return {name: environment.get(name) for name in READ_AT_START}


def _real(
    command: Sequence[object], environment: Mapping[str, str], cwd: Path | None, given: bytes
) -> subprocess.CompletedProcess[bytes]:
    words = [str(word) for word in command]
    return subprocess.run(
        words, cwd=cwd, env=environment, input=given, capture_output=True, check=False
    )


def _umask() -> bytes:
    """Return the umask; os.umask would change it for the threads of a test."""
    (line,) = (
        text for text in Path("/proc/self/status").read_text().splitlines() if "Umask:" in text
    )
    return b"%d" % int(line.split()[1], 8)


def _pipe(stack: contextlib.ExitStack) -> tuple[Any, Any]:
    read, write = os.pipe()
    return (
        stack.enter_context(open(read, "rb", buffering=0)),  # noqa: PTH123  (a descriptor)
        stack.enter_context(open(write, "wb", buffering=0)),  # noqa: PTH123  (a descriptor)
    )


def _communicate(stdin: Any, given: bytes, outputs: Sequence[Any]) -> list[bytes]:
    """Write `given`, and read the outputs to their ends."""
    pieces: dict[Any, list[bytes]] = {output: [] for output in outputs}
    left = memoryview(given)
    with selectors.PollSelector() as events:
        for output in outputs:
            events.register(output, selectors.EVENT_READ)
        if given:
            os.set_blocking(stdin.fileno(), False)
            events.register(stdin, selectors.EVENT_WRITE)
        else:
            stdin.close()
        while events.get_map():
            for key, _ in events.select():
                if key.events == selectors.EVENT_WRITE:
                    try:
                        left = left[os.write(key.fd, left[:65_536]) :]
                    except BrokenPipeError:
                        left = left[:0]
                    if not left:
                        events.unregister(stdin)
                        stdin.close()
                elif piece := os.read(key.fd, 65_536):
                    pieces[key.fileobj].append(piece)
                else:
                    events.unregister(key.fileobj)
    return [b"".join(pieces[output]) for output in outputs]


@contextlib.contextmanager
def running(
    folder: Path, environment: Mapping[str, str], modules: Sequence[str] = ()
) -> Iterator[Server]:
    """Start a server, which imports these modules too; its program is `folder`/hg."""
    path = folder / "hg.socket"
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(path))
        listening.listen(64)
        initial = read_at_start(environment)
        for kind, real in (("hg", str(HG)), ("python", sys.executable)):
            client = {"kind": kind, "real": real, "initial": initial}
            text = CLIENT.format(python=sys.executable, path=str(path), **client)
            (folder / kind).write_text(text)
            (folder / kind).chmod(0o755)
        program = folder / "hg"
        command = [sys.executable, "-m", "testing.support.prefork_server", str(listening.fileno())]
        server = subprocess.Popen(
            [*command, str(program), *modules],
            cwd=TOP,
            env={**environment, "PYTHONPATH": str(TOP)},
            pass_fds=[listening.fileno()],
            # Streams that cannot seek: core remembers this even after it replaces a stream.
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        try:
            yield Server(program, initial)
        finally:
            server.kill()
            server.communicate()


def shared(environment: Mapping[str, str], modules: Sequence[str] = ()) -> Server:
    """Return a server for this environment that ends with this process."""
    return _shared(tuple(read_at_start(environment).items()), environment["PATH"], tuple(modules))


@functools.cache
def _shared(
    initial: tuple[tuple[str, str | None], ...], path: str, modules: tuple[str, ...]
) -> Server:
    stack = contextlib.ExitStack()
    atexit.register(stack.close)
    folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="hg-")))
    environment = {name: value for name, value in initial if value is not None}
    environment |= {"PATH": path, "HGRCPATH": os.devnull, "HGPLAIN": "1"}
    return stack.enter_context(running(folder, environment, modules))
