"""The renderers of one worker: lent to one request each, told apart by readers and repository.

`Lease` stands in for an hgweb object: it is a WSGI application whose answer is computed in the
renderer's process.

A renderer belongs to the readers of its first repository and answers about no repository of other
readers, so no process with a private repository in its memory answers others. It
is lent again after a whole answer only. The worker decides that by the frames that it got, since a
renderer reads hostile repositories.
"""

from __future__ import annotations

import array
import contextlib
import itertools
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
    from collections.abc import Callable, Hashable, Iterator

    from hgfleet.web.budgets import Budget
    from hgfleet.web.repositories import Repositories

SILENCE_SECONDS: Final = 60.0
"""The longest time between two frames of a renderer. Its processor time is bounded elsewhere; a
renderer that is silent for longer waits for a disk."""


IDLE_SECONDS: Final = 60.0
"""An idle renderer ends after that: it holds memory, and the files of a store that an upgrade has
replaced."""


class RenderingError(Exception):
    """hgweb failed in a renderer; the message is a line for the operators."""


class ArgumentsError(RenderingError):
    """hgweb failed in a renderer, most likely because of the request's arguments."""


class RefusedAnswerError(Exception):
    """A renderer refused to answer; the message is for the client."""


class LimitError(Exception):
    """The renderer has ended before its answer was complete, most likely above its budget."""


class DisconnectedError(LimitError):
    """The client disconnected before its answer was complete."""


class NoServerError(Exception):
    """The fork server has ended; this worker can start no renderer."""


@dataclass(eq=False, slots=True)
class _Process:
    channel: socket.socket
    pid: int
    readers: Hashable = None
    path: str = ""
    idle_since: float = 0.0

    def is_quiet(self) -> bool:
        """Whether the process is alive and has sent nothing since its last answer."""
        poll = select.poll()
        poll.register(self.channel, select.POLLIN)
        return not poll.poll(0)


class Renderers:
    """The pool of one worker. Safe in threads, made before there are any."""

    def __init__(self, repositories: Repositories, most: int) -> None:
        """Keep at most `most` processes, unless as many requests are under way."""
        self._lock = threading.Lock()
        # The one that has been idle for longest is the first.
        self._idle: list[_Process] = []
        self._lent = 0
        self._most = most
        self._numbers = itertools.count(1)
        self._control, self._pid = renderer.fork_server(repositories)
        self.is_alive = True
        self._end = weakref.finalize(self, _end, self._control, self._pid, os.getpid())

    def lend(
        self,
        path: str,
        readers: Hashable,
        limits: Budget,
        connection: Any = None,
        spent: Callable[[float], None] = lambda _: None,
    ) -> Lease:
        """Lend a renderer of these readers, preferably one that has the repository open.

        `connection` is the client's socket: the renderer is ended when the client disconnects.
        `spent` gets the seconds of processor time of the request. Raises NoServerError.
        """
        with self._lock:
            process, ended = self._take(path, readers)
            self._lent += 1
        try:
            for one in ended:
                self.kill(one)
            if process is None:
                process = self.start()
                process.readers = readers
        except BaseException:
            self._forget_one()
            raise
        return Lease(self, process, path, limits, connection, spent)

    def _take(self, path: str, readers: Hashable) -> tuple[_Process | None, list[_Process]]:
        """Take an idle process of these readers, and those to end: to make room, or of no use."""
        ended: list[_Process] = []
        fitting = [one for one in self._idle if one.readers == readers]
        # The last one is the best: it has the repository open, or has been idle for least.
        fitting.sort(key=lambda one: one.path == path)
        while fitting:
            process = fitting.pop()
            self._idle.remove(process)
            if process.is_quiet():
                return process, ended
            ended.append(process)
        while self._idle and len(self._idle) + self._lent >= self._most:
            ended.append(self._idle.pop(0))
        return None, ended

    def number(self) -> int:
        """Return a number for a request, which no other request of this worker has."""
        return next(self._numbers)

    def start(self) -> _Process:
        """Have the fork server start a renderer; raises NoServerError."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SILENCE_SECONDS)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        try:
            with theirs:
                self._control.sendmsg([renderer.SPAWN], rights)
            kind, _, payload = frames.receive(ours)
            return _Process(ours, frames.greeting(kind, payload))
        except (OSError, frames.ClosedError, frames.BrokenError) as problem:
            ours.close()
            self.check()
            raise NoServerError(f"no renderer has started: {problem}") from problem

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
        """Keep a lent renderer for the next request of its readers."""
        process.idle_since = time.monotonic()
        with self._lock:
            self._lent -= 1
            self._idle.append(process)

    def discard(self, process: _Process) -> None:
        """End a lent renderer."""
        self._forget_one()
        self.kill(process)

    def _forget_one(self) -> None:
        with self._lock:
            self._lent -= 1

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
        """Answer a request.

        Raises LimitError, RenderingError, RefusedAnswerError, UnavailableRepositoryError, and
        frames.BrokenError for a renderer that sends anything but an answer.
        """
        assert self._process is not None
        body = environ["wsgi.input"].getvalue().decode("latin-1")
        request = {
            "path": self._path,
            "environ": {name: value for name, value in environ.items() if isinstance(value, str)},
            "body": body,
            "cpu_seconds": self._limits.cpu_seconds,
            "memory_bytes": self._limits.memory_bytes,
        }
        number = self._pool.number()
        try:
            frames.send_json(self._process.channel, frames.REQUEST, number, request)
        except frames.ClosedError:
            # It ended while it was idle; nothing of the request is lost.
            readers = self._process.readers
            self._pool.kill(self._process)
            self._process = self._pool.start()
            self._process.readers = readers
            frames.send_json(self._process.channel, frames.REQUEST, number, request)
        return self._pieces(frames.Sequence(number), respond)

    def _pieces(self, order: frames.Sequence, respond: Callable[..., Any]) -> Iterator[bytes]:
        write: Callable[[bytes], object] | None = None
        while True:
            kind, payload = self._receive(order)
            if kind == frames.PIECE:
                yield payload
            elif kind == frames.WRITTEN:
                assert write is not None
                write(payload)
            elif kind == frames.HEAD:
                head = frames.head(payload)
                write = respond(head.status, head.headers)
            else:
                self._finish(frames.end(kind, payload))
                return

    def _receive(self, order: frames.Sequence) -> tuple[bytes, bytes]:
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
            raise DisconnectedError("the client disconnected")
        try:
            kind, number, payload = frames.receive(channel)
        except frames.ClosedError as problem:
            # The kernel ended it at the end of its budget.
            self._spent(self._limits.cpu_seconds)
            raise LimitError(str(problem)) from problem
        order.check(kind, number)
        return kind, payload

    def _finish(self, end: frames.End) -> None:
        # A failed request ends its renderer, also where the renderer says nothing of it.
        self._is_done = not end.ends and not end.kind
        self._spent(end.cpu)
        match end.kind:
            case "":
                return
            case "limit":
                raise LimitError(end.cause)
            case "unavailable":
                raise UnavailableRepositoryError(end.cause)
            case "refused":
                raise RefusedAnswerError(end.cause)
            case "arguments":
                raise ArgumentsError(end.cause)
            case _:
                raise RenderingError(end.cause)

    def hand_back(self) -> None:
        """Give the renderer back; one whose answer is not complete is ended."""
        process, self._process = self._process, None
        if process is None:
            return
        if self._is_done:
            process.path = self._path
            self._pool.take_back(process)
        else:
            self._pool.discard(process)
