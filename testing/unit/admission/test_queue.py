"""Clones that are served, that wait and that are refused; and the queue of a host."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.admission import queue
from hgfleet.admission.queue import BusyError, Limits, Position, Ticket

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parents[3]
LIMITS = Limits(slots=2, waiting=3, patience=60, hold=60)


def served(*numbers: int) -> list[Ticket]:
    return [Ticket(number, is_served=True) for number in numbers]


def waiting(*numbers: int, is_fresh: bool = True) -> list[Ticket]:
    return [Ticket(number, is_served=False, is_fresh=is_fresh) for number in numbers]


# --- decisions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changesets", "of", "weighs_much", "expected"),
    [
        (1000, 1000, False, True),
        (1000, 10**6, False, True),
        (999, 999, False, False),
        (999, 999, True, True),
        (1, 1, True, True),
        (0, 1, True, False),
        # All but the first changeset, a tenth, less.
        (998, 999, True, True),
        (100, 1000, True, True),
        (99, 1000, True, False),
    ],
)
def test_clones_and_large_parts_count(
    changesets: int, of: int, weighs_much: bool, expected: bool
) -> None:
    decided = queue.is_costly(
        changesets, of=of, most_changesets=1000, weighs_much=lambda: weighs_much
    )
    assert decided is expected


def test_the_size_is_not_looked_at_for_ordinary_pulls_and_large_ones() -> None:
    def look() -> bool:
        pytest.fail("it was looked at")

    for changesets, of in ((5000, 5000), (10, 500), (0, 10), (0, 0)):
        queue.is_costly(changesets, of=of, most_changesets=1000, weighs_much=look)


@pytest.mark.parametrize(
    ("tickets", "mine", "expected"),
    [
        (waiting(1), 1, None),
        ([*served(1), *waiting(2)], 2, None),
        ([*served(1, 2), *waiting(3)], 3, Position(2, 0)),
        ([*served(1, 2), *waiting(3, 4, 5)], 5, Position(2, 2)),
        # A slot is free: the first clone that waits gets it.
        ([*served(2), *waiting(3, 4)], 3, None),
        ([*served(2), *waiting(3, 4)], 4, Position(1, 1)),
        # A clone that does not ask is passed over, and is in front again once it asks.
        ([*served(2), *waiting(3, is_fresh=False), *waiting(4)], 4, None),
        ([*served(2), *waiting(3, is_fresh=False), *waiting(4)], 3, None),
        # Fewer slots than before: clones that are being served go on.
        ([*served(1, 2, 3), *waiting(4)], 4, Position(3, 0)),
    ],
)
def test_the_first_that_waits_has_the_next_slot(
    tickets: list[Ticket], mine: int, expected: Position | None
) -> None:
    assert queue.position(tickets, mine, slots=2) == expected


@pytest.mark.parametrize(
    ("tickets", "limits", "is_refused"),
    [
        ([], LIMITS, False),
        ([*served(1, 2), *waiting(3, 4)], LIMITS, False),
        ([*served(1, 2), *waiting(3, 4, 5)], LIMITS, True),
        ([*served(1, 2), *waiting(3, 4), *waiting(5, is_fresh=False)], LIMITS, False),
        # The queue has no place, and a slot is free.
        (served(1), Limits(slots=2, waiting=0, patience=1, hold=1), False),
        (served(1, 2), Limits(slots=2, waiting=0, patience=1, hold=1), True),
    ],
)
def test_beyond_the_most_that_wait_one_is_refused(
    tickets: list[Ticket], limits: Limits, is_refused: bool
) -> None:
    assert (queue.refusal(tickets, limits) is not None) is is_refused


def test_sentences_say_how_many_there_are() -> None:
    assert str(Position(1, 0)) == "waiting for a slot: 1 clone is being served"
    assert str(Position(2, 3)) == (
        "waiting for a slot: 2 clones are being served, and 3 wait before this clone"
    )
    assert queue.refusal([*served(1, 2), *waiting(3, 4, 5)], LIMITS) == (
        "2 clones are being served and 3 wait; try again in some minutes"
    )
    # bundle2: hg dies of a longer sentence.
    assert len(queue.gave_up(Position(999, 999), LIMITS)) < 255


def test_those_in_front_ask_more_often() -> None:
    assert [Position(2, before).pause_seconds for before in (0, 1, 3, 7, 100)] == [
        0.25,
        0.5,
        1,
        2,
        2,
    ]


def test_a_store_is_looked_at_no_longer_than_it_has_to_be(tmp_path: Path) -> None:
    (tmp_path / "data/deep").mkdir(parents=True)
    (tmp_path / "data/deep/large.i").write_bytes(b"x" * 600)
    (tmp_path / "00changelog.i").write_bytes(b"x" * 600)
    assert queue.weighs_more(tmp_path, 1000)
    assert not queue.weighs_more(tmp_path, 1200)


# --- the queue --------------------------------------------------------------------------------


@pytest.fixture
def stranger(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Another process that has a slot."""
    script = (
        "import sys; from pathlib import Path; from hgfleet.admission import queue as a\n"
        "place = a.enter(Path(sys.argv[1]), a.Limits(2, 3, 60, 60), 'other process')\n"
        "print(place.ask(), flush=True); sys.stdin.read()"
    )
    process = subprocess.Popen(
        [sys.executable, "-c", script, str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "None\n"
    yield process
    process.kill()
    process.communicate()


def names(folder: Path) -> list[str]:
    return sorted(path.name for path in folder.iterdir())


def test_clones_take_turns(tmp_path: Path) -> None:
    places = [queue.enter(tmp_path, LIMITS, f"repo={n}") for n in range(4)]
    assert [place.ask() for place in places] == [None, None, Position(2, 0), Position(2, 1)]
    assert names(tmp_path) == [
        "000000000001.served",
        "000000000002.served",
        "000000000003.waiting",
        "000000000004.waiting",
    ]
    assert (tmp_path / "000000000003.waiting").read_text() == "repo=2\n"
    places[0].leave()
    # No clone overtakes: neither the clone behind, nor a clone that comes now.
    late = queue.enter(tmp_path, LIMITS, "late")
    assert late.ask() == Position(1, 2)
    assert places[3].ask() == Position(1, 1)
    assert places[2].ask() is None
    for place in (*places, late):
        place.leave()
    assert names(tmp_path) == []


def test_one_too_many_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    places = [queue.enter(tmp_path, LIMITS, "") for _ in range(2)]
    assert [place.ask() for place in places] == [None, None]
    places += [queue.enter(tmp_path, LIMITS, "") for _ in range(3)]
    before = names(tmp_path)
    with pytest.raises(BusyError, match="2 clones are being served and 3 wait"):
        queue.enter(tmp_path, LIMITS, "")
    assert names(tmp_path) == before
    places[4].leave()
    queue.enter(tmp_path, LIMITS, "").leave()


def test_a_killed_process_gives_its_slot_back(
    tmp_path: Path, stranger: subprocess.Popen[str]
) -> None:
    mine = queue.enter(tmp_path, LIMITS, "")
    next_one = queue.enter(tmp_path, LIMITS, "")
    assert mine.ask() is None
    assert next_one.ask() == Position(2, 0)
    stranger.kill()
    stranger.wait()
    assert next_one.ask() is None
    assert names(tmp_path) == ["000000000002.served", "000000000003.served"]


def test_one_that_does_not_ask_is_passed_over(tmp_path: Path) -> None:
    limits = Limits(slots=1, waiting=3, patience=60, hold=60)
    served, silent, next_one = (queue.enter(tmp_path, limits, "") for _ in range(3))
    assert served.ask() is None
    assert silent.ask() == Position(1, 0)
    assert next_one.ask() == Position(1, 1)
    served.leave()
    assert next_one.ask() == Position(0, 1)
    os.utime(tmp_path / "000000000002.waiting", (0, 0))
    assert next_one.ask() is None
    next_one.leave()
    assert silent.ask() is None


def test_a_slot_is_free_after_the_longest_time(tmp_path: Path) -> None:
    limits = Limits(slots=1, waiting=3, patience=60, hold=0.05)
    slow, next_one = (queue.enter(tmp_path, limits, "") for _ in range(2))
    assert slow.ask() is None
    late = threading.Event()
    slow.hold(late.set)
    assert late.wait(10)
    # A place is given back once.
    assert not slow.leave()
    assert next_one.ask() is None


def test_a_clone_that_ends_in_time_is_not_late(tmp_path: Path) -> None:
    place = queue.enter(tmp_path, LIMITS, "")
    place.ask()
    place.hold(lambda: pytest.fail("it was in time"))
    seen: list[str] = []
    assert place.leave(lambda: seen.extend(names(tmp_path)))
    assert seen == ["000000000001.served"]
    assert names(tmp_path) == []
    assert not place.leave(lambda: pytest.fail("once is enough"))


def test_a_folder_that_nobody_unlocks_is_no_endless_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queue, "LOCK_SECONDS", 0.05)
    with (
        queue._locked(tmp_path),
        pytest.raises(TimeoutError, match="is locked"),
    ):
        queue.enter(tmp_path, LIMITS, "")
    queue.enter(tmp_path, LIMITS, "").leave()


def test_what_is_no_ticket_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "notes").write_text("mine")
    queue.enter(tmp_path, LIMITS, "").leave()
    assert names(tmp_path) == ["notes"]


def test_without_the_folder_there_is_no_queue(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        queue.enter(tmp_path / "missing", LIMITS, "")


def test_a_stopped_process_keeps_its_slot(tmp_path: Path, stranger: subprocess.Popen[str]) -> None:
    # It may go on at any time, so its clone counts.
    stranger.send_signal(signal.SIGSTOP)
    limits = Limits(slots=1, waiting=3, patience=60, hold=60)
    mine = queue.enter(tmp_path, limits, "")
    assert mine.ask() == Position(1, 0)


def test_a_ticket_of_the_future_is_passed_over(tmp_path: Path) -> None:
    """The clock was set back: its process may have stopped since."""
    with (tmp_path / "000000000007.waiting").open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        assert [ticket.is_fresh for ticket in queue._tickets(tmp_path)] == [True]
        os.utime(tmp_path / "000000000007.waiting", (4e9, 4e9))
        assert [ticket.is_fresh for ticket in queue._tickets(tmp_path)] == [False]
