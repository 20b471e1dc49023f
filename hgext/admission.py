"""serve a few clones at a time, and let the others wait for a slot.

Most clones come from clone bundles and never get here. Without a bundle (a new repository, every
endpoint down) the server computes the answer itself, which takes a core for as long as it lasts.
This extension limits the number of such answers, for all processes of a host together::

  [hgfleet]
  # the folder of the queue, writable for all servers of hg; empty or missing: no limit
  admission = /run/hgfleet-admission
  # clones that are served at the same time
  admission-slots = 2
  # clones that may wait, and for how long (seconds)
  admission-waiting = 50
  admission-patience = 300
  # for how long a clone holds its slot (seconds); it goes on after that
  admission-hold = 600
  # an answer with so many changesets needs a slot, and a clone or large part of so much
  admission-changesets = 1000
  admission-size = 20 MB

``hgfleet.admission.queue.is_costly`` decides which answers need a slot: clones and pulls of very
many changesets that the server computes, and streams. Of a pull from pull bundles on disk, only the
changesets that no bundle has are counted. Ordinary pulls, pushes and pages never wait.

==============================  ==============================================================
state                           answer
==============================  ==============================================================
a slot is free, no clone waits  served
no slot is free                 waits; the client reads ``remote: waiting for a slot: ...``
too many wait, or too long      refused with a sentence; nothing is lost
the client disconnects          leaves the queue within seconds, and gives its slot back
the server's process is killed  the same: locks are the kernel's
the queue cannot be used        served, and the operators have the reason in their log
==============================  ==============================================================

Over SSH a session waits before it answers. Over HTTPS the answer begins at once with a part of
bundle2 that the client prints, and another part follows every few seconds, so no proxy on the way
takes the connection for dead. The web part bounds the clones that wait or are served in a worker,
since each takes a thread of the worker: ``hgfleet.clone`` of the request refuses further clones.

Clients that are older than bundle2 streams (``stream_out``) wait without a word over HTTPS.

Each answer is a line in the system log (``event=admission``) and has the event
``admission`` (see :hg:`help -e blackbox`).

Enable it for all servers of hg::

  [extensions]
  admission = /opt/hgfleet/current/hgext/admission.py
"""

from __future__ import annotations

import os
import struct
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

from hgfleet.admission import prepared
from hgfleet.hg.sessions import session_checks

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from hgfleet.admission.clone import Clone
    from hgfleet.admission.queue import Position

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

PADDING = 256 * 1024
"""Bytes that follow each sentence for a waiting client. Compression (blocks of 128 KB), the web
part, nginx (64 KB) and the client (8 KB) each buffer some bytes; padding that cannot be compressed
pushes the sentence through all of them."""

_HEAD = (b"HG20", struct.pack(">i", 0))
"""The beginning of every bundle2 without parameters, in core's pieces (bundle20.getchunks, 7.2)."""

_asking: ContextVar[Any] = ContextVar("hgfleet_admission_asking", default=None)


def extsetup(_ui: Any) -> None:
    """Wrap the two places where core computes a whole repository.

    Core (wireprotov1server.getbundle, 7.2) calls `exchange.getbundlechunks` after the search for a
    pull bundle; the wrapped command knows the client.
    """
    commands = wireprotov1server.commands
    commands[b"getbundle"].func = _noting_client(commands[b"getbundle"].func)
    commands[b"stream_out"].func = _stream(commands[b"stream_out"].func)
    extensions.wrapfunction(exchange, "getbundlechunks", _getbundlechunks)
    for name in (b"changegroup", b"changegroupsubset"):
        # Clients before 2011 (1.9) pulled with these commands, which bypass all of the above. Over
        # HTTPS the web part refuses them. If the extension hardening came first, it has removed
        # them.
        if name in commands:
            commands[name].transports.discard(wireprototypes.SSHV1)


