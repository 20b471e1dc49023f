"""The renderers of one worker: lent to one request each, told apart by their last repository.

`Lease` stands in for an hgweb object: it is a WSGI application whose answer is computed in the
renderer's process.
"""

from __future__ import annotations

import array
import contextlib
import json
import os
import select
import socket
import threading
import time
import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.web import frames, renderer
from hgfleet.web.repositories import UnavailableRepositoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.web.budgets import Budget
    from hgfleet.web.repositories import Repositories

SILENCE_SECONDS: Final = 60.0
"""The longest time between two frames of a renderer. Its processor time is bounded elsewhere; a
renderer that is silent for longer waits for a disk."""


IDLE_SECONDS: Final = 60.0
"""An idle renderer ends after that: it holds memory, and the files of a store that an upgrade has
replaced."""


class RenderingError(Exception):
    """hgweb failed in a renderer; the message is for the operators."""

    def __init__(self, cause: str, *, is_about_arguments: bool) -> None:
        super().__init__(cause)
        self.is_about_arguments = is_about_arguments


class LimitError(Exception):
    """The renderer has ended before its answer was complete, most likely above its budget."""


class NoServerError(Exception):
    """The fork server has ended; this worker can start no renderer."""


@dataclass(eq=False, slots=True)
class _Process:
    channel: socket.socket
    pid: int
    path: str = ""
    idle_since: float = 0.0


class Renderers:
    """The pool of one worker. Safe in threads, made before there are any."""

    def __init__(self, repositories: Repositories) -> None:
        self._lock = threading.Lock()
        self._idle: list[_Process] = []
        self._control, self._pid = renderer.fork_server(repositories)
        self.is_alive = True
        self._end = weakref.finalize(self, _end, self._control, self._pid, os.getpid())

    def lend(
        self,
        path: str,
        limits: Budget,
        connection: Any = None,
        spent: Callable[[float], None] = lambda _: None,
    ) -> Lease:
        """Lend a renderer, preferably one that has the repository open; raises NoServerError.

        `connection` is the client's socket: the renderer is ended when the client disconnects.
        `spent` gets the seconds of processor time of the request.
        """
        with self._lock:
            fitting = [one for one in self._idle if one.path == path] or self._idle
            process = fitting[-1] if fitting else None
            if process is not None:
                self._idle.remove(process)
        return Lease(self, process or self.start(), path, limits, connection, spent)

    def start(self) -> _Process:
        """Have the fork server start a renderer; raises NoServerError."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SILENCE_SECONDS)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        try:
            with theirs:
                self._control.sendmsg([renderer.SPAWN], rights)
            _, payload = frames.receive(ours)
        except (OSError, frames.ClosedError) as problem:
            ours.close()
            self.check()
            raise NoServerError(f"no renderer has started: {problem}") from problem
        return _Process(ours, int(json.loads(payload)["pid"]))

    def check(self) -> bool:
        """Whether the fork server is alive."""
        if self.is_alive:
            poll = select.poll()
            poll.register(self._control, select.POLLHUP | select.POLLERR)
            self.is_alive = not poll.poll(0)
        return self.is_alive

    def kill(self, process: _Process) -> None:
        """Have the fork server end a renderer: it is the parent, so the id is no other's."""
        process.channel.close()
        with contextlib.suppress(OSError):
            self._control.send(renderer.KILL + str(process.pid).encode("ascii"))

    def take_back(self, process: _Process) -> None:
        """Keep a renderer for the next request."""
        process.idle_since = time.monotonic()
        with self._lock:
            self._idle.append(process)

    def end_idle(self) -> None:
        """End the renderers that have been idle for long."""
        earliest = time.monotonic() - IDLE_SECONDS
        with self._lock:
            ended = [one for one in self._idle if one.idle_since <= earliest]
            self._idle = [one for one in self._idle if one.idle_since > earliest]
        for process in ended:
            process.channel.close()

    def close(self) -> None:
        """End the fork server and the idle renderers."""
        with self._lock:
            idle, self._idle = self._idle, []
        for process in idle:
            process.channel.close()
        self._end()


def _end(control: socket.socket, pid: int, owner: int) -> None:
    control.close()
    # A fork of the owner has this object too, and other children.
    if os.getpid() == owner:
        with contextlib.suppress(ChildProcessError):
            os.waitpid(pid, 0)


class Lease:
    """A renderer on loan to one request, called as a WSGI application."""

    def __init__(
        self,
        pool: Renderers,
        process: _Process,
        path: str,
        limits: Budget,
        connection: Any,
        spent: Callable[[float], None],
    ) -> None:
        self._pool = pool
        self._process: _Process | None = process
        self._path = path
        self._limits = limits
        self._connection = connection
        self._spent = spent
        self._is_done = False

    def __call__(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterator[bytes]:
        """Answer a request; raises LimitError, RenderingError, UnavailableRepositoryError."""
        assert self._process is not None
        body = environ["wsgi.input"].getvalue().decode("latin-1")
        request = {
            "path": self._path,
            "environ": {name: value for name, value in environ.items() if isinstance(value, str)},
            "body": body,
            "cpu_seconds": self._limits.cpu_seconds,
            "memory_bytes": self._limits.memory_bytes,
        }
        try:
            frames.send_json(self._process.channel, frames.REQUEST, request)
        except frames.ClosedError:
            # It ended while it was idle; nothing of the request is lost.
            self._pool.kill(self._process)
            self._process = self._pool.start()
            frames.send_json(self._process.channel, frames.REQUEST, request)
        return self._pieces(respond)

    def _pieces(self, respond: Callable[..., Any]) -> Iterator[bytes]:
        write: Callable[[bytes], object] | None = None
        while True:
            kind, payload = self._receive()
            if kind == frames.PIECE:
                yield payload
            elif kind == frames.WRITTEN and write is not None:
                write(payload)
            elif kind == frames.HEAD:
                head = json.loads(payload)
                write = respond(head["status"], [(name, value) for name, value in head["headers"]])
            else:
                self._finish(json.loads(payload))
                return

    def _receive(self) -> tuple[bytes, bytes]:
        assert self._process is not None
        channel = self._process.channel
        poll = select.poll()
        poll.register(channel, select.POLLIN)
        with contextlib.suppress(AttributeError, OSError, ValueError):
            watched = select.POLLRDHUP | select.POLLHUP | select.POLLERR
            poll.register(self._connection.fileno(), watched)
        ready = poll.poll(SILENCE_SECONDS * 1000)
        if not ready:
            raise LimitError("the renderer said nothing for a minute")
        if channel.fileno() not in [number for number, _ in ready]:
            raise LimitError("the client disconnected")
        try:
            return frames.receive(channel)
        except frames.ClosedError as problem:
            # The kernel ended it at the end of its budget.
            self._spent(self._limits.cpu_seconds)
            raise LimitError(str(problem)) from problem

    def _finish(self, end: dict[str, Any]) -> None:
        self._is_done = not end["ends"]
        self._spent(float(end["cpu"]))
        kind, cause = end.get("kind"), str(end.get("cause", ""))
        if kind == "limit":
            raise LimitError(cause)
        if kind == "unavailable":
            raise UnavailableRepositoryError(cause)
        if kind is not None:
            raise RenderingError(cause, is_about_arguments=kind == "arguments")

    def hand_back(self) -> None:
        """Give the renderer back; one whose answer is not complete is ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._is_done:
            process.path = self._path
            self._pool.take_back(process)
        else:
            self._pool.kill(process)
