"""The timer of processor time that bounds a request."""

from __future__ import annotations

import os
import signal
import time
from typing import TYPE_CHECKING

import pytest

from hgfleet.web.rendering.cpu_timer import CpuTimer

if TYPE_CHECKING:
    from collections.abc import Callable

BUDGET_SECONDS = 0.1
SLACK_SECONDS = 0.2


def spend(seconds: float) -> None:
    """Take processor time in short pieces, as a process does that waits for files."""
    until = time.process_time() + seconds
    while time.process_time() < until:
        sum(range(5000))
        time.sleep(0.0001)


def in_child(work: Callable[[], None]) -> tuple[int, float]:
    """Run a function in a forked process; return its exit code and its processor time."""
    child = os.fork()
    if not child:
        signal.signal(signal.SIGPROF, signal.SIG_DFL)
        work()
        os._exit(0)
    _, status, usage = os.wait4(child, 0)
    return os.waitstatus_to_exitcode(status), usage.ru_utime + usage.ru_stime


def test_a_process_ends_at_its_budget_though_it_waits_often() -> None:
    def work() -> None:
        CpuTimer().start(BUDGET_SECONDS)
        spend(60)

    code, seconds = in_child(work)
    assert code == -signal.SIGPROF
    assert BUDGET_SECONDS <= seconds <= BUDGET_SECONDS + SLACK_SECONDS


def test_waiting_takes_nothing_of_the_budget() -> None:
    def work() -> None:
        CpuTimer().start(BUDGET_SECONDS)
        time.sleep(2 * BUDGET_SECONDS)

    assert in_child(work)[0] == 0


def test_a_stopped_timer_ends_nothing_and_a_new_start_is_a_new_budget() -> None:
    def work() -> None:
        timer = CpuTimer()
        for _ in range(3):
            timer.start(BUDGET_SECONDS)
            spend(BUDGET_SECONDS / 2)
        timer.stop()
        spend(BUDGET_SECONDS * 2)

    assert in_child(work)[0] == 0


@pytest.mark.parametrize("seconds", [0, 1e-12])
def test_a_budget_of_nothing_is_spent_at_once(seconds: float) -> None:
    def work() -> None:
        CpuTimer().start(seconds)
        spend(60)

    assert in_child(work)[0] == -signal.SIGPROF
