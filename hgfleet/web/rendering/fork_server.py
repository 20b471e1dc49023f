"""The processes that run hgweb: a single-threaded fork server, and the renderers that it forks.

A renderer answers one request at a time, and the kernel ends it when a request passes its budget:
SIGPROF after so much processor time, a refused allocation above so much memory. Neither needs the
interpreter's help, and no other request is in that process.

The fork server is forked from a worker that has no other thread yet and has imported Mercurial, so
a renderer starts in milliseconds. It ends with its worker: then its end of the control socket
closes. A renderer ends with its channel.

A renderer answers another request only after a whole answer with a status below 400. After an
exception, a limit, or an error that hgweb showed as a page, the process ends. The objects of the
failed request, also those in a traceback, end with it, and no destructor of them runs.

A data stream (a clone, a pull) is a request like others, with limits of its own. Its code asks the
worker through the channel for permissions, threads, and whether the client is still connected. A
worker that no longer waits for the answer closes the channel.
"""

from __future__ import annotations

import array
import contextlib
import gc
import io
import json
import os
import resource
import signal
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn

from mercurial import error
from mercurial.utils import procutil

from hgfleet.core import trace
from hgfleet.hg.sessions import session_checks
from hgfleet.web.engine import archives, frames, hgweb
from hgfleet.web.engine.opened_repositories import UnavailableRepositoryError
from hgfleet.web.engine.places import Place
from hgfleet.web.http.journal import described, report
from hgfleet.web.rendering import budgets, stream_limits
from hgfleet.web.rendering.answer_writer import AnswerWriter, EndedError
from hgfleet.web.rendering.budgets import Budget
from hgfleet.web.rendering.cpu_timer import CpuTimer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.web.engine.opened_repositories import Repositories

KILL: Final = b"K"
SPAWN: Final = b"S"

GROWTH_BYTES: Final = 64 * 1024 * 1024
"""A renderer that has grown by more after a request ends instead of keeping that memory."""

_NICENESS: Final = 5
"""Pages that are computed give way to answers from memory, to nginx and to health checks."""
_OOM_SCORE: Final = "500"


