"""Status of replication on a host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.core.errors import UnavailableError
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.mirror import status
from hgfleet.replication.source.client import Position

if TYPE_CHECKING:
    from pathlib import Path

WELL: dict[str, Any] = {
    "role": "mirror",
    "caught_up": True,
    "lease_until": 1005.0,
    "waiting": 0,
    "parked": {},
    "positions": 12,
}


def test_a_mirror_that_has_caught_up_is_well() -> None:
    assert status.is_well(WELL, 1000.0)
    assert status.lines(WELL, 1000.0) == [
        "the lease lasts for 5.0 s more",
        "this mirror has caught up; 0 pushes wait",
        "",
        "positions  12",
        "role       mirror",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        (
            {"broker": {"connected": True, "problem": "the stream takes no more messages"}},
            "the broker refuses messages: the stream takes no more messages; 3 repositories wait",
        ),
        (
            {"broker": {"connected": False, "problem": "no broker answers"}},
            "no broker is connected: no broker answers; 3 repositories wait, for 61.0 s",
        ),
        ({"problems": {"a/b": "the log is damaged"}}, "problem a/b"),
        ({"fenced_repositories": 1, "fenced": {"7d": ["a", "fenced"]}}, "a: fenced"),
    ],
)
def test_a_primary_whose_pushes_do_not_go_out_is_not_well(
    change: dict[str, Any], sentence: str
) -> None:
    state: dict[str, Any] = {
        "role": "primary",
        "broker": {"connected": True, "problem": "", "warnings": []},
        "waiting": 3,
        "waiting_seconds": 61.0,
        "problems": {},
        "fenced_repositories": 0,
    }
    assert status.is_well(state, 1000.0)
    assert not status.is_well(state | change, 1000.0)
    assert sentence in "\n".join(status.lines(state | change, 1000.0))


def test_documents_that_a_mirror_cannot_bring_are_named() -> None:
    state = WELL | {"away": {"tokens": "no answer"}, "documents_away": 1}
    assert "tokens: not brought: no answer" in status.lines(state, 1000.0)


def test_the_state_of_a_primary_is_a_table() -> None:
    state = {
        "role": "primary",
        "written": 86400.0,
        "broker": {"connected": True, "problem": "", "warnings": ["stream x: replicas is 1"]},
        "events": {"waiting": 2, "seconds": 1.5, "mirrors": [], "problems": []},
        "mirrors": {"hgweb1": {"live": True, "lease_until": 0.0, "waiting": 0}, "hgweb2": {}},
        "problems": {"": "the repositories cannot be listed", "a/b": "the log is damaged"},
        "fenced": {"7d" * 16: ["a/c", "fenced: push 3"]},
        "fenced_repositories": 1,
    }
    assert status.lines(state, 1000.0) == [
        "a/c: fenced: push 3",
        "",
        "broker connected  yes",
        "broker problem    none",
        "broker warnings   stream x: replicas is 1",
        "events waiting    2",
        "events seconds    1.5",
        "events mirrors    none",
        "events problems   none",
        "mirrors hgweb1    live yes, lease_until 0.0, waiting 0",
        "mirrors hgweb2    none",
        "problem           the repositories cannot be listed",
        "problem a/b       the log is damaged",
        "role              primary",
        "written           1970-01-02 00:00:00Z",
    ]


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ({"caught_up": False, "waiting": 3}, "has not caught up yet; 3 pushes wait"),
        ({"lease_until": 990.0}, "the lease ended 10 s ago"),
        (
            {"parked": {"7d" * 16: ["a/b", "poison"]}},
            "a/b: parked: poison; `hgfleet replication resync a/b`",
        ),
        (
            {"refused": {"tokens": "generation 1.1 of the primary is older"}},
            "tokens: refused: generation 1.1 of the primary is older; `hgfleet replication begin-",
        ),
        ({"aside": {"aside-7d": ["a/b", "it is lost"]}}, "a/b: set aside: it is lost"),
        # A state of the release before.
        ({"parked": {"a/b": "poison"}}, "a/b: parked: poison; `hgfleet replication resync a/b`"),
    ],
)
def test_a_fault_is_named(change: dict[str, Any], sentence: str) -> None:
    state = WELL | change
    assert not status.is_well(state, 1000.0)
    assert any(sentence in line for line in status.lines(state, 1000.0))


def test_what_waits_is_named_with_its_reason() -> None:
    waits = {"7d" * 16: ["a/b", "another process holds the lock"]}
    told = status.lines(WELL | {"waits": waits, "source": "no route", "unserved": []}, 1000.0)
    assert told[:2] == [
        "a/b: waits: another process holds the lock",
        "the lease lasts for 5.0 s more",
    ]
    assert "the source is away: no route" in told
    assert not any(line.startswith(("waits", "unserved", "source")) for line in told)


@pytest.mark.parametrize("change", [{"caught_up": 1}, {"lease_until": None}, {"lease_until": "x"}])
def test_a_state_of_another_form_is_not_well(change: dict[str, Any]) -> None:
    assert not status.is_well(WELL | change, 1000.0)


def test_a_state_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    with pytest.raises(UnavailableError, match="systemctl status"):
        status.load(tmp_path)
    for text in ("{", "[]", "[" * 100_000):
        (tmp_path / status.FILE).write_text(text)
        with pytest.raises(UnavailableError, match="not a state of replication"):
            status.load(tmp_path)


def test_a_lease_of_the_future_is_none() -> None:
    """The clock ran ahead, and was set back since."""
    state = WELL | {"lease_until": 1000.0 + 3600}
    assert not status.is_well(state, 1000.0)
    assert "the lease ends in the far future" in "\n".join(status.lines(state, 1000.0))


def test_another_push_of_the_number_of_the_last_one_is_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = tmp_path / "a/.hg/store"
    store.mkdir(parents=True)
    identity = "7d" * 16
    line = Record(1, identity, "push", "alice", 1, FIRST, heads=Heads(digest="0" * 64)).line()
    (store / "pushlog").write_bytes(line + b"\n")
    known = SimpleNamespace(paths={identity: "a"})
    monkeypatch.setattr(status, "RegistryPaths", lambda _: SimpleNamespace(read=lambda: known))
    settings: Any = SimpleNamespace(repositories=tmp_path)

    def behind(number: int, hash_: str) -> list[int]:
        there = Position(identity, "a", number, hash_)
        return [here for _, here in status.behind(settings, [there])]

    assert behind(1, hash_of(line)) == []
    assert behind(1, "ff" * 32) == [0]
    assert behind(2, "ff" * 32) == [1]
