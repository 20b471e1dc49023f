"""Worker processes of the applier: forked from a process that has imported Mercurial once.

If a job ends its worker (a crash of the interpreter, the kernel's out-of-memory killer), only that
job fails: another worker takes over. A worker is also replaced after a failure of
`failures.ENDS_WORKER`, and after the result of a different job than the job that was sent.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import queue
import signal
from typing import TYPE_CHECKING, Any, Final

from hgfleet.replication.mirror.failures import ENDS_WORKER, Failure, Kind
from hgfleet.replication.mirror.jobs import Result

if TYPE_CHECKING:
    from collections.abc import Callable
    from multiprocessing.connection import Connection

    from hgfleet.replication.mirror.jobs import Job

JOBS_PER_WORKER: Final = 2000
"""Then a new worker takes over, which limits the memory that Mercurial never gives back."""

END_SECONDS: Final = 3.0
"""Time for the job of a worker when the applier ends; the next applier undoes a killed job."""

USER: Final = "operator:replication"
"""The writer that the extension `access` sees."""


class _Member:
    """A worker process and its pipe."""

    def __init__(self, context: Any, make: Callable[[], Any]) -> None:
        self.jobs = 0
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=serve, args=(theirs, make), daemon=True)
        self.process.start()
        theirs.close()

    def run(self, job: Job) -> Result:
        """Do a job; raises EOFError or OSError if the process ends."""
        self.jobs += 1
        self.pipe.send((self.jobs, job))
        number, result = self.pipe.recv()
        if number != self.jobs or not isinstance(result, Result):
            raise OSError(f"got the result of job {number}, expected {self.jobs}")
        return result

    def end(self, seconds: float) -> None:
        """Let the process end after its job, or kill it after some seconds."""
        self.pipe.close()
        self.process.join(seconds)
        if self.process.is_alive():
            self.process.kill()
            self.process.join()


class Pool:
    """Workers for jobs; several threads may call `run`.

    In each worker, `make` makes the object whose `run` does a job; it is a function of a module, or
    a partial of such a function.
    """

    def __init__(self, count: int, make: Callable[[], Any], preload: str) -> None:
        # Mercurial and its extensions read these when they are imported.
        os.environ.update(HGFLEET_USER=USER, HGPLAIN="1", HGENCODING="utf-8")
        self._context = multiprocessing.get_context("forkserver")
        self._context.set_forkserver_preload([preload])
        self._make = make
        self._free: queue.SimpleQueue[_Member | None] = queue.SimpleQueue()
        self._all: set[_Member] = set()
        for _number in range(count):
            self._free.put(None)

    def run(self, job: Job) -> Result:
        """Wait for a free worker, and do a job in it; the end of the worker is a failure."""
        member = self._free.get()
        try:
            if member is None:
                member = _Member(self._context, self._make)
                self._all.add(member)
            result = member.run(job)
        except (EOFError, OSError) as error:
            code = self._drop(member)
            return Result(
                failure=Failure(Kind.POISON, f"the worker ended with {code} ({error!r:.100})")
            )
        except BaseException:
            self._drop(member)
            raise
        else:
            if member.jobs >= JOBS_PER_WORKER or _ends_worker(result):
                self._drop(member)
            return result
        finally:
            alive = member if member in self._all else None
            self._free.put(alive)

    def _drop(self, member: _Member | None) -> int | None:
        if member is None:
            return None
        self._all.discard(member)
        member.end(END_SECONDS)
        code: int | None = member.process.exitcode
        return code

    def close(self) -> None:
        """End all workers."""
        members = list(self._all)
        self._all.clear()
        for member in members:
            with contextlib.suppress(OSError):
                member.pipe.close()
        for member in members:
            member.end(END_SECONDS)


def serve(pipe: Connection, make: Callable[[], Any]) -> None:
    """Do jobs until the applier closes the pipe, or ends."""
    # The pipe reports the applier's end: a signal would abort a transaction.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    worker = make()
    with contextlib.suppress(EOFError, OSError):
        while True:
            number, job = pipe.recv()
            result = worker.run(job)
            pipe.send((number, result))
            if _ends_worker(result):
                # This skips the destructors of the failed job's objects.
                os._exit(0)


def _ends_worker(result: Result) -> bool:
    return result.failure is not None and result.failure.kind in ENDS_WORKER
