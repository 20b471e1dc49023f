"""A search for a pattern ends on every text."""

from __future__ import annotations

import time

import pytest

from hgfleet.policies import bounded
from hgfleet.policies.bounded import Pattern, SearchTimeoutError


def test_a_search_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bounded, "SECONDS", 0.1)
    start = time.monotonic()
    with pytest.raises(SearchTimeoutError):
        Pattern("(a+)+$").is_in("a" * 60 + "!")
    # Without the clock: longer than the universe is old.
    assert time.monotonic() - start < 20


def test_a_search_looks_at_the_beginning_of_a_long_text() -> None:
    assert not Pattern("needle").is_in("x" * bounded.MAX_TEXT + "needle")
    assert Pattern("needle").is_in("x" * (bounded.MAX_TEXT - 6) + "needle")
