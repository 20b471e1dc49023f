"""The factor of deadlines, by the load of the machine."""

from __future__ import annotations

import subprocess

import pytest

from testing.e2e.command import run, wait_until
from testing.support import pace
from testing.support.pace import Deadline, Pace


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """Return the time of the clock, which only the test moves."""
    now = [100.0]
    monkeypatch.setattr(pace.time, "monotonic", lambda: now[0])
    return now


@pytest.mark.parametrize(
    ("seconds", "factor"),
    [(0.0, 1.0), (0.1, 1.0), (0.15, 1.5), (0.2, 2.0), (0.6, 6.0), (99.0, 6.0)],
)
def test_the_factor_follows_the_workload_between_two_bounds(seconds: float, factor: float) -> None:
    assert pace.factor_of(seconds) == factor


def test_a_burst_of_another_process_is_no_load(monkeypatch: pytest.MonkeyPatch) -> None:
    taken = iter([0.5, 0.2])
    monkeypatch.setattr(pace, "work", lambda: next(taken))
    assert pace.measure() == 2.0


@pytest.mark.parametrize(
    ("text", "factor"),
    [
        *((text, None) for text in ("", "fast", "0", "0.5", "7", "nan")),
        *(("1", 1.0), ("2.5", 2.5), ("6", 6.0)),
    ],
)
def test_only_a_factor_within_the_bounds_is_handed_on(text: str, factor: float | None) -> None:
    assert pace.given(text) == factor


def test_the_factor_of_the_run_counts_else_the_process_measures_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    measured: list[float] = []
    monkeypatch.setattr(pace, "measure", lambda: measured.append(3.0) or 3.0)
    monkeypatch.setenv(pace.VARIABLE, "2.5")
    assert Pace().factor == 2.5
    assert not measured
    monkeypatch.setenv(pace.VARIABLE, "nonsense")
    own_pace = Pace()
    assert (own_pace.factor, own_pace.factor, len(measured)) == (3.0, 3.0, 1)


def test_a_deadline_is_longer_on_a_slow_machine(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pace, "measure", lambda: 1.0)
    deadline = Deadline(10, Pace(2.0))
    clock[0] += 19.9
    assert not deadline.is_over()
    clock[0] += 0.1
    assert deadline.is_over()
    assert str(deadline) == "10 s, 20 s at the pace of this machine"
    assert str(Deadline(10, Pace(1.0))) == "10 s"


def test_a_load_that_comes_later_is_noticed_before_a_deadline_fails(
    clock: list[float], monkeypatch: pytest.MonkeyPatch
) -> None:
    measured = iter([3.0, 1.0, 1.0])
    monkeypatch.setattr(pace, "measure", lambda: next(measured))
    deadline = Deadline(10, Pace(1.0))
    clock[0] += 10
    assert not deadline.is_over()
    clock[0] += 19
    # No measurement before: the factor stays at 3.
    assert not deadline.is_over()
    clock[0] += 1
    assert deadline.is_over()
    assert list(measured) == [1.0]


def test_a_wait_that_ends_in_time_measures_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> float:
        raise AssertionError("measured")

    monkeypatch.setattr(pace, "measure", fail)
    monkeypatch.delenv(pace.VARIABLE, raising=False)
    assert not Deadline(1000, Pace()).is_over()


def test_a_state_that_does_not_come_fails_and_names_the_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pace, "measure", lambda: 1.0)
    monkeypatch.setattr(pace.PACE, "_factor", 2.0)
    with pytest.raises(AssertionError, match=r"x: not within 0\.01 s, 0\.02 s at the pace"):
        wait_until("x", lambda: False, seconds=0.01, every=0.001)


@pytest.fixture
def loaded(monkeypatch: pytest.MonkeyPatch) -> None:
    """Begin on a quiet machine, whose load comes later."""
    monkeypatch.setattr(pace.PACE, "_factor", 1.0)
    monkeypatch.setattr(pace, "measure", lambda: 6.0)


SLOW = ["sh", "-c", "sleep 0.4; cat"]


@pytest.mark.usefixtures("loaded")
def test_a_command_may_go_on_under_a_load_that_comes_later() -> None:
    assert run(SLOW, stdin="said\n", seconds=0.2).ok().stdout == "said\n"


@pytest.mark.usefixtures("loaded")
def test_a_process_may_go_on_under_a_load_that_comes_later() -> None:
    pipe = subprocess.PIPE
    with subprocess.Popen(SLOW, stdin=pipe, stdout=pipe, text=True) as process:
        assert pace.communicate(process, 0.2, "said\n")[0] == "said\n"
    with subprocess.Popen(["sleep", "0.4"]) as process:
        assert pace.wait(process, 0.2) == 0


def test_a_command_that_hangs_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace.PACE, "_factor", 1.0)
    monkeypatch.setattr(pace, "measure", lambda: 2.0)
    began = pace.time.monotonic()
    with pytest.raises(AssertionError, match=r"hangs:\n.*\n  begun"):
        run(["sh", "-c", "echo begun; exec sleep 60"], seconds=0.2)
    assert 0.4 <= pace.time.monotonic() - began < 30


def test_a_process_that_hangs_is_left_to_the_test(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pace, "measure", lambda: 1.0)
    with subprocess.Popen(["sleep", "60"]) as process:
        with pytest.raises(subprocess.TimeoutExpired):
            pace.wait(process, 0.05, pace.Pace(1.0))
        assert process.poll() is None
        process.kill()
