"""Children of ./deploy: they end with it, and the checkout stays locked until the last has ended.

Each command runs below a guard, which is this file as a program:

    processes.py LIFE KEPT -- COMMAND ...

LIFE is the read end of a pipe, and only ./deploy has the write end. However ./deploy ends, the
kernel closes the pipe, and the guard ends the command with everything that the command started.
Ansible's workers have sessions of their own, so a signal to a process group does not reach them. As
a subreaper, the guard is the parent of every orphan below it. The guard has a session of its own:
Ctrl-C and other signals to the group of ./deploy do not end the guard. KEPT are the descriptors of
locks, which the command inherits: a lock of flock(2) lasts until its last copy is closed.

A command that ends by itself leaves the connections that SSH keeps open for the next command.
"""

from __future__ import annotations

import contextlib
import ctypes
import fcntl
import os
import select
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import IO, TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from types import FrameType

GRACE_SECONDS: Final = 5.0
"""For SIGTERM, which Ansible hands on to its workers; what is left then gets SIGKILL."""

ENDED_SECONDS: Final = 30.0
"""For the children of a ./deploy that was killed, on a busy machine."""

LOOK_SECONDS: Final = 0.1
"""Between two looks at processes that are about to end."""

PR_SET_PDEATHSIG: Final = 1
PR_SET_CHILD_SUBREAPER: Final = 36
INTERRUPTS: Final = (signal.SIGTERM, signal.SIGHUP)
"""Signals that end ./deploy as Ctrl-C does."""

_kept: set[int] = set()


# --- in ./deploy ------------------------------------------------------------------------------


def locked(lock: IO[str]) -> bool:
    """Lock a file of this checkout for this process; return whether it is locked.

    Children of a process that was killed are about to end, and are waited for.
    """
    until = time.monotonic() + ENDED_SECONDS
    while True:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            break
        except BlockingIOError:
            lock.seek(0)
            holder = lock.read().strip()
            is_alive = holder.isdigit() and Path(f"/proc/{holder}").exists()
            if is_alive or not holder or time.monotonic() > until:
                return False
        time.sleep(LOOK_SECONDS)
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return True


@contextlib.contextmanager
def kept_by_children(descriptor: int) -> Iterator[None]:
    """Let every command that starts in the block inherit this descriptor of a locked file."""
    _kept.add(descriptor)
    try:
        yield
    finally:
        _kept.discard(descriptor)


