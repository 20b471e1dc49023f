from __future__ import annotations

from pathlib import Path
from typing import Any

from hgfleet.backup.point.point import Point
from hgfleet.backup.restic.restic import Snapshot
from hgfleet.backup.restores import host
from hgfleet.backup.restores.host import choose
from hgfleet.backup.restores.restore import candidates, moment
from hgfleet.pushlog.record import hash_of
from testing.support.pushlog_records import IDENTITY, lines


def backup(time: str, **changesets: int) -> tuple[Snapshot, list[Point]]:
    points = [Point(path=path, time=0.0, changesets=n, tip="") for path, n in changesets.items()]
    return Snapshot(time, f"2026-11-24T{time}:00+00:00", (), ("all",)), points


GOOD = backup("12:00", b=3, a=0)
BLANK = [backup("14:00", a=0, b=0), backup("13:00")]


def test_the_newest_backup_with_a_changeset_is_chosen() -> None:
    chosen = choose([*BLANK, GOOD, backup("11:00", a=1)], None)
    assert chosen is not None
    snapshot, repositories, limit = chosen
    assert (snapshot.id, repositories) == ("12:00", ["a", "b"])
    # A restore of a single repository does not take a backup of the blank host either.
    snapshots = [candidate for candidate, _ in (*BLANK, GOOD)]
    assert [candidate.id for candidate in candidates(snapshots, "", limit)] == ["12:00"]


def test_without_a_blank_one_the_time_stays_that_of_the_operator() -> None:
    at = moment("2026-11-24T12:30+00:00")
    for given in (None, at):
        chosen = choose([GOOD], given)
        assert chosen is not None
        assert chosen[2] == given


def test_a_host_that_never_had_a_changeset_is_restored_from_its_newest_backup() -> None:
    chosen = choose(BLANK, None)
    assert chosen is not None
    assert chosen[0].id == "14:00"
    assert chosen[2] is None
    assert choose([], None) is None


def test_mirrors_are_told_what_a_host_has_after_a_restore(tmp_path: Path) -> None:
    identity, hash_ = "ab" * 16, "cd" * 32
    snapshot = Snapshot("1", "2026-11-24T12:00:00+00:00", (), ("all",))
    made = Point("a", 0.0, 3, "", push_id=7, push_hash=hash_, identity=identity)

    class Restic:
        def snapshots(self) -> list[Snapshot]:
            return [snapshot]

        def restore(self, _id: str, path: str, folder: Path) -> None:
            below = Path(f"{folder}{path}")
            below.mkdir(parents=True)
            (below / "a.json").write_text(made.text())

    class Settings:
        points = Path("/points")
        repositories = tmp_path

    given: Any = Settings(), Restic()
    (tmp_path / "a/.hg/store").mkdir(parents=True)
    (tmp_path / "a/.hg/requires").touch()
    (tmp_path / "a/.hg/store/00changelog.i").touch()
    assert list(host.positions(*given)) == [
        {
            "where": "the backup of 2026-11-24T12:00:00",
            "path": "a",
            "repository": identity,
            "id": 7,
            "hash": hash_,
        }
    ]
    # A repository that has changesets is left as it is.
    (tmp_path / "a/.hg/store/00changelog.i").write_text("x")
    (tmp_path / "a/.hg/store/pushlog").write_bytes(b"".join(line + b"\n" for line in lines(9)))
    assert list(host.positions(*given)) == [
        {
            "where": "this host",
            "path": "a",
            "repository": IDENTITY,
            "id": 9,
            "hash": hash_of(lines(9)[-1]),
        }
    ]
