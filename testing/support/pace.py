"""The factor of all deadlines of tests: how much longer this machine takes than when it is quiet.

A deadline is written for a quiet machine and multiplied by the factor. Other work on both
processors doubles the time of a test without a defect of the service.

| when | measured |
| --- | --- |
| a run begins | `./run-tests` measures, and hands the factor on in `HGFLEET_TEST_PACE` |
| pytest is run by hand | the process measures when it first needs the factor |
| a deadline is about to fail | the process measures again, and waits on if the factor has grown |

The third measurement follows a load that comes after the start. It costs nothing in a test that
passes. The factor of a process never shrinks, and is between 1 and 6: a service that is dead fails
its test in any case.

    .venv/bin/python -m testing.support.pace        # prints the factor of this moment
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import time
from typing import TYPE_CHECKING, Any, Final, TypeVar

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

T = TypeVar("T")
S = TypeVar("S", str, bytes)

VARIABLE: Final = "HGFLEET_TEST_PACE"
SLOWEST: Final = 6.0

ROUNDS: Final = 150_000
REFERENCE_SECONDS: Final = 0.1
"""The workload takes less on a quiet processor of a machine on which the deadlines hold."""


def work() -> float:
    """Return the wall time in seconds of a fixed workload of the processor."""
    began = time.perf_counter()
    digest = b""
    for number in range(ROUNDS):
        digest = hashlib.sha256(b"%d %s" % (number, digest)).digest()
    return time.perf_counter() - began


def factor_of(seconds: float) -> float:
    """Return the factor of a machine on which the workload took so long."""
    return min(SLOWEST, max(1.0, round(seconds / REFERENCE_SECONDS, 1)))


def measure() -> float:
    """Return the factor of this moment.

    The faster of two workloads counts: another process that ends during a workload is no load.
    """
    return factor_of(min(work(), work()))


def given(text: str) -> float | None:
    """Read a factor that the run hands on; None for anything but a number from 1 to 6."""
    try:
        factor = float(text)
    except ValueError:
        return None
    return factor if 1.0 <= factor <= SLOWEST else None


class Pace:
    """The factor of a process, which is measured when it is needed, and grows with the load."""

    def __init__(self, factor: float | None = None) -> None:
        self._factor = factor

    @property
    def factor(self) -> float:
        """The factor up to now."""
        if self._factor is None:
            self._factor = given(os.environ.get(VARIABLE, "")) or measure()
        return self._factor

    def measure_again(self) -> float:
        """Return the factor after another measurement."""
        self._factor = max(self.factor, measure())
        return self._factor


PACE: Final = Pace()


class Deadline:
    """A time to wait, in seconds of a quiet machine."""

    def __init__(self, seconds: float, pace: Pace = PACE) -> None:
        self.seconds = seconds
        self.pace = pace
        self.began = time.monotonic()

    def is_over(self) -> bool:
        """Whether the time is over, by a measurement of the load of this moment."""
        waited = time.monotonic() - self.began
        # The factor is at least 1, and is not measured for a wait that ends within its seconds.
        if waited < self.seconds or waited < self.seconds * self.pace.factor:
            return False
        return waited >= self.seconds * self.pace.measure_again()

    def left(self) -> float:
        """Return the seconds after which `is_over` has to be asked."""
        waited = time.monotonic() - self.began
        if waited < self.seconds:
            return self.seconds - waited
        return max(0.0, self.seconds * self.pace.factor - waited)

    def __str__(self) -> str:
        factor = self.pace.factor
        if factor == 1.0:
            return f"{self.seconds:g} s"
        return f"{self.seconds:g} s, {self.seconds * factor:g} s at the pace of this machine"


def run(
    command: Sequence[str], seconds: float, given: str | bytes | None = None, **options: Any
) -> subprocess.CompletedProcess[Any]:
    """Run a command to its end, with options of `subprocess.Popen`; `given` is its input.

    Raises `subprocess.TimeoutExpired` when the deadline is over, after the command is killed.
    """
    if given is not None:
        options["stdin"] = subprocess.PIPE
    with subprocess.Popen(list(command), **options) as process:
        try:
            out, err = communicate(process, seconds, given)
        except BaseException:
            process.kill()
            raise
    return subprocess.CompletedProcess(process.args, process.returncode, out, err)


def communicate(
    process: subprocess.Popen[S], seconds: float, given: S | None = None, pace: Pace = PACE
) -> tuple[S, S]:
    """Return the output and the errors of a process, as `Popen.communicate` does.

    Raises `subprocess.TimeoutExpired` when the deadline is over; the process goes on then.
    """
    # Input that was given before a first timeout is kept by Popen, and refused a second time.
    said: list[S | None] = [given]
    return _within(
        lambda left: process.communicate(said.pop() if said else None, timeout=left),
        Deadline(seconds, pace),
    )


def wait(process: subprocess.Popen[Any], seconds: float, pace: Pace = PACE) -> int:
    """Return the exit code of a process; raises `subprocess.TimeoutExpired` as `communicate`."""
    return _within(lambda left: process.wait(timeout=left), Deadline(seconds, pace))


def _within(ended: Callable[[float], T], deadline: Deadline) -> T:
    while True:
        try:
            return ended(deadline.left())
        except subprocess.TimeoutExpired:
            if deadline.is_over():
                raise


if __name__ == "__main__":
    print(measure())
