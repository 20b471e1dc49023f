"""A clone under admission: enters the queue, waits for a slot, is served, and leaves.

Each step is a line in the system log. `hgext/admission.py` has the manual.
"""

from __future__ import annotations

import os
import select
import syslog
import time
from typing import TYPE_CHECKING, Any, Final

from mercurial import encoding, error, wireprototypes

from hgfleet.admission import queue
from hgfleet.core import logfmt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from hgfleet.admission.queue import Position, QueuePlace

HINT: Final = b"nothing is lost; if it is urgent, ask the operators of this service"

SIGN_OF_LIFE_SECONDS: Final = 5.0
"""The time between two pieces of an answer that waits. Proxies give up after a minute or more, and
notice the end of the client's connection when they have something to send to it."""


class Clone:
    """An answer that needs a slot."""

    def __init__(self, repo: Any, proto: Any, changesets: int) -> None:
        self.repo, self.changesets = repo, changesets
        self.is_over_ssh = proto.name == wireprototypes.SSHV1
        self._began = time.monotonic()
        self._place: QueuePlace | None = None
        self._is_served = False
        self._poll: select.poll | None = None
        self._refusal: Callable[[], str] = str
        # The entry of the access log, where the cost of clones must not include the wait.
        self._entry: dict[str, object] = {}
        path = repo.ui.config(b"hgfleet", b"path") or b"-"
        self._path = path.decode("utf-8", "replace")
        request = getattr(proto, "_req", None)
        if request is None:
            self._client = encoding.environ.get(b"SSH_CONNECTION", b"").partition(b" ")[0]
            # hg keeps both ends open until it has the answer. When hg is killed, ssh closes its end
            # of stdin first.
            self._watch(getattr(proto, "_fout", None), 0)
            self._watch(getattr(proto, "_fin", None), select.POLLRDHUP)
        else:
            self._client = request.rawenv.get(b"REMOTE_ADDR", b"")
            self._watch(request.rawenv.get(b"hgfleet.connection"), select.POLLRDHUP)
            self._entry = request.rawenv.get(b"hgfleet.entry", {})
            # The worker counts the clones that take its threads.
            self._refusal = request.rawenv.get(b"hgfleet.clone", str)

    def _watch(self, connection: Any, more: int) -> None:
        try:
            descriptor = connection.fileno()
        except (AttributeError, OSError, ValueError):
            return
        self._poll = self._poll or select.poll()
        self._poll.register(descriptor, select.POLLERR | select.POLLHUP | more)

    def enter(self, folder: Path) -> None:
        """Take a place in the queue; raises BusyError, and OSError where there is no queue."""
        ui = self.repo.ui
        limits = queue.Limits(
            slots=ui.configint(b"hgfleet", b"admission-slots"),
            waiting=ui.configint(b"hgfleet", b"admission-waiting"),
            patience=ui.configint(b"hgfleet", b"admission-patience"),
            hold=ui.configint(b"hgfleet", b"admission-hold"),
        )
        self._limits = limits
        if sentence := self._refusal():
            raise queue.BusyError(sentence)
        client = self._client.decode("ascii", "replace")
        label = f"repository={self._path} client={client} pid={os.getpid()}"
        self._place = queue.enter(folder, limits, label)

    def ask(self) -> Position | None:
        """Ask for a slot; None: the clone has a slot."""
        assert self._place is not None
        try:
            at = self._place.ask()
        except OSError as problem:
            self.log("unlimited", detail=problem)
            return None
        if at is None:
            self._is_served = True
            self._entry["waited"] = round(time.monotonic() - self._began, 3)
            self.log("serve")
            self._place.hold(lambda: self.log("end", reason="hold"))
        return at

    def wait(self, at: Position | None) -> Iterator[bytes | None]:
        """Yield sentences for the client while the clone waits, None for a keepalive.

        Raises error.Abort after the longest wait, or when the client has disconnected.
        """
        if at is None:
            return
        self.log("wait", before=at.before)
        told, said = "", time.monotonic()
        while at is not None:
            now = time.monotonic()
            if now - self._began > self._limits.patience:
                sentence = queue.gave_up(at, self._limits)
                self.log("refuse", detail=sentence)
                raise error.Abort(encoding.strtolocal(sentence), hint=HINT)
            if str(at) != told or now - said > SIGN_OF_LIFE_SECONDS:
                yield encoding.strtolocal(str(at)) if str(at) != told else None
                told, said = str(at), now
            if self._has_gone(at.pause_seconds):
                self.log("gone")
                raise error.Abort(b"the client disconnected")
            at = self.ask()

    def _has_gone(self, seconds: float) -> bool:
        """Whether the client closes the connection within that time."""
        if self._poll is None:
            time.sleep(seconds)
            return False
        return bool(self._poll.poll(seconds * 1000))

    def leave(self, reason: str) -> None:
        """Give the slot and the place back; a second call does nothing."""

        def log_end() -> None:
            if self._is_served:
                self.log("end", reason=reason)

        if self._place is not None:
            self._place.leave(log_end)

    def answer(self, pieces: Iterator[bytes]) -> Answer:
        """Return the pieces of the answer, whose end gives the slot back."""
        return Answer(self, pieces)

    def log(self, decision: str, **fields: object) -> None:
        """Write a line to the system log, and to hg's."""
        line = logfmt.line(
            "admission",
            decision=decision,
            repository=self._path,
            client=self._client.decode("ascii", "replace") or None,
            protocol="ssh" if self.is_over_ssh else "https",
            changesets=self.changesets,
            **fields,
            seconds=time.monotonic() - self._began,
        )
        self.repo.ui.log(b"admission", b"%s\n", encoding.strtolocal(line))
        syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_INFO, line)


class Answer:
    """The pieces of an answer; its end, of any sort, gives the slot back.

    Not a generator: a generator that is dropped before its first piece runs no `finally`.
    """

    def __init__(self, clone: Clone, pieces: Iterator[bytes]) -> None:
        self._clone, self._pieces = clone, pieces

    def __iter__(self) -> Iterator[bytes]:
        return self

    def __next__(self) -> bytes:
        try:
            return next(self._pieces)
        except BaseException as problem:
            self._clone.leave("done" if isinstance(problem, StopIteration) else "failed")
            raise

    def __del__(self) -> None:
        self._clone.leave("away")
