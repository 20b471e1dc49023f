"""Client of hg's command server: many commands for a single start of the interpreter.

`hg version` takes 0.16 s, and a bundle of a small repository takes eight commands; a run over many
small repositories would spend most of its time on starts of Python. `hg serve --cmdserver pipe`
runs commands one after the other in a process that stays (hg help internals.commandserver; the
protocol has not changed since 1.9). Each command opens its repository afresh, so no stale state is
ever seen.

The protocol does not number its commands: if an object of a command writes late, the text is taken
for output of the next command. So a server is used again only if its last command succeeded, and if
it has written nothing since.
"""

from __future__ import annotations

import os
import select
import struct
import subprocess
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import HgfleetError
from hgfleet.hg import unconfigured

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from hgfleet.core.owner import Owner

MAX_ERROR: Final = 2000
"""Characters of hg's error that are repeated, from its end."""

COMMANDS_PER_SERVER: Final = 200
"""After so many commands a server ends, which bounds the memory that it never frees."""

UNCHANGED: Final = -1
"""The umask for `subprocess` that keeps the umask of this process."""

_HEADER: Final = struct.Struct(">cI")
_CODE: Final = struct.Struct(">i")


class HgError(HgfleetError):
    """A command of hg failed; the message repeats the error of hg."""


class _DiedError(Exception):
    """The server ended in the middle of a command."""


class _BrokenError(_DiedError):
    """The server sent a frame that does not belong there."""


class _Server:
    """A process `hg serve --cmdserver pipe`. Not for two threads at once."""

    def __init__(
        self, executable: Path, environment: dict[str, str], owner: Owner | None, umask: int
    ) -> None:
        self.commands = 0
        try:
            self._process = subprocess.Popen(
                [executable, "serve", "--cmdserver", "pipe"],
                env=environment,
                # Unbuffered, so that unread output stays in the pipe.
                bufsize=0,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
                cwd="/",
                umask=umask,
                user=owner.uid if owner else None,
                group=owner.gid if owner else None,
                extra_groups=[] if owner else None,
            )
        except OSError as error:
            raise HgError(f"{executable}: cannot run hg ({error.strerror})") from error
        try:
            self._frame()  # its greeting
        except _DiedError:
            self.close()
            raise HgError(
                f"{executable}: does not start as a command server "
                f"(exit code {self._process.returncode})"
            ) from None

    def _read(self, size: int) -> bytes:
        assert self._process.stdout is not None
        data = bytearray()
        while len(data) < size:
            piece = self._process.stdout.read(size - len(data))
            if not piece:
                raise _DiedError
            data += piece
        return bytes(data)

    def is_quiet(self) -> bool:
        """Whether the server is alive and has written nothing since its last command."""
        assert self._process.stdout is not None
        poll = select.poll()
        poll.register(self._process.stdout, select.POLLIN)
        return not poll.poll(0)

    def _frame(self) -> tuple[bytes, bytes]:
        channel, size = _HEADER.unpack(self._read(_HEADER.size))
        # A client may skip an unknown channel if its name is in lower case, but no other channel.
        if channel not in b"IL" and not channel.islower():
            raise _BrokenError(f"got a frame on the channel {channel!r}, which hg does not have")
        # On an input channel, the number is the size that the server would like to read.
        return channel, b"" if channel.isupper() else self._read(size)

    def run(self, arguments: Sequence[str]) -> tuple[int, str, str]:
        """Run a command; return its exit code, output and errors."""
        assert self._process.stdin is not None
        self.commands += 1
        argv = b"\0".join(os.fsencode(argument) for argument in arguments)
        said: dict[bytes, bytearray] = {b"o": bytearray(), b"e": bytearray()}
        try:
            self._send(b"runcommand\n" + struct.pack(">I", len(argv)) + argv)
            while True:
                channel, data = self._frame()
                if channel == b"r":
                    output, errors = (said[name].decode("utf-8", "replace") for name in said)
                    if len(data) != _CODE.size:
                        raise _BrokenError(f"got {data!r:.80} as an exit code")
                    return _CODE.unpack(data)[0], output, errors
                if channel in said:
                    said[channel] += data
                elif channel.isupper():
                    self._send(struct.pack(">I", 0))  # no input: end of file
        except BrokenPipeError as error:
            raise _DiedError from error

    def _send(self, data: bytes) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(data)
        self._process.stdin.flush()

    def close(self, *, kill: bool = False) -> int:
        """End the server and return its exit code."""
        if kill:
            self._process.kill()
        for stream in (self._process.stdin, self._process.stdout):
            if stream is not None:
                stream.close()
        return self._process.wait()


@dataclass
class Hg:
    """How to run hg: the executable and its HGRCPATH (configuration of no user, no repository).

    The settings in a repository are not read: its owner would choose code that runs with the
    rights of the caller.

    For any number of threads: as many servers run as there are commands at the same time. If the
    caller is root, the servers can run as the `owner` of the repositories, in no other group.
    """

    executable: Path
    hgrc: Path
    owner: Owner | None = None
    umask: int = UNCHANGED
    person: str = ""
    """The name of the user for hooks and logs of hg, as HGFLEET_USER; may be empty."""
    _idle: list[_Server] = field(default_factory=list, repr=False)
    _lock: threading.Lock = field(default_factory=threading.Lock, repr=False)

    def environment(self) -> dict[str, str]:
        """Return the environment of every hg that is started here."""
        names = ("PATH",) if self.owner else ("PATH", "TMPDIR", "HOME")
        kept = {name: os.environ[name] for name in names if name in os.environ}
        if self.person:
            kept["HGFLEET_USER"] = self.person
        return kept | unconfigured.VARIABLES | {"HGRCPATH": str(self.hgrc), "LC_ALL": "C.UTF-8"}

    def run(self, *arguments: str | Path) -> str:
        """Run hg to its end and return its output. Raises HgError with its error.

        Paths have to be absolute.
        """
        server = self._take() or _Server(
            self.executable, self.environment(), self.owner, self.umask
        )
        # A server that ran a command goes back to the idle servers only if the command succeeded. A
        # server that died has its exit code in the error. A server that broke the protocol may be
        # in the middle of anything, so it is killed.
        healthy = False
        try:
            code, output, errors = server.run(["--noninteractive", *map(str, arguments)])
            # A command that failed leaves objects behind, whose destructors may write.
            healthy = code == 0 and server.commands < COMMANDS_PER_SERVER
        except _BrokenError as error:
            server.close(kill=True)
            raise HgError(f"hg {arguments[0]} failed (its server is ended: {error})") from None
        except _DiedError:
            code = server.close()
            how = f"killed by signal {-code}" if code < 0 else f"exit code {code}"
            raise HgError(f"hg {arguments[0]} failed (its process ended: {how})") from None
        finally:
            if healthy:
                with self._lock:
                    self._idle.append(server)
            else:
                server.close()
        if code:
            said = (errors.strip() or output.strip())[-MAX_ERROR:]
            raise HgError(f"hg {arguments[0]} failed (exit code {code}): {said}")
        return output

    def _take(self) -> _Server | None:
        """Take an idle server; end idle servers that can no longer be used."""
        while True:
            with self._lock:
                server = self._idle.pop() if self._idle else None
            if server is None or server.is_quiet():
                return server
            server.close(kill=True)

    def close(self) -> None:
        """End the servers; the next command starts a new server."""
        with self._lock:
            idle, self._idle = self._idle, []
        for server in idle:
            server.close()
