"""serve a few clones at a time, and let the others wait for their turn.

Most clones come from bundles and never get here. Where there is none (a new repository, every
endpoint down), the server makes the answer itself, which takes a core for as long as it lasts. This
extension counts what is costly, for all of a host together, and makes it wait beyond a number::

  [hgfleet]
  # the folder of the queue, writable for all that serve; empty or missing: nothing waits
  admission = /run/hgfleet-admission
  # clones that are served at the same time
  admission-slots = 2
  # clones that may wait, and for how long (seconds)
  admission-waiting = 50
  admission-patience = 300
  # for how long a clone holds its slot (seconds); it goes on after that
  admission-hold = 600
  # an answer with so many changesets counts, and a clone of so much
  admission-changesets = 1000
  admission-size = 20 MB

``hgfleet.admission.queue.is_costly`` decides which requests count: clones and pulls of very many
changesets, made by the server, and streams. A pull that is served from a file of
``.hg/pullbundles.manifest`` does not count. Ordinary pulls, pushes and pages never wait.

==============================  ==============================================================
state                           answer
==============================  ==============================================================
a slot is free, nobody waits    served
no slot is free                 waits; the client reads ``remote: waiting for a slot: ...``
too many wait, or too long      refused with a sentence; nothing is lost
the client goes away            leaves the queue within seconds, and gives its slot back
the server's process is killed  the same: locks are the kernel's
the queue cannot be used        served, and the operators have the reason in their log
==============================  ==============================================================

Over SSH a session waits before it answers. Over HTTPS the answer begins at once with a part of
bundle2 that the client prints, and something follows every few seconds, so no proxy on the way
takes the connection for dead. ``HGFLEET_WEB_CLONES`` in the environment of a web worker bounds the
clones that wait or are served in this one process, since each takes one of its threads.

Clients that are older than bundle2 streams (``stream_out``) wait without a word over HTTPS.

Each answer is one line of the system log (``event=admission``) and has the event
``admission`` (see :hg:`help -e blackbox`).

Enable it for everything that serves::

  [extensions]
  admission = /opt/hgfleet/current/hgext/admission.py
"""

from __future__ import annotations