def fork_server(repositories: Repositories) -> tuple[socket.socket, int]:
    """Fork the server of a process without other threads; return its control socket and id."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        theirs.close()
        return ours, pid
    try:
        _become_clean({theirs.fileno()})
        _serve(theirs, repositories)
    except BaseException:
        sys.excepthook(*sys.exc_info())
    finally:
        os._exit(1)


def _become_clean(keep: set[int]) -> None:
    """Drop what a child has of its parent: signal handlers, and the files that it need not keep."""
    # Objects of the parent are never freed here: their destructors would close file numbers that
    # this process uses for other files.
    gc.freeze()
    signal.set_wakeup_fd(-1)
    for name in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
        with contextlib.suppress(OSError, ValueError):
            signal.signal(name, signal.SIG_DFL)
    # The end of the worker ends this process too; a terminal's Ctrl-C goes to the worker.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGPIPE, signal.SIG_IGN)
    # Core writes messages there; its number is not 2 where a test captures it.
    keep = {*keep, procutil.stderr.fileno()}
    for number in [int(entry.name) for entry in Path("/proc/self/fd").iterdir()]:
        if number > 2 and number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)


def _serve(control: socket.socket, repositories: Repositories) -> NoReturn:
    """Fork a renderer for each channel that the worker sends, and kill the renderers it names."""
    children: set[int] = set()
    while True:
        channels = array.array("i")
        message, rights, _, _ = control.recvmsg(64, socket.CMSG_SPACE(channels.itemsize))
        for _, _, data in rights:
            channels.frombytes(data[: len(data) - len(data) % channels.itemsize])
        if not message:
            os._exit(0)
        _reap(children)
        if message[:1] == KILL and int(message[1:]) in children:
            os.kill(int(message[1:]), signal.SIGKILL)
        for number in channels:
            with contextlib.suppress(Exception):
                # A changed configuration, once for all renderers to come.
                repositories.check_configuration()
                repositories.warm()
            try:
                pid = os.fork()
            except OSError as problem:
                # The unit has reached its limit of tasks, or memory is short. The worker reads the
                # end of the channel, and refuses the request.
                report("renderer", f"no process for another renderer: {problem}")
                os.close(number)
                continue
            if not pid:
                channel = socket.socket(fileno=number)
                _become_clean({number})
                _Renderer(channel, repositories).run()
            children.add(pid)
            os.close(number)


def _reap(children: set[int]) -> None:
    """Forget the ended children, and report those that a limit or a defect ended."""
    with contextlib.suppress(ChildProcessError):
        while True:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if not pid:
                return
            children.discard(pid)
            code = os.waitstatus_to_exitcode(status)
            if code not in (0, -signal.SIGKILL, -signal.SIGPROF):
                report("renderer", f"process {pid} ended with code {code}")


class _Renderer:
    """The loop of a renderer."""

    def __init__(self, channel: socket.socket, repositories: Repositories) -> None:
        self._channel = channel
        self._repositories = repositories
        self._timer = CpuTimer()
        self._base = _data_bytes()
        self._is_told = False

    def run(self) -> NoReturn:
        """Answer requests until the channel closes; ends the process."""
        code = 0
        try:
            _keep_memory_errors()
            sys.unraisablehook = _report_destructor
            with contextlib.suppress(OSError):
                os.nice(_NICENESS)
            with contextlib.suppress(OSError):
                # Where memory is short, the kernel ends a renderer before a worker.
                Path("/proc/self/oom_score_adj").write_text(_OOM_SCORE)
            frames.send_json(self._channel, frames.HELLO, 0, {"pid": os.getpid()})
            while self._answer():
                pass
        except frames.ClosedError:
            pass
        except BaseException:
            code = 1
            with contextlib.suppress(BaseException):
                sys.excepthook(*sys.exc_info())
        finally:
            os._exit(code)

    def _answer(self) -> bool:
        """Answer a request; False: this process answers no other."""
        kind, number, payload = frames.receive(self._channel)
        if kind != frames.REQUEST:
            return False
        request = json.loads(payload)
        answer = AnswerWriter(self._channel, number)
        cpu_seconds, memory_bytes, seconds = request["limits"]
        limits = Budget(float(cpu_seconds), int(memory_bytes), float(seconds))
        self._limit(limits)
        began = time.process_time()
        trace.begin(request["id"])
        environ = _environ(request["environ"], request["body"])
        # Without `except ... as`, which would free the objects of a failed request here: they stay
        # until this process ends.
        with self._streaming(request, limits, environ) as stream:
            problem = self._attempt(request, limits, environ, answer)
            if problem is None and stream is not None:
                problem = stream.problem
        self._unlimit()
        has_grown = _data_bytes() > self._base + GROWTH_BYTES
        ends = has_grown or problem is not None or answer.status >= 400
        end = {"ends": ends, "cpu": round(time.process_time() - began, 3)}
        if problem is None:
            answer.end(end)
        else:
            is_told = stream is not None and stream.is_told
            answer.fail(_failure(problem) | end | {"is_told": is_told})
        return not ends

    def _attempt(
        self, request: dict[str, Any], limits: Budget, environ: dict[str, Any], answer: AnswerWriter
    ) -> Exception | None:
        """Run hgweb; return the exception that it raised."""
        try:
            environ[hgweb.BEFORE_SENDING] = answer.before_sending
            environ[hgweb.MEMORY_BYTES] = limits.memory_bytes
            environ[hgweb.CPU_SECONDS] = limits.cpu_seconds
            self._run(Place(*request["place"]), environ, answer)
        except (frames.ClosedError, frames.BrokenError):
            raise
        except Exception as problem:
            answer.abandon()
            return problem
        return None

    @contextlib.contextmanager
    def _streaming(
        self, request: dict[str, Any], limits: Budget, environ: dict[str, Any]
    ) -> Iterator[stream_limits.Stream | None]:
        """Give the code of a data stream its limits and the worker's replies, until it ends.

        The next request of this renderer may not be a data stream.
        """
        if not request["is_stream"]:
            yield None
            return
        number = int(request["number"])

        def check() -> None:
            if sentence := frames.ask(self._channel, number, frames.GO_ON):
                raise error.Abort(sentence.encode("ascii", "replace"))

        def reserve() -> None:
            self._limit_memory(limits.memory_bytes + stream_limits.RESERVE_BYTES)

        environ["hgfleet.clone"] = lambda: frames.ask(self._channel, number, frames.CLONE)
        # The worker closes it when the client disconnects.
        environ["hgfleet.connection"] = self._channel
        environ["hgfleet.entry"] = {}
        sentence = budgets.stream_exceeded(limits)
        stream = stream_limits.Stream(limits, sentence, request["id"], reserve)
        token, current = session_checks.leave(check), stream_limits.current.set(stream)
        try:
            yield stream
        finally:
            session_checks.forget(token)
            stream_limits.current.reset(current)

    def _limit(self, limits: Budget) -> None:
        """Have the kernel end this process above its budget: the default action of both signals."""
        self._limit_memory(limits.memory_bytes)
        cpu_seconds = limits.cpu_seconds
        if limits.seconds:
            cpu_seconds = stream_limits.hard(cpu_seconds)
            signal.setitimer(signal.ITIMER_REAL, stream_limits.hard(limits.seconds))
        self._timer.start(cpu_seconds)

    def _limit_memory(self, size: float) -> None:
        try:
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (self._base + int(size), hard))
        except (OSError, ValueError) as problem:
            if not self._is_told:
                report("renderer", f"no limit of memory per request: {problem}")
            self._is_told = True

    def _unlimit(self) -> None:
        self._timer.stop()
        signal.setitimer(signal.ITIMER_REAL, 0)
        with contextlib.suppress(OSError, ValueError):
            _, hard = resource.getrlimit(resource.RLIMIT_DATA)
            resource.setrlimit(resource.RLIMIT_DATA, (hard, hard))

    def _run(self, place: Place, environ: dict[str, Any], answer: AnswerWriter) -> None:
        # The request may have waited for this renderer.
        self._repositories.check(place.path, place.identity)
        self._repositories.check_configuration()
        fingerprint = self._repositories.fingerprint(place.path)
        served = self._repositories.acquire(place, fingerprint)
        source = served.application(environ, answer.start)
        try:
            for piece in hgweb.chunks(source):
                answer.note(environ.get("hgfleet.entry"))
                answer.piece(piece)
            answer.note(environ.get("hgfleet.entry"))
        finally:
            close: Callable[[], object] | None = getattr(source, "close", None)
            if close is not None:
                close()
        # After a failure neither the object nor this process is kept.
        self._repositories.release(served)


def _environ(values: dict[str, str], body: str) -> dict[str, Any]:
    return {
        **values,
        "wsgi.version": (1, 0),
        "wsgi.input": io.BytesIO(body.encode("latin-1")),
        "wsgi.errors": sys.stderr,
        "wsgi.multithread": False,
        "wsgi.multiprocess": True,
        "wsgi.run_once": False,
    }


def _keep_memory_errors() -> None:
    """Make core pass on MemoryError, which its storage reports as a corrupt revlog (7.2)."""
    original = error.StorageError.__init__

    def init(self: Any, *arguments: Any, **options: Any) -> None:
        handled = sys.exc_info()[1]
        if isinstance(handled, MemoryError):
            raise handled
        original(self, *arguments, **options)

    error.StorageError.__init__ = init


def _report_destructor(unraisable: sys.UnraisableHookArgs) -> None:
    """Report the exception of a destructor in a line, except a write after the end of a request."""
    if unraisable.exc_value is not None and not isinstance(unraisable.exc_value, EndedError):
        report("renderer", f"in a destructor: {described(unraisable.exc_value)}")


def _failure(problem: Exception) -> dict[str, object]:
    """Describe an exception out of hgweb for the worker."""
    match problem:
        case MemoryError():
            return {"kind": "limit", "cause": "memory"}
        case stream_limits.ReachedError():
            return {"kind": "limit", "cause": str(problem)}
        case UnavailableRepositoryError():
            return {"kind": "unavailable", "cause": str(problem)}
        case archives.RefusedError():
            return {"kind": "refused", "cause": str(problem)}
        case archives.BudgetError():
            return {"kind": "limit", "cause": str(problem)}
        case archives.FailedError():
            return {"kind": "error", "cause": str(problem)}
        case _:
            kind = "arguments" if hgweb.is_about_arguments(problem) else "error"
            return {"kind": kind, "cause": described(problem)}


def _data_bytes() -> int:
    """The memory of this process that RLIMIT_DATA counts (bytes)."""
    for line in Path("/proc/self/status").read_text("ascii", "replace").splitlines():
        if line.startswith("VmData:"):
            return int(line.split()[1]) * 1024
    return 0
