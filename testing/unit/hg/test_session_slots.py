"""Slots of sessions, and the data of pushes next to them."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg.sessions import session_slots
from hgfleet.hg.sessions.client_stream import ClientStream
from hgfleet.hg.sessions.incoming import DisconnectedError, SessionEndError, SpoolLimits

if TYPE_CHECKING:
    from pathlib import Path

LIMITS = SpoolLimits(push=1000, person=1500, free=0)


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_a_person_has_so_many_slots_and_others_have_their_own(tmp_path: Path) -> None:
    folder = str(tmp_path)
    held = [session_slots.take(folder, "alice", 2) for _ in range(2)]
    with pytest.raises(SessionEndError, match="2 at a time are allowed") as raised:
        session_slots.take(folder, "alice", 2)
    assert raised.value.reason == "sessions"
    session_slots.take(folder, "alice.1", 2).leave()
    session_slots.take(folder, "bob", 2).leave()
    held[0].leave()
    assert session_slots.take(folder, "alice", 2).number == 0


def test_a_folder_that_is_missing_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        session_slots.take(str(tmp_path / "none"), "alice", 2)


def test_received_data_is_on_disk_until_the_end_of_the_push(tmp_path: Path) -> None:
    slot = session_slots.take(str(tmp_path), "alice", 2)
    with session_slots.received(slot, [b"one", b"two"], LIMITS) as file:
        assert file.read() == b"onetwo"
        path = tmp_path / "alice.0.push"
        assert path.read_bytes() == b"onetwo"
        assert path.stat().st_mode & 0o777 == 0o600
    assert names(tmp_path) == ["alice.0.slot"]


def test_a_push_ends_at_its_limit_and_leaves_nothing(tmp_path: Path) -> None:
    slot = session_slots.take(str(tmp_path), "alice", 2)
    pieces = iter([b"x" * 600] * 10)
    with (
        pytest.raises(SessionEndError, match="1200 bytes were sent"),
        session_slots.received(slot, pieces, LIMITS),
    ):
        pass
    assert len(list(pieces)) == 8, "the client's data was read past the limit"
    assert names(tmp_path) == ["alice.0.slot"]


def test_pushes_of_a_person_are_counted_together_and_those_of_others_are_not(
    tmp_path: Path,
) -> None:
    folder = str(tmp_path)
    first, second = (session_slots.take(folder, "alice", 2) for _ in range(2))
    other = session_slots.take(folder, "alice.0", 2)
    with session_slots.received(first, [b"x" * 900], LIMITS):
        assert session_slots.bytes_of(folder, "alice") == 900
        with session_slots.received(other, [b"x" * 900], LIMITS):
            assert session_slots.bytes_of(folder, "alice") == 900
        with (
            pytest.raises(SessionEndError, match="push again when the others are done"),
            session_slots.received(second, [b"x" * 900], LIMITS),
        ):
            pass
    with session_slots.received(second, [b"x" * 900], LIMITS) as file:
        assert len(file.read()) == 900


def test_a_push_may_not_begin_where_the_disk_is_full(tmp_path: Path) -> None:
    slot = session_slots.take(str(tmp_path), "alice", 2)
    assert session_slots.check_room(slot, LIMITS) is None
    full = SpoolLimits(push=1000, person=1500, free=2**62)
    assert "stay free" in str(session_slots.check_room(slot, full))


def test_leftovers_of_killed_sessions_are_removed_and_live_data_stays(tmp_path: Path) -> None:
    folder = str(tmp_path)
    live = session_slots.take(folder, "bob", 2)
    (tmp_path / "bob.0.push").write_bytes(b"live")
    (tmp_path / "bob.1.push").write_bytes(b"left over")
    (tmp_path / "carol.0.push").write_bytes(b"left over")
    session_slots.remove_leftovers(folder)
    assert [name for name in names(tmp_path) if name.endswith(".push")] == ["bob.0.push"]
    live.leave()


def test_a_link_in_place_of_the_data_is_not_followed(tmp_path: Path) -> None:
    slot = session_slots.take(str(tmp_path), "alice", 2)
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "alice.0.push").symlink_to(target)
    with pytest.raises(OSError), session_slots.received(slot, [b"x"], LIMITS):  # noqa: PT011
        pass
    assert target.read_text() == "precious"


# --- the stream -------------------------------------------------------------------------------


def stream(data: bytes, idle: float = 60, stall: float = 60) -> ClientStream:
    """Return a stream of a client that sends this and disconnects."""
    read, write = os.pipe()
    os.write(write, data)
    os.close(write)
    return ClientStream(read, idle, stall)


def test_commands_lines_and_data_are_read_in_turn() -> None:
    client = stream(b"lookup\nkey 3\nabcheads\n")
    assert client.readline() == b"lookup\n"
    assert client.line() == b"key 3"
    assert client.take(3) == b"abc"
    assert client.readline() == b"heads\n"
    assert client.readline() == b""
    assert client.command == "heads"


def test_a_client_that_disconnects_inside_of_a_request_is_told_apart() -> None:
    for data, size in ((b"lookup\nkey", 0), (b"lookup\nkey 3\nab", 3)):
        client = stream(data)
        client.readline()
        with pytest.raises(DisconnectedError):
            client.take(len(client.line()) and size)


def test_a_line_without_an_end_is_not_read_to_its_end() -> None:
    for data in (b"x" * 60_000, b"x" * 60_000 + b"\n"):
        with pytest.raises(SessionEndError, match="a line of more than 1024 bytes"):
            stream(data).readline()


def test_a_silent_client_is_idle_between_requests_and_stalled_inside_of_one() -> None:
    read, write = os.pipe()
    client = ClientStream(read, 0, 0)
    with pytest.raises(SessionEndError) as raised:
        client.readline()
    assert raised.value.reason == "idle"
    os.write(write, b"lookup\nkey")
    assert client.readline() == b"lookup\n"
    with pytest.raises(SessionEndError) as raised:
        client.line()
    assert raised.value.reason == "stalled"


def test_nothing_is_read_after_the_end() -> None:
    client = stream(b"unbundle\n99\nheads\n")
    client.readline()
    client.end()
    assert client.readline() == b""