def _noting_client(original: Any) -> Any:
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
        ready = prepared.of(repo)
        if ready is None:
            missing = _missing(repo, options)
            clone = _clone(repo, proto, len(missing), missing)
        else:
            clone = _clone(repo, proto, ready.live)
    if clone is None:
        return answer()
    try:
        at = clone.ask()
        can_tell = exchange.bundle2requested(options.get("bundlecaps")) and not clone.is_over_ssh
        if at is not None and can_tell:
            prefers = {b"bundleversion": 2, b"prefercompressed": not options.get("stream")}
            return prefers, clone.answer(_answer_while_waiting(clone, at, answer))
        for told in clone.wait(at):
            if told is not None and clone.is_over_ssh:
                repo.ui.warn(b"%s\n" % told)
        session_checks.run()
        info, chunks = answer()
    except BaseException:
        clone.leave("failed")
        raise
    return info, clone.answer(chunks)


def _stream(original: Any) -> Any:
    def stream_out(repo: Any, proto: Any, *arguments: Any) -> Any:
        changesets = len(repo)
        try:
            clone = _clone(repo, proto, changesets, range(changesets))
        except error.Abort as refused:
            return _refusal(refused)
        response = original(repo, proto, *arguments)
        if clone is None:
            return response
        try:
            for told in clone.wait(clone.ask()):
                if told is not None and clone.is_over_ssh:
                    repo.ui.warn(b"%s\n" % told)
            session_checks.run()
        except error.Abort as refused:
            clone.leave("refused")
            return _refusal(refused)
        except BaseException:
            clone.leave("failed")
            raise
        return wireprototypes.streamreslegacy(clone.answer(response.gen))

    return stream_out


def _refusal(refused: Any) -> Any:
    """Return the answer to a client without bundle2."""
    hint = b"" if refused.hint is None else b" (%s)" % refused.hint
    return wireprototypes.ooberror(b"%s%s\n" % (refused.message, hint))


def _answer_while_waiting(
    clone: Clone, at: Position, answer: Callable[[], Bundle]
) -> Iterator[bytes]:
    """Yield a bundle2 with sentences while the clone waits, and then the answer itself."""
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
        session_checks.run()
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


def _missing(repo: Any, options: dict[str, Any]) -> Sequence[int]:
    """Return the revisions that an answer will have.

    A malformed request has none: core answers it with an error of its own.
    """
    changelog = repo.changelog
    if options.get("stream"):
        return range(len(changelog))
    if not options.get("cg", True):
        return ()
    heads = options.get("heads") or changelog.heads()
    common = [node for node in options.get("common") or () if changelog.hasnode(node)]
    common = [node for node in common if node != repo.nullid]
    if not common and set(heads) == set(changelog.heads()):
        return range(len(changelog))
    try:
        return [changelog.rev(node) for node in changelog.findmissing(common or None, heads)]
    except error.LookupError:
        return ()


def _clone(
    repo: Any, proto: Any, changesets: int, missing: Sequence[int] | None = None
) -> Clone | None:
    """Put an answer that needs a slot into the queue; raises error.Abort if the queue is full.

    `missing` has its revisions, None if another extension has prepared it.
    """
    from hgfleet.admission import queue, weight
    from hgfleet.admission.clone import HINT, Clone

    ui = repo.ui
    folder = ui.config(b"hgfleet", b"admission")
    total = len(repo.changelog)
    most = ui.configbytes(b"hgfleet", b"admission-size")

    def weighs_much() -> bool:
        if missing is None or not queue.weighs_more(Path(os.fsdecode(repo.svfs.base)), most):
            return False
        return changesets == total or weight.files_weigh_more(repo, missing, most)

    if not folder or not queue.is_costly(
        changesets,
        of=total,
        most_changesets=ui.configint(b"hgfleet", b"admission-changesets"),
        weighs_much=weighs_much,
    ):
        return None
    clone = Clone(repo, proto, changesets)
    try:
        clone.enter(Path(os.fsdecode(folder)))
    except queue.BusyError as busy:
        clone.log("refuse", detail=busy)
        raise error.Abort(b"%s" % encoding.strtolocal(str(busy)), hint=HINT) from busy
    except OSError as problem:
        # A busy host is better than a host that serves no clone.
        clone.log("unlimited", detail=problem)
        return None
    return clone
