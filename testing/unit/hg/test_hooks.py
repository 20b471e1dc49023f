"""Sentences that a reply to a push has room for."""

from __future__ import annotations

import pytest

from hgfleet.hg.hooks import MAX_MESSAGE, fitting


@pytest.mark.parametrize("letter", ["x", "\u00e9", "\u4e2d", "\U0001f600"])
def test_a_message_is_cut_at_a_letter(letter: str) -> None:
    whole = ("x" * 3 + letter * 300).encode()
    cut = fitting(whole)
    assert MAX_MESSAGE - 4 < len(cut) <= MAX_MESSAGE
    assert cut.endswith(b"...")
    assert whole.decode().startswith(cut.decode()[:-3])


def test_a_message_that_fits_stays() -> None:
    for message in (b"", b"x" * MAX_MESSAGE, b"\xff" * MAX_MESSAGE):
        assert fitting(message) == message
