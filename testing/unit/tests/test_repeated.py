"""A repeated test: the reason of its first failure is in the log, the summary and the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.tests import commands, execution
from controller.tests.execution import Executor
from controller.tests.outcome import Failure, Outcome, repeated_of, summary, too_many_repeated
from controller.tests.repeated import MOST_LINES, Repeats
from testing.support.repeated import MARK

if TYPE_CHECKING:
    from pathlib import Path

TESTS = """
import pathlib, pytest

def is_first(name):
    mark = pathlib.Path(__file__).with_name(name)
    known = mark.exists()
    mark.touch()
    return not known

def test_good():
    pass

def test_flaky():
    assert not is_first("a"), "the broker answers 503"

@pytest.fixture
def repository():
    yield
    if is_first("b"):
        raise OSError("the lock stays")

def test_flaky_twice(repository):
    assert not is_first("c"), "the mirror is late"

@pytest.fixture
def host():
    if is_first("d"):
        raise OSError("no host")

def test_flaky_set_up(host):
    pass
"""


@pytest.fixture(autouse=True)
def logs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep logs of these steps out of the logs of the run that tests them."""
    for module in (execution, commands):
        monkeypatch.setattr(module, "LOGS", tmp_path / "logs")
    return tmp_path / "logs"


@pytest.mark.parametrize("workers", [1, 2])
def test_a_repeated_test_keeps_the_reason_of_its_first_failure(
    workers: int, tmp_path: Path, logs: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "REPEAT", ("--reruns", "1", *commands.REPEAT[4:]))
    file = tmp_path / "test_x.py"
    file.write_text(TESTS)
    step = commands.pytest("e2e", "service", str(file), words="", workers=workers)
    outcome = Executor().run(step)
    assert (outcome.passed, outcome.failed) == (4, 0)
    reasons = {of.title.partition("::")[2]: of.text for of in outcome.repeated}
    assert reasons.keys() == {"test_flaky", "test_flaky_twice", "test_flaky_set_up"}
    assert "the broker answers 503" in reasons["test_flaky"]
    assert "the mirror is late" in reasons["test_flaky_twice"]
    assert "no host" in reasons["test_flaky_set_up"]
    log = (logs / "e2e-service.log").read_text()
    assert f"{MARK}E       AssertionError: the broker answers 503\n" in log
    assert f"{MARK}E           OSError: the lock stays\n" in log


def test_a_reason_ends_with_the_first_line_that_is_not_of_it() -> None:
    repeats = Repeats()
    repeats.begin("a")
    taken = [repeats.line(line) for line in ("  | E   x", "  |", "  |     y", "", "  | z")]
    assert taken == [True, True, True, False, False]
    assert repeats.found() == [Failure("a", "E   x\n\n    y")]


def test_a_test_that_fails_again_as_it_cleans_up_is_one_repeated_test() -> None:
    repeats = Repeats()
    for text in ("E   x", "E   y"):
        repeats.begin("a")
        repeats.line(f"{MARK}{text}")
    assert repeats.found() == [Failure("a", "E   x\nE   y")]


def test_a_long_reason_is_shown_around_its_error() -> None:
    repeats = Repeats()
    repeats.begin("a")
    for number in range(200):
        repeats.line(f"{MARK}line {number}")
    repeats.line(f"{MARK}E   AssertionError: late")
    (failure,) = repeats.found()
    assert len(failure.text.splitlines()) <= MOST_LINES
    assert failure.text.endswith("E   AssertionError: late")


def repeated(*tests: Failure) -> Outcome:
    return Outcome("e2e", "service", passed=9, repeated=list(tests))


def test_the_summary_shows_the_reason() -> None:
    outcome = repeated(Failure("test_a.py::test_x", "    assert 1 == 2\nE   assert 1 == 2"))
    text, code = summary([outcome], {"e2e": 1.0})
    assert code == 0
    assert (
        "Failed at first and run once more (3 of a run at most):\n"
        "  e2e: test_a.py::test_x\n"
        "  |     assert 1 == 2\n"
        "  | E   assert 1 == 2\n"
    ) in text


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("def test():\nE       AssertionError: late\nE       assert 0", ": AssertionError: late"),
        ("--- a.t\n+++ a.t (found)\n@@ -1 +1 @@\n   $ hg push\n-  ok\n+  abort: no", ": -  ok"),
        ("\nTraceback:\n  OSError: no host", ": Traceback:"),
        ("E   " + "x" * 1000, ": " + "x" * 300 + " ..."),
        ("", ""),
    ],
    ids=["the error", "a story", "the first line", "shortened", "none"],
)
def test_the_record_has_the_reason_in_one_line(text: str, reason: str) -> None:
    assert repeated_of([repeated(Failure("a::b", text))]) == [f"e2e: a::b{reason}"]


def test_too_many_repeated_tests_are_listed_with_their_reasons() -> None:
    tests = [Failure(f"a::{number}", "E   late") for number in range(4)]
    assert too_many_repeated([repeated(*tests[:3])]) == []
    (outcome,) = too_many_repeated([repeated(*tests)])
    (failure,) = outcome.failures
    assert "e2e: a::3: late" in failure.text.splitlines()
