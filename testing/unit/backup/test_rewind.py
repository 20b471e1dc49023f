"""Recovery points of earlier pushes, made from the records of later pushes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hgfleet.backup.point import rewind
from hgfleet.backup.point.point import Point
from hgfleet.backup.point.revlog_index import Changeset, changesets, keep
from hgfleet.backup.restic.restic import Snapshot
from hgfleet.backup.restores.restore import surest
from hgfleet.core.errors import HostError
from hgfleet.pushlog.log_file import Entry
from hgfleet.pushlog.record import FIRST, Heads, Record
from testing.unit.backup.test_revlog_index import INLINE, VERSION, revlog

A, B, C, D = ("".join(c * 40) for c in "abcd")


def record(number: int, seconds: float = 0.0) -> Record:
    time = round((seconds or number) * 1000)
    digest = Heads(digest=f"{number:064x}")
    return Record(number, "7d" * 16, "push", "alice", time, FIRST, heads=digest)


def entry(number: int, seconds: float = 0.0) -> Entry:
    made = record(number, seconds)
    return Entry(1000 * number, made.line(), made)


@pytest.mark.parametrize(
    ("at", "last", "later"),
    [(2, 2, [3]), (1.5, 1, [2, 3]), (1.999, 1, [2, 3]), (9, 3, []), (0.5, None, [1, 2, 3])],
)
def test_a_log_is_divided_at_a_time(at: float, last: int | None, later: list[int]) -> None:
    newest, undone = rewind.divided([entry(number) for number in (1, 2, 3)], at)
    assert (newest.record.id if newest else None) == last
    assert [push.id for push in undone] == later


def test_a_push_at_that_millisecond_is_kept() -> None:
    at = 1795440000.123
    newest, undone = rewind.divided([entry(1, at), entry(2, at + 0.001)], at)
    assert newest is not None
    assert (newest.record.id, len(undone)) == (1, 1)


def test_bookmarks_are_as_before() -> None:
    undone = [
        replace(record(3), bookmarks=(("@", A, B), ("new", None, B))),
        replace(record(4), bookmarks=(("@", B, C), ("a mark", C, None), ("new", B, None))),
    ]
    assert rewind.bookmarks(f"{C} @\n{D} other\n", undone) == f"{A} @\n{C} a mark\n{D} other\n"
    assert rewind.bookmarks("", []) == ""
    assert rewind.bookmarks(f"{C} a\u2028b\udcff\n", []) == f"{C} a\u2028b\udcff\n"


HISTORY = (Changeset(A, ()), Changeset(B, (0,)), Changeset(C, (0,)))


@pytest.mark.parametrize(
    ("now", "moves", "then"),
    [
        # D is not there yet.
        (f"1 {B}\n1 {D}\n", [], f"1 {B}\n"),
        ("", [(B, "draft", "public")], f"1 {B}\n"),
        ("", [(A, "draft", "public"), (B, "draft", "public"), (C, "draft", "public")], f"1 {A}\n"),
        (f"1 {A}\n", [(B, "secret", "draft")], f"1 {A}\n2 {B}\n"),
        (f"1 {A}\n2 {C}\n", [(C, "draft", "secret")], f"1 {A}\n"),
        (f"1 {B}\n", [(D, None, "draft")], f"1 {B}\n"),
    ],
)
def test_phases_are_as_before(now: str, moves: list[tuple[str, str, str]], then: str) -> None:
    undone = [replace(record(3), phases=tuple(moves))]
    assert rewind.phase_roots(now, HISTORY, undone) == then


def test_the_phase_before_the_first_of_several_moves_counts() -> None:
    undone = [
        replace(record(3), phases=((B, "secret", "draft"),)),
        replace(record(4), phases=((B, "draft", "public"),)),
    ]
    assert rewind.phase_roots("", HISTORY, undone) == f"2 {B}\n"


def point(**changes: object) -> Point:
    sizes = {"store/pushlog": 9000, "store/obsstore": 30}
    replaced = {"store/phaseroots": f"1 {B}\n", "store/bookmarks": None, "bookmarks": f"{D} @\n"}
    base = Point("team/x", 9.0, 4, D, sizes, replaced, 5, "5" * 64, "e" * 64)
    return replace(base, **changes)  # type: ignore[arg-type]


@pytest.mark.parametrize("header", [VERSION, INLINE | VERSION])
def test_the_point_of_an_earlier_push_is_a_prefix(header: int) -> None:
    undone = [
        replace(record(4), changesets=(C,), markers=("aabb", "cc")),
        replace(record(5), changesets=(D,), bookmarks=(("@", B, D),)),
    ]
    last = entry(3)
    prefix = rewind.earlier(point(), last, undone, revlog([0, 1, 2, 3], header))
    assert prefix == Point(
        "team/x",
        3.0,
        2,
        "01" * 20,
        {"store/pushlog": last.end, "store/obsstore": 27},
        # The changesets of the index are others, so no root is left.
        {"store/phaseroots": "", "store/bookmarks": None, "bookmarks": f"{B} @\n"},
        3,
        last.hash,
        f"{3:064x}",
    )


@pytest.mark.parametrize("kind", ["strip", "adoption"])
def test_what_a_removal_took_is_not_in_a_later_backup(kind: str) -> None:
    with pytest.raises(rewind.UnreachableError, match=rf"record 4, .* no push but {kind}"):
        rewind.earlier(point(), entry(3), [replace(record(4), kind=kind), record(5)], b"")


def test_only_markers_of_later_pushes_are_cut_off() -> None:
    undone = [replace(record(4), markers=("aabb", "cc"))]
    rewind.check_markers("team/x", b"\xcc\xaa\xbb", undone)
    for other in (b"\xcc\xaa\xbc", b"\xcc\xaa\xbb\x00", b""):
        with pytest.raises(HostError, match="do not come from the pushes"):
            rewind.check_markers("team/x", other, undone)


@pytest.mark.parametrize("header", [VERSION, INLINE | VERSION])
def test_changesets_are_read_from_the_index(header: int) -> None:
    index = revlog([0, 1, 2], header)
    listed = list(changesets(index, keep(index, 2)))
    assert listed == [Changeset("00" * 20, ()), Changeset("01" * 20, ())]


def test_the_first_backup_after_a_time_may_have_begun_before_it() -> None:
    def backup(number: int, time: float) -> tuple[Snapshot, Point]:
        return Snapshot(str(number), "", (), ()), point(time=time)

    def order(*times: float) -> list[str]:
        later = [backup(number, time) for number, time in enumerate(times)]
        return [snapshot.id for snapshot, _ in surest(later, 5.0)]

    assert order(6.0, 7.0) == ["0", "1"]
    # Captured before that time; of a repository without pushes since, long before.
    assert order(4.0, 4.0, 7.0) == ["1", "2", "0"]
    assert order(4.0) == ["0"]
    assert order() == []
