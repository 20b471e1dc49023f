from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import TemporaryError
from hgfleet.integrity import check as checking
from hgfleet.integrity import state
from hgfleet.integrity.check import check
from hgfleet.integrity.plan import Checked
from hgfleet.integrity.state import State

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    (tmp_path / ".hg/store").mkdir(parents=True)
    (tmp_path / ".hg/store/00changelog.i").write_bytes(b"one")
    return tmp_path


def test_a_problem_of_a_repository_at_rest_counts(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checking, "state", lambda _: 1)
    assert check(repository, lambda _: "file.txt@2: unpacking\nx") == "file.txt@2: unpacking\\x0ax"
    assert check(repository, lambda _: "") == ""


def test_a_problem_beside_a_push_is_looked_at_again(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter([1, 2, 3, 3])
    monkeypatch.setattr(checking, "state", lambda _: next(states))
    answers = iter(["unknown parent", ""])
    assert check(repository, lambda _: next(answers)) == ""


def test_a_repository_that_always_changes_has_no_result(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    states = iter(range(100))
    monkeypatch.setattr(checking, "state", lambda _: next(states))
    with pytest.raises(TemporaryError, match="it changed each time that it was read"):
        check(repository, lambda _: "unknown parent")


def test_a_transaction_and_a_fresh_change_are_no_state_at_rest(repository: Path) -> None:
    # The clock of files ticks: a file that has just changed may change again unseen.
    assert checking.state(repository) is None
    (repository / ".hg/store/journal").touch()
    assert checking.state(repository) is None


def test_the_state_file_is_read_as_it_was_written(tmp_path: Path) -> None:
    bad = Checked(1.0, 2.0, 0.5, 10, "bad", "a" * 32)
    written = State(7, 3.5, {"a": bad, "b": Checked(1.0)})
    state.save(written, tmp_path)
    assert state.load(tmp_path) == written
    assert written.data()["corrupt"] == ["a"]
    assert (tmp_path / state.NAME).stat().st_mode & 0o777 == 0o640


def test_the_state_file_of_the_release_before_is_read(tmp_path: Path) -> None:
    state.save(State(7, 3.5, {"a": Checked(1.0, 2.0, 0.5, 10, "bad")}), tmp_path)
    file = tmp_path / state.NAME
    data = json.loads(file.read_text())
    del data["repositories"]["a"]["identity"]
    file.write_text(json.dumps(data))
    assert state.load(tmp_path).repositories == {"a": Checked(1.0, 2.0, 0.5, 10, "bad")}


def test_figures_are_for_every_user_and_name_no_repository(tmp_path: Path) -> None:
    written = State(7, 3.5, {"secret": Checked(1.0, 2.0, 0.5, 10, "bad"), "b": Checked(1.5)})
    state.save(written, tmp_path)
    file = tmp_path / state.FIGURES
    assert file.stat().st_mode & 0o777 == 0o644
    assert "secret" not in file.read_text()
    # The days of a new repository begin when it is there.
    assert state.parse_figures(file.read_bytes()) == state.Figures(7, 3.5, 2, 1, 1.5)
    assert state.figures(State(), 0.0) == state.Figures(state.DAYS, 0, 0, 0, 0)


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"format": 1}', '{"format": 2}'])
def test_damaged_figures_are_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"Expecting value|not the figures|got the format"):
        state.parse_figures(text)


@pytest.mark.parametrize("text", ["", "[]", '{"days": 1}', '{"repositories": {"a": {"x": 1}}}'])
def test_a_damaged_state_file_is_that_of_a_host_without_results(tmp_path: Path, text: str) -> None:
    (tmp_path / state.NAME).write_text(text)
    assert state.load(tmp_path) == State()