@contextlib.contextmanager
def interrupts() -> Iterator[None]:
    """Raise KeyboardInterrupt at the first SIGTERM or SIGHUP; further signals change nothing.

    A second interrupt would break off the request that gives the lock of the site back.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return

    def interrupt(_number: int, _frame: FrameType | None) -> None:
        for number in former:
            signal.signal(number, signal.SIG_IGN)
        raise KeyboardInterrupt

    former = {
        number: signal.getsignal(number)
        for number in INTERRUPTS
        # nohup ./deploy goes on.
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in former:
        signal.signal(number, interrupt)
    try:
        yield
    finally:
        for number, handler in former.items():
            signal.signal(number, handler)


@contextlib.contextmanager
def started(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    stdout: int | IO[str] = subprocess.PIPE,
    stderr: int | IO[str] = subprocess.STDOUT,
) -> Iterator[subprocess.Popen[str]]:
    """Start a command below its guard; an exception in the block ends the command and waits.

    Ctrl-C of the terminal reaches ./deploy, not the command, and so is such an exception.
    """
    life, own = os.pipe()
    kept = sorted(_kept)
    guard = [sys.executable, "-I", "-S", __file__, str(life), ",".join(map(str, kept)), "--"]
    try:
        process = subprocess.Popen(
            [*guard, *command],
            stdout=stdout,
            stderr=stderr,
            text=True,
            env=dict(env),
            pass_fds=(life, *kept),
            start_new_session=True,
        )
    except BaseException:
        os.close(own)
        raise
    finally:
        os.close(life)
    try:
        yield process
        process.wait()
    finally:
        # Without an exception the command has ended, and nothing reads the pipe any more.
        os.close(own)
        process.wait()
        if process.stdout is not None:
            process.stdout.close()
        if process.stderr is not None:
            process.stderr.close()


def run(
    command: Sequence[str],
    env: Mapping[str, str],
    *,
    seconds: float | None = None,
) -> subprocess.CompletedProcess[str]:
    """Run a command to its end and return its output.

    After `seconds`, if they are given, it is ended; then subprocess.TimeoutExpired is raised.
    """
    with started(command, env, stderr=subprocess.PIPE) as process:
        stdout, stderr = process.communicate(timeout=seconds)
    return subprocess.CompletedProcess(list(command), process.returncode, stdout, stderr)


def call(command: Sequence[str], env: Mapping[str, str], output: IO[str]) -> int:
    """Run a command to its end, with its output in a file; return its exit code."""
    with started(command, env, stdout=output) as process:
        return process.wait()


# --- the guard --------------------------------------------------------------------------------


class _EndedError(Exception):
    """The guard was told to end."""


class Guard:
    """Runs a command until it ends, or until the pipe of ./deploy is closed."""

    def __init__(self, life: int, kept: Sequence[int]) -> None:
        self.life = life
        self.kept = tuple(kept)
        self.status: int | None = None
        # SIGCHLD ends a poll: its number is written to this pipe.
        self.woken, wakes = os.pipe()
        os.set_blocking(self.woken, False)
        os.set_blocking(wakes, False)
        signal.signal(signal.SIGCHLD, lambda _number, _frame: None)
        signal.set_wakeup_fd(wakes, warn_on_full_buffer=False)
        self.poller = select.poll()
        self.poller.register(self.woken, select.POLLIN)

    def run(self, command: Sequence[str]) -> int:
        """Return the exit code of the command, 128 + N if signal N ended it."""
        _prctl(PR_SET_CHILD_SUBREAPER, 1)
        for number in (signal.SIGINT, *INTERRUPTS):
            signal.signal(number, _end)
        child = 0
        try:
            child = subprocess.Popen(command, pass_fds=self.kept, preexec_fn=_end_with_guard).pid
            self.poller.register(self.life, select.POLLIN)
            while self.status is None:
                events = [descriptor for descriptor, _event in self.poller.poll()]
                self._reap(child)
                if self.status is None and self.life in events:
                    raise _EndedError
        except _EndedError:
            for number in (signal.SIGINT, *INTERRUPTS):
                signal.signal(number, signal.SIG_IGN)
            self.poller.unregister(self.life)
            self._end_all(child)
        status = signal.SIGTERM if self.status is None else self.status
        code = os.waitstatus_to_exitcode(status)
        return 128 - code if code < 0 else code

    def _end_all(self, child: int) -> None:
        """End everything below this process: SIGTERM, then SIGKILL until nothing is left."""
        until = time.monotonic() + GRACE_SECONDS
        _signal_all(signal.SIGTERM)
        while below(os.getpid()):
            if time.monotonic() > until:
                # Again and again: a process may start another one before its own end.
                _signal_all(signal.SIGKILL)
            self.poller.poll(LOOK_SECONDS * 1000)
            self._reap(child)

    def _reap(self, child: int) -> None:
        """Collect the processes that have ended; keep the status of the command."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.woken, 4096)
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    break
                if pid == child:
                    self.status = status


def _end(_number: int, _frame: FrameType | None) -> None:
    raise _EndedError


def _prctl(option: int, value: int) -> None:
    if ctypes.CDLL(None, use_errno=True).prctl(option, value, 0, 0, 0):
        raise OSError(ctypes.get_errno(), "prctl")


def _end_with_guard() -> None:
    """Let the command end with its guard, should that be killed."""
    _prctl(PR_SET_PDEATHSIG, signal.SIGTERM)


def below(pid: int) -> list[int]:
    """Return the processes that a process started, and those that they started."""
    parents: dict[int, list[int]] = {}
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            # "1234 (a name) S 1233 ...", and a name may have a parenthesis.
            words = (folder / "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
        except OSError:
            # It has ended.
            continue
        parents.setdefault(int(words[1]), []).append(int(folder.name))
    pids: list[int] = []
    waiting = [pid]
    while waiting:
        children = parents.get(waiting.pop(), [])
        pids += children
        waiting += children
    return pids


def _signal_all(number: signal.Signals) -> None:
    for pid in below(os.getpid()):
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.kill(pid, number)


def main(arguments: Sequence[str]) -> int:
    """Carry out the command line."""
    life, kept, separator, *command = arguments
    if separator != "--" or not command:
        print("usage: processes.py LIFE KEPT -- COMMAND ...", file=sys.stderr)
        return 2
    descriptors = [int(number) for number in kept.split(",") if number]
    try:
        return Guard(int(life), descriptors).run(command)
    except OSError as error:
        print(f"{command[0]}: {error}", file=sys.stderr)
        return 127


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
