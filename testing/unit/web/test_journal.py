from __future__ import annotations

import json

import pytest

from hgfleet.web.http import journal


def test_an_event_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    journal.report("error", "one\ntwo", "abc")
    said = capsys.readouterr().err
    assert said.count("\n") == 1
    assert json.loads(said) == {"event": "error", "id": "abc", "message": "one\ntwo"}


def test_an_exception_is_described_in_a_line_with_its_innermost_calls() -> None:
    def fail(depth: int) -> None:
        if depth:
            fail(depth - 1)
        raise ValueError("several\n  lines " + "and more " * 1000)

    with pytest.raises(ValueError, match="several") as caught:
        fail(9)
    text = journal.described(caught.value)
    assert text.startswith("ValueError: several lines and more ")
    assert "\n" not in text
    assert len(text) < 700
    assert text.count("test_journal.py:") == 4
    assert journal.described(KeyError("x")) == "KeyError: 'x'"
