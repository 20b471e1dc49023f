"""The renderers of a worker: each lent to one request, chosen by readers and repository.

`Lease` stands in for an hgweb object: it is a WSGI application whose answer is computed in the
renderer's process.

A renderer belongs to the readers of its first repository and answers about no repository of other
readers, so no process with a private repository in its memory answers other readers. It is lent
again only after a whole answer. The worker decides that by the frames that it got, since a renderer
reads hostile repositories.
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
from typing import TYPE_CHECKING, Final

from hgfleet.web.engine import frames
from hgfleet.web.engine.places import place_of
from hgfleet.web.rendering import fork_server
from hgfleet.web.rendering.lease import SILENCE_SECONDS, Lease, Process

if TYPE_CHECKING:
    from collections.abc import Hashable

    from hgfleet.registry.model.registry import Repository
    from hgfleet.web.engine.opened_repositories import Repositories
    from hgfleet.web.rendering.lease import Terms

LEAVING_SECONDS: Final = 5.0
"""For how long the renderer of a broken-off data stream may log that, and give its slot back."""

IDLE_SECONDS: Final = 60.0
"""An idle renderer ends after that: it holds memory, and the files of a store that an upgrade has
replaced."""


class NoServerError(Exception):
    """The fork server has ended; this worker can start no renderer."""


def readers_of(repository: Repository) -> Hashable:
    """Return who may read a repository, in a form that is equal for the same readers."""
    if repository.is_public:
        return "public"
    return frozenset(repository.read), repository.owner


class Renderers:
    """The pool of a worker. Safe in threads; made before the first thread.

    Data streams have any number of renderers, since admission and the shares of addresses limit
    them; of their renderers, too, at most `most` wait for another request, and at most `most` whose
    client has left are still ending.
    """

    def __init__(self, repositories: Repositories, most: int) -> None:
        """Keep at most `most` processes, unless as many requests are under way."""
        self._lock = threading.Lock()
        # The process that has been idle for longest is the first.
        self._idle: list[Process] = []
        self._lent = 0
        self._streams: set[Lease] = set()
        self._leaving: list[Process] = []
        self._most = most
        self._numbers = itertools.count(1)
        self._control, self._pid = fork_server.fork_server(repositories)
        self.is_alive = True
        self._end = weakref.finalize(self, _end, self._control, self._pid, os.getpid())

    def lend(self, repository: Repository, terms: Terms) -> Lease:
        """Lend a renderer of a repository's readers, preferably with the repository open.

        Raises NoServerError.
        """
        path, readers = repository.path, readers_of(repository)
        lease = Lease(self, place_of(repository), terms)
        with self._lock:
            process, ended = self._take(path, readers, 0 if lease.is_stream else 1)
            if lease.is_stream:
                self._streams.add(lease)
            else:
                self._lent += 1
        try:
            for other in ended:
                self.kill(other)
            if process is None:
                process = self.start()
                process.readers = readers
        except BaseException:
            self._forget(lease)
            raise
        lease.process = process
        return lease

    def _take(
        self, path: str, readers: Hashable, more: int
    ) -> tuple[Process | None, list[Process]]:
        """Take an idle process of these readers; list those to end: dead, or to make room."""
        ended: list[Process] = []
        fitting = [idle for idle in self._idle if idle.readers == readers]
        # The last process is the best: it has the repository open, or has been idle for least.
        fitting.sort(key=lambda idle: idle.path == path)
        while fitting:
            process = fitting.pop()
            self._idle.remove(process)
            if process.is_quiet():
                return process, ended
            ended.append(process)
        while self._idle and len(self._idle) + self._lent + more > self._most:
            ended.append(self._idle.pop(0))
        return None, ended

    def number(self) -> int:
        """Return a number for a request, which no other request of this worker has."""
        return next(self._numbers)

    def start(self) -> Process:
        """Have the fork server start a renderer; raises NoServerError."""
        ours, theirs = socket.socketpair()
        ours.settimeout(SILENCE_SECONDS)
        rights = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array.array("i", [theirs.fileno()]))]
        try:
            with theirs:
                self._control.sendmsg([fork_server.SPAWN], rights)
            kind, _, payload = frames.receive(ours)
            return Process(ours, frames.greeting(kind, payload))
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

    def kill(self, process: Process) -> None:
        """Have the fork server end a renderer: it is the parent, so the id is no other's."""
        process.channel.close()
        with contextlib.suppress(OSError):
            self._control.send(fork_server.KILL + str(process.pid).encode("ascii"))

    def take_back(self, lease: Lease, process: Process) -> None:
        """Keep a lent renderer for the next request of its readers."""
        process.idle_since = time.monotonic()
        self._forget(lease)
        with self._lock:
            self._idle.append(process)
            ended = self._idle[: -self._most]
            del self._idle[: -self._most]
        for other in ended:
            self.kill(other)

    def discard(self, lease: Lease, process: Process) -> None:
        """End a lent renderer; after a data stream it ends itself, unless it takes too long."""
        self._forget(lease)
        if not lease.is_stream:
            self.kill(process)
            return
        process.channel.close()
        process.idle_since = time.monotonic()
        with self._lock:
            self._leaving.append(process)
            # Clients that leave at once, again and again, would have a process each until the next
            # look.
            late = self._leaving[: -self._most]
            del self._leaving[: -self._most]
        for other in late:
            self.kill(other)

    def _forget(self, lease: Lease) -> None:
        with self._lock:
            if lease.is_stream:
                self._streams.discard(lease)
            else:
                self._lent -= 1

    def end_idle(self) -> None:
        """End the renderers and data streams that have been idle, or under way, for too long."""
        now = time.monotonic()
        with self._lock:
            idle = [other for other in self._idle if other.idle_since <= now - IDLE_SECONDS]
            self._idle = [other for other in self._idle if other not in idle]
            late = [other for other in self._leaving if other.idle_since <= now - LEAVING_SECONDS]
            self._leaving = [other for other in self._leaving if other not in late]
            overdue = [lease for lease in self._streams if lease.end < now]
        for process in idle:
            process.channel.close()
        for process in late:
            self.kill(process)
        for lease in overdue:
            lease.disconnect()

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