import os
import select
import struct
import syslog
import threading
import time
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mercurial import (
    bundle2,
    encoding,
    error,
    exchange,
    extensions,
    registrar,
    wireprototypes,
    wireprotov1server,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.admission.queue import Position, QueuePlace

    Bundle = tuple[dict[bytes, Any], Iterator[bytes]]

testedwith = b"7.2"
minimumhgversion = b"7.2"

configtable: dict[bytes, Any] = {}
configitem = registrar.configitem(configtable)
configitem(b"hgfleet", b"admission", default=b"")
configitem(b"hgfleet", b"admission-slots", default=2)
configitem(b"hgfleet", b"admission-waiting", default=50)
configitem(b"hgfleet", b"admission-patience", default=300)
configitem(b"hgfleet", b"admission-hold", default=600)
configitem(b"hgfleet", b"admission-changesets", default=1000)
configitem(b"hgfleet", b"admission-size", default=b"20 MB")

HINT = b"nothing is lost; whoever needs it now asks the operators of this service"

SIGN_OF_LIFE_S = 5.0
"""Seconds between two pieces of an answer that waits: proxies give up after a minute or more, and
a proxy notices that its client has gone when it has something to send to it."""

PADDING = 256 * 1024
"""Bytes that follow what a waiting client should read now. Compression (blocks of 128 KB), the web
part, nginx (64 KB) and the client (8 KB) each keep some until more has come; bytes that cannot be
compressed push it through all of them."""

_HEAD = (b"HG20", struct.pack(">i", 0))
"""What every bundle2 without parameters begins with, in core's pieces (bundle20.getchunks, 7.2)."""

_asking: ContextVar[Any] = ContextVar("hgfleet_admission_asking", default=None)
_clones_lock = threading.Lock()
_clones = 0


def extsetup(_ui: Any) -> None:
    """Stand in front of whatever sends a repository.

    `exchange.getbundlechunks` is where core (wireprotov1server.getbundle, 7.2) makes the answer
    after it has looked for a pull bundle; the table of commands tells who asks.
    """
    commands = wireprotov1server.commands
    commands[b"getbundle"].func = _noting_who(commands[b"getbundle"].func)
    commands[b"stream_out"].func = _stream(commands[b"stream_out"].func)
    extensions.wrapfunction(exchange, "getbundlechunks", _getbundlechunks)
    for name in (b"changegroup", b"changegroupsubset"):
        # Clients before 2011 (1.9) pulled with these, past all of the above; over HTTPS they are
        # closed by the web part.
        commands[name].transports.discard(wireprototypes.SSHV1)


def _noting_who(original: Any) -> Any:
    def getbundle(repo: Any, proto: Any, *arguments: Any) -> Any:
        token = _asking.set(proto)
        try:
            return original(repo, proto, *arguments)
        finally:
            _asking.reset(token)

    return getbundle


def _getbundlechunks(
    original: Any, repo: Any, source: bytes, *arguments: Any, **options: Any
) -> Any:
    def answer() -> Bundle:
        made: Bundle = original(repo, source, *arguments, **options)
        return made

    proto = _asking.get()
    clone = None
    if proto is not None and source == b"serve":
        clone = _clone(repo, proto, _counts(repo, options))
    if clone is None:
        return answer()
    try:
        at = clone.ask()
        can_tell = exchange.bundle2requested(options.get("bundlecaps")) and not clone.is_over_ssh
        if at is not None and can_tell:
            prefers = {b"bundleversion": 2, b"prefercompressed": not options.get("stream")}
            return prefers, _Answer(clone, _answer_while_waiting(clone, at, answer))
        for told in clone.wait(at):
            if told is not None and clone.is_over_ssh:
                repo.ui.warn(b"%s\n" % told)
        info, chunks = answer()
    except BaseException:
        clone.leave("failed")
        raise
    return info, _Answer(clone, chunks)


def _stream(original: Any) -> Any:
    def stream_out(repo: Any, proto: Any, *arguments: Any) -> Any:
        changesets = len(repo)
        try:
            clone = _clone(repo, proto, (changesets, True))
        except error.Abort as refused:
            return wireprototypes.ooberror(b"%s (%s)\n" % (refused.message, refused.hint))
        response = original(repo, proto, *arguments)
        if clone is None:
            return response
        try:
            for told in clone.wait(clone.ask()):
                if told is not None and clone.is_over_ssh:
                    repo.ui.warn(b"%s\n" % told)
        except error.Abort as refused:
            clone.leave("refused")
            return wireprototypes.ooberror(b"%s (%s)\n" % (refused.message, refused.hint))
        except BaseException:
            clone.leave("failed")
            raise
        return wireprototypes.streamreslegacy(_Answer(clone, response.gen))

    return stream_out


def _answer_while_waiting(
    clone: _Clone, at: Position, answer: Callable[[], Bundle]
) -> Iterator[bytes]:
    """Make one bundle2 of what is told while the clone waits, and of the answer itself."""
    ui = clone.repo.ui
    parts = 0

    def part(kind: bytes, **more: Any) -> Iterator[bytes]:
        nonlocal parts
        made = bundle2.bundlepart(kind, **more)
        # Numbers of the answer's own parts begin with 0.
        parts += 1
        made.id = 2**31 + parts
        pieces: Iterator[bytes] = made.getchunks(ui=ui)
        return pieces

    yield from _HEAD
    try:
        for told in clone.wait(at):
            if told is not None:
                yield from part(b"output", data=told, mandatory=False)
            yield from part(b"hgfleet:padding", data=os.urandom(PADDING), mandatory=False)
        _info, chunks = answer()
        head = (next(chunks), next(chunks))
        if head != _HEAD:
            raise error.ProgrammingError(b"core begins a bundle2 in another way: %r" % (head,))
    except error.Abort as refused:
        # As core does (wireprotov1server.getbundle).
        hint = [(b"hint", refused.hint)] if refused.hint is not None else []
        yield from part(
            b"error:abort", mandatoryparams=[(b"message", refused.message)], advisoryparams=hint
        )
        yield struct.pack(">i", 0)
        return
    yield from chunks


def _counts(repo: Any, options: dict[str, Any]) -> tuple[int, bool]:
    """Return how many changesets an answer will have, and whether it is for a clone.

    What makes no sense is 0 changesets: core answers it, with its own words.
    """
    if options.get("stream"):
        return len(repo), True
    if not options.get("cg", True):
        return 0, False
    changelog = repo.changelog
    heads = options.get("heads") or changelog.heads()
    common = [node for node in options.get("common") or () if changelog.hasnode(node)]
    common = [node for node in common if node != repo.nullid]
    if not common and set(heads) == set(changelog.heads()):
        return len(changelog), True
    try:
        return len(changelog.findmissing(common or None, heads)), not common
    except error.LookupError:
        return 0, False


def _clone(repo: Any, proto: Any, counted: tuple[int, bool]) -> _Clone | None:
    """Begin to count this answer, if it counts; raises error.Abort if there is no room for it."""
    from hgfleet.admission import queue

    ui = repo.ui
    folder = ui.config(b"hgfleet", b"admission")
    changesets, is_clone = counted
    if not folder or not queue.is_costly(
        changesets,
        is_clone=is_clone,
        most_changesets=ui.configint(b"hgfleet", b"admission-changesets"),
        weighs_much=lambda: queue.weighs_more(
            Path(os.fsdecode(repo.svfs.base)), ui.configbytes(b"hgfleet", b"admission-size")
        ),
    ):
        return None
    clone = _Clone(repo, proto, changesets)
    try:
        clone.enter(Path(os.fsdecode(folder)))
    except queue.BusyError as busy:
        clone.log("refuse", detail=busy)
        raise error.Abort(b"%s" % encoding.strtolocal(str(busy)), hint=HINT) from busy
    except OSError as problem:
        # Better a host that is busy than one that serves nobody.
        clone.log("unlimited", detail=problem)
        return None
    return clone


class _Answer:
    """The pieces of an answer; at its end, whatever that is, the slot is given back.

    Not a generator: one that is dropped before its first piece never gets to its end.
    """

    def __init__(self, clone: _Clone, pieces: Iterator[bytes]) -> None:
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


class _Clone:
    """An answer that counts: it waits, is served, and ends; each is told to the log."""

    def __init__(self, repo: Any, proto: Any, changesets: int) -> None:
        self.repo, self.changesets = repo, changesets
        self.is_over_ssh = proto.name == wireprototypes.SSHV1
        self._began = time.monotonic()
        self._place: QueuePlace | None = None
        self._is_counted = self._is_served = False
        self._poll: select.poll | None = None
        # Of the log of requests: whoever reads there what clones cost must know what was waiting.
        self._entry: dict[str, object] = {}
        path = repo.ui.config(b"hgfleet", b"path") or b"-"
        self._path = path.decode("utf-8", "replace")
        request = getattr(proto, "_req", None)
        if request is None:
            self._client = encoding.environ.get(b"SSH_CONNECTION", b"").partition(b" ")[0]
            # hg keeps both ends open until it has the answer; of one that was killed, ssh closes
            # its end of stdin first.
            self._watch(getattr(proto, "_fout", None), 0)
            self._watch(getattr(proto, "_fin", None), select.POLLRDHUP)
        else:
            self._client = request.rawenv.get(b"REMOTE_ADDR", b"")
            self._watch(request.rawenv.get(b"hgfleet.connection"), select.POLLRDHUP)
            self._entry = request.rawenv.get(b"hgfleet.entry", {})

    def _watch(self, connection: Any, more: int) -> None:
        try:
            descriptor = connection.fileno()
        except (AttributeError, OSError, ValueError):
            return
        self._poll = self._poll or select.poll()
        self._poll.register(descriptor, select.POLLERR | select.POLLHUP | more)

    def enter(self, folder: Path) -> None:
        """Take a place in the queue; raises BusyError, and OSError where there is no queue."""
        from hgfleet.admission import queue

        ui = self.repo.ui
        limits = queue.Limits(
            slots=ui.configint(b"hgfleet", b"admission-slots"),
            waiting=ui.configint(b"hgfleet", b"admission-waiting"),
            patience=ui.configint(b"hgfleet", b"admission-patience"),
            hold=ui.configint(b"hgfleet", b"admission-hold"),
        )
        self._limits = limits
        most = encoding.environ.get(b"HGFLEET_WEB_CLONES", b"")
        if not self.is_over_ssh and most.isdigit() and not self._count(int(most)):
            raise queue.BusyError(
                f"{most.decode()} clones are being served or wait in this part of the server; "
                "try again in some minutes"
            )
        try:
            client = self._client.decode("ascii", "replace")
            who = f"repo={self._path} client={client} pid={os.getpid()}"
            self._place = queue.enter(folder, limits, who)
        except BaseException:
            self._uncount()
            raise

    def _count(self, most: int) -> bool:
        global _clones
        with _clones_lock:
            if _clones >= most:
                return False
            _clones += 1
            self._is_counted = True
            return True

    def _uncount(self) -> None:
        global _clones
        with _clones_lock:
            _clones -= self._is_counted
            self._is_counted = False

    def ask(self) -> Position | None:
        """Ask once for a slot; None: it has one."""
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
        """Yield what the client should read while it waits, None for a sign of life.

        Raises error.Abort when it has waited long enough, or when the client has gone.
        """
        from hgfleet.admission import queue

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
            if str(at) != told or now - said > SIGN_OF_LIFE_S:
                yield encoding.strtolocal(str(at)) if str(at) != told else None
                told, said = str(at), now
            if self._has_gone(at.pause):
                self.log("gone")
                raise error.Abort(b"nobody waits for this answer any more")
            at = self.ask()

    def _has_gone(self, seconds: float) -> bool:
        """Whether the client closes the connection within that time."""
        if self._poll is None:
            time.sleep(seconds)
            return False
        return bool(self._poll.poll(seconds * 1000))

    def leave(self, reason: str) -> None:
        """Give everything back; more than once is fine."""
        self._uncount()

        def tell() -> None:
            if self._is_served:
                self.log("end", reason=reason)

        if self._place is not None:
            self._place.leave(tell)

    def log(self, decision: str, **fields: object) -> None:
        """Tell the operators."""
        from hgfleet.core import logfmt

        line = logfmt.line(
            "admission",
            decision=decision,
            repo=self._path,
            client=self._client.decode("ascii", "replace") or None,
            protocol="ssh" if self.is_over_ssh else "https",
            changesets=self.changesets,
            **fields,
            seconds=time.monotonic() - self._began,
        )
        self.repo.ui.log(b"admission", b"%s\n", encoding.strtolocal(line))
        syslog.syslog(syslog.LOG_AUTHPRIV | syslog.LOG_INFO, line)
