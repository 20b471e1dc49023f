from __future__ import annotations

import contextlib
import json
import os
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup import run_records
from hgfleet.backup.restic import packs, prune
from hgfleet.backup.restic.packs import PARTS, Checked, after, checked, corrupt, next_part
from hgfleet.backup.restic.restic import Check, check_of
from hgfleet.backup.restic.settings import Settings
from hgfleet.core.errors import UnavailableError
from hgfleet.core.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

PACK = "ed" * 32
NOW = 1e9


def test_each_pack_is_read_within_the_parts() -> None:
    known = None
    parts = []
    for _ in range(PARTS):
        parts.append(next_part(known))
        known = after(known, parts[-1], Check((), 0), 0.0)
    assert parts == list(range(1, PARTS + 1))
    assert next_part(known) == 1
    assert next_part({"part": "x"}) == 1


def test_a_corrupt_pack_stays_known_until_it_is_repaired() -> None:
    state = after(None, 3, Check((PACK,), 1), 5.0)
    assert state == {
        "part": 3,
        "time": 5.0,
        "broken": [PACK],
        "errors": 1,
        "since": 5.0,
        "read": {"3": 5.0},
    }
    later = after(state, 4, Check((), 0), 6.0)
    assert (later["broken"], later["errors"]) == ([PACK], 0)
    assert corrupt({"hg1": later, "hg2": after(None, 1, Check((), 0), 6.0)}) == {"hg1": [PACK]}


def test_a_part_that_was_not_read_waits_since_the_first_check() -> None:
    known = None
    for day in range(PARTS):
        known = after(known, day + 1, Check((), 0), 100.0 + day)
    assert checked(known or {}, NOW) == Checked(127.0, 100.0, 0, 0)
    # The second part has the earliest time now.
    known = after(known, 1, Check((PACK,), 2), 200.0)
    assert checked(known, NOW) == Checked(200.0, 101.0, 1, 2)
    assert checked(after(None, 9, Check((), 0), 50.0), NOW) == Checked(50.0, 50.0, 0, 0)


def test_a_host_without_checks_and_a_record_of_an_older_release_have_figures() -> None:
    assert checked({}, NOW) == Checked(0, 0, 0, 0)
    older = {"part": 3, "time": 5.0, "broken": [PACK], "errors": 1}
    assert checked(older, NOW) == Checked(5.0, 5.0, 1, 1)
    later = after(older, 4, Check((), 0), 9.0)
    assert checked(later, NOW) == Checked(9.0, 9.0, 1, 0)


@pytest.mark.parametrize("known", [{"time": []}, {"read": []}, {"broken": 3}])
def test_a_damaged_record_has_no_figures(known: run_records.Data) -> None:
    with pytest.raises(ValueError, match="not the record of a check of packs"):
        checked(known, NOW)


def test_checks_of_the_future_are_none() -> None:
    for part in ("time", "since"):
        known = {"part": 1, "time": 5.0, "since": 5.0} | {part: 4e9}
        assert 0.0 in (checked(known, NOW).time, checked(known, NOW).oldest)
    assert checked({"time": 5.0, "read": {"3": 4e9}}, NOW).oldest == 0.0


def test_the_summary_of_a_check_is_read() -> None:
    lines = [
        "not JSON",
        json.dumps({"message_type": "error", "message": "pack ed contains 2 errors"}),
        json.dumps({"message_type": "summary", "num_errors": 1, "broken_packs": [PACK]}),
        json.dumps({"message_type": "exit_error", "code": 1}),
    ]
    assert check_of(lines) == Check((PACK,), 1)
    good = json.dumps({"message_type": "summary", "num_errors": 0, "broken_packs": None})
    assert check_of([good]) == Check((), 0)
    with pytest.raises(UnavailableError, match="without a summary"):
        check_of(lines[:2])


class Store:
    def __init__(self, *checks: Check) -> None:
        self.checks = list(checks)
        self.parts: list[int] = []

    def exists(self) -> bool:
        return True

    def check(self, part: int, _parts: int) -> Check:
        self.parts.append(part)
        return self.checks.pop(0)


def test_a_host_with_a_corrupt_pack_is_named_each_day(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    store = Store(Check((PACK,), 1), Check((), 0))
    monkeypatch.setattr(prune, "of_host", lambda _settings, _host: store)
    settings = Settings("s3-2", "s3:https://s3/backup/s3-2", frozenset(), state=tmp_path)
    report = Report("text", part="backup")
    assert packs.check(settings, report, ["hg1"]) == ["hg1"]
    assert packs.check(settings, report, ["hg1"]) == ["hg1"]
    assert store.parts == [1, 2]
    said = capsys.readouterr().out.splitlines()
    assert said[0] == "hg1: CORRUPT packs: edededed; to repair them: hgfleet backup repair hg1"
    assert said[1] == said[0]


def test_a_record_of_root_belongs_to_the_user_of_the_units(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = []
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(os, "chown", lambda *words: given.append(words))
    run_records.save(tmp_path, run_records.DRILLS, {})
    owner = tmp_path.stat()
    assert given == [(tmp_path / run_records.DRILLS, owner.st_uid, owner.st_gid)]


class Broken:
    """The restic repository of a host with errors."""

    def __init__(self, failure: str = "") -> None:
        self.failure = failure
        self.done: list[str] = []

    def repair_packs(self, names: list[str], folder: Path) -> None:
        assert folder.is_dir()
        self._note(f"packs {' '.join(names)}")

    def repair_snapshots(self) -> None:
        self._note("snapshots")

    def _note(self, step: str) -> None:
        if self.failure:
            raise UnavailableError(self.failure)
        self.done.append(step)


def test_packs_are_removed_before_their_content_is_taken_out_of_old_backups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    stores = {"hg1": Broken(), "hg2": Broken(), "hg3": Broken("the store is away"), "hg4": Broken()}
    asked: list[list[str]] = []

    @contextlib.contextmanager
    def at_rest(_settings: Settings, hosts: list[str]) -> Iterator[dict[str, Broken]]:
        asked.append(hosts)
        yield {host: stores[host] for host in hosts}

    monkeypatch.setattr(prune, "at_rest", at_rest)
    settings = Settings("s3-2", "s3:https://s3/backup/s3-2", frozenset(), state=tmp_path)
    known = {
        "hg1": {"broken": [PACK], "errors": 1},
        "hg2": {"broken": [], "errors": 2},
        "hg3": {"broken": [PACK], "errors": 1},
        "hg4": {"broken": [], "errors": 0},
    }
    run_records.save(tmp_path, run_records.PACKS, known)
    report = Report("text", part="backup")

    assert packs.repair(settings, report, ["hg1", "hg2", "hg3", "hg4", "hg5"]) == ["hg3"]

    # A host without errors is not disturbed.
    assert asked == [["hg1", "hg2", "hg3"]]
    assert (stores["hg1"].done, stores["hg2"].done) == ([f"packs {PACK}"], ["snapshots"])
    left = run_records.load(tmp_path, run_records.PACKS)
    assert {host for host in left if packs.is_wrong(left[host])} == {"hg3"}
    # Copies of packs have content of repositories.
    assert (tmp_path / "corrupt-packs").stat().st_mode & 0o777 == 0o700
    said = capsys.readouterr().out
    assert "systemctl start hgfleet-backup on hg1" in said
    assert "the store is away" in said

    stores["hg3"].failure = ""
    assert packs.repair(settings, report, ["hg1", "hg2", "hg3"]) == []
    assert asked[1:] == [["hg3"]]
    assert packs.repair(settings, report, ["hg1"]) == []
    assert len(asked) == 2
