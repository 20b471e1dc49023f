from __future__ import annotations

import math
from typing import TYPE_CHECKING

import pytest
from mercurial import bundle2, error
from mercurial import ui as uimod

from hgfleet.web.rendering import stream_limits
from hgfleet.web.rendering.budgets import Budget
from hgfleet.web.rendering.stream_limits import ReachedError, Stream

if TYPE_CHECKING:
    from collections.abc import Iterator

BUDGET = Budget(3600.0, 2**30, 3600.0)


def stream(limits: Budget = BUDGET, reserved: list[str] | None = None) -> Stream:
    add = (reserved if reserved is not None else []).append
    return Stream(limits, "too much; take less", "1f2e3d4c5b6a7988", lambda: add("reserve"))


def failing(problem: Exception) -> Iterator[bytes]:
    yield b"piece"
    raise problem


def answer(of: Stream, pieces: Iterator[bytes], kind: str = "bundle2") -> bytes:
    """Return all that a client gets of an answer with these pieces in a changegroup."""
    within = stream_limits._within(of, pieces)
    if kind != "bundle2":
        return b"".join(stream_limits._told(of, within))
    bundler = bundle2.bundle20(uimod.ui())
    bundler.newpart(b"changegroup", data=within)
    return b"".join(stream_limits._told(of, bundler.getchunks()))


def test_a_whole_answer_has_no_problem() -> None:
    of = stream()
    assert b"piece" in answer(of, iter([b"piece"]))
    assert (of.problem, of.is_told) == (None, False)


@pytest.mark.parametrize(
    ("limits", "name"),
    [
        (BUDGET._replace(cpu_seconds=-1.0), "processor time"),
        (BUDGET._replace(seconds=-1.0), "time"),
    ],
)
def test_a_limit_is_an_error_in_the_answer(limits: Budget, name: str) -> None:
    of = stream(limits)
    assert b"too much; take less" in answer(of, iter([b"piece"]))
    assert isinstance(of.problem, ReachedError)
    assert (str(of.problem), of.is_told) == (name, True)


def test_the_error_about_memory_has_memory_of_its_own() -> None:
    reserved: list[str] = []
    of = stream(reserved=reserved)
    assert b"too much; take less" in answer(of, failing(MemoryError()))
    assert (str(of.problem), of.is_told, reserved) == ("memory", True, ["reserve"])


def test_a_failure_names_the_id_and_no_more() -> None:
    problem = OSError(5, "Input/output error", "/srv/hg/repos/team/x")
    of = stream()
    body = answer(of, failing(problem))
    assert b"find the reason as 1f2e3d4c5b6a7988" in body
    assert b"/srv" not in body
    assert (of.problem, of.is_told) == (problem, True)


def test_a_sentence_of_core_stays_and_is_a_problem() -> None:
    problem = error.Abort(b"a sentence of core")
    of = stream()
    assert b"a sentence of core" in answer(of, failing(problem))
    assert (of.problem, of.is_told) == (problem, True)


def test_an_answer_that_is_no_bundle2_tells_nothing() -> None:
    of = stream()
    assert answer(of, failing(MemoryError()), "changegroup") == b"piece"
    assert (str(of.problem), of.is_told) == ("memory", False)


def test_the_kernel_ends_a_stream_later_than_the_stream_itself() -> None:
    assert stream_limits.hard(10.0) > 10.0
    assert stream_limits.hard(0.1) > 2.0
    assert math.isfinite(stream_limits.hard(86400.0))
