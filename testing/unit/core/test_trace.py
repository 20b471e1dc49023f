"""Ids of sessions and requests: their only form, and the id of a thread."""

from __future__ import annotations

import posix
import threading

import pytest

from hgfleet.core import logfmt, trace

ID = "1f2e3d4c5b6a7988"
VARIABLE = trace.VARIABLE.encode()


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(posix.environ, VARIABLE, raising=False)


def test_ids_differ_and_have_the_form_of_one() -> None:
    made = {trace.new() for _ in range(100)}
    assert len(made) == 100
    assert all(map(trace.is_id, made))


@pytest.mark.parametrize(
    "value",
    [None, "", ID[:-1], f"{ID}0", ID.upper(), f"{ID[:-1]}\n", f" {ID[:-1]}", "x" * 16, 16, [ID]],
)
def test_another_form_is_not_accepted(value: object) -> None:
    assert trace.accepted(value) == ""


def test_each_line_of_a_session_has_its_id_last() -> None:
    assert logfmt.line("policy", user="alice") == "event=policy user=alice"
    trace.begin(ID)
    assert logfmt.line("policy", user="alice") == f"event=policy user=alice id={ID}"
    # A relay tells of the sessions of others.
    assert logfmt.line("relay.published", id=None) == "event=relay.published"
    assert logfmt.line("relay.published", id="0" * 16) == f"event=relay.published id={'0' * 16}"


def test_a_process_of_a_session_has_its_id(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(posix.environ, VARIABLE, ID.encode())
    assert trace.current() == ID
    monkeypatch.setitem(posix.environ, VARIABLE, f"{ID} event=x".encode())
    assert trace.current() == ""


def test_threads_work_on_requests_of_their_own() -> None:
    trace.begin(ID)
    seen: list[str] = []
    thread = threading.Thread(target=lambda: seen.append(trace.current()))
    thread.start()
    thread.join()
    assert seen == [""]
    assert trace.current() == ID
