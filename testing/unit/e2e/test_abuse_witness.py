"""testing/e2e/abuse/witness.py: lines and files belong to the input that was under way."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.e2e.abuse import witness
from testing.e2e.abuse.witness import Line, Witness

if TYPE_CHECKING:
    from collections.abc import Sequence

BEGUN = {"a shell": 100.0, "a pipe": 110.0, "a line": 120.0}


class Journal(Witness):
    """A witness whose host logs a line for each input that is not silent."""

    def __init__(self, silent: Sequence[str] = ()) -> None:
        super().__init__(root=None, cursor="")  # type: ignore[arg-type]
        self.silent = silent

    def lines(self, *programs: str) -> list[Line]:
        return [
            Line(programs[0], f"event=session of {name}", begun)
            for name, begun in self.begun.items()
            if name not in self.silent
        ]


def test_a_line_is_of_the_last_input_that_began_before_it() -> None:
    lines = [Line("x", text, moment) for text, moment in (("0", 99), ("1", 100), ("2", 119.9))]
    assert witness.by_input(BEGUN, lines) == {
        "a shell": [lines[1]],
        "a pipe": [lines[2]],
        "a line": [],
    }


def test_a_changed_host_is_told_with_the_input_that_wrote_a_file() -> None:
    begun = {"a shell": 1_700_000_000.5, "a pipe": 1_700_000_010.5}
    before = ["listens 22", "folder drwxr-xr-x hg /tmp"]
    written = "file -rw-r--r-- hg /tmp/x 3 1700000004.25 "
    after = [*before[1:], written, "listens 8000"]

    assert witness.differences(before, before, begun) == []
    assert witness.differences(before, after, begun) == [
        f"new: {written} (during the input 'a shell')",
        "new: listens 8000",
        "gone: listens 22",
    ]


def test_one_input_is_chosen_by_its_name() -> None:
    inputs = {"a shell": "sh", "a pipe": "|"}
    assert witness.chosen(inputs, None) == inputs
    assert witness.chosen(inputs, "a pipe") == {"a pipe": "|"}
    assert witness.chosen(inputs, "no input") == {}


def test_a_failure_names_every_input_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(witness.INPUT, raising=False)

    def send(value: str) -> str:
        assert value != "sh", "it was let in"
        return value

    inputs = {"a shell": "sh", "a pipe": "|", "a line": "\n"}
    with pytest.raises(AssertionError) as failure:
        Journal(silent=["a line"]).try_each(inputs, send, lambda _, lines: witness.only_line(lines))
    said = str(failure.value)
    assert said.startswith("2 of 3 inputs failed.")
    assert "the input 'a shell': it was let in" in said
    assert "the input 'a line': expected one line: []" in said
    assert "'a pipe'" not in said
    with pytest.raises(AssertionError, match="1 of 1 inputs failed"):
        Journal().try_each({"a shell": "sh"}, send, lambda *_: None)


def test_a_run_of_one_input_skips_tests_without_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(witness.INPUT, "a pipe")
    sent: list[str] = []
    Journal().try_each({"a shell": "sh", "a pipe": "|"}, sent.append, lambda *_: None)
    assert sent == ["|"]
    with pytest.raises(pytest.skip.Exception):
        Journal().try_each({"a line": "\n"}, sent.append, lambda *_: None)


def test_a_refusal_is_one_printable_line_of_the_person() -> None:
    line = Line("hgfleet-shell", "event=session decision=refuse reason=x user=bob y", 1)
    assert witness.refusal([line]) == line.text
    for lines in (
        [],
        [line, line],
        [Line("hgfleet-shell", line.text + "\n", 1)],
        [Line("hgfleet-shell", line.text.replace("bob", "alice"), 1)],
        [Line("hgfleet-shell", line.text.replace("refuse", "serve"), 1)],
    ):
        with pytest.raises(AssertionError):
            witness.refusal(lines)
