from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.restic.restic import Restic, Snapshot, result_of
from hgfleet.backup.restic.settings import Settings
from hgfleet.backup.restores.restore import candidates, moment
from hgfleet.core.errors import HostError, UnavailableError, UsageError

if TYPE_CHECKING:
    from pathlib import Path


def test_a_backup_tells_what_it_left_out() -> None:
    lines = [
        "not JSON",
        json.dumps({"message_type": "status", "percent_done": 1}),
        json.dumps({"message_type": "error", "error": {"message": "denied"}, "item": "/a"}),
        json.dumps({"message_type": "summary", "snapshot_id": "ab", "data_added": 7}),
    ]
    result = result_of(lines)
    assert (result.snapshot, result.added, result.errors) == ("ab", 7, (("/a", "denied"),))


def test_a_backup_that_broke_off_is_none() -> None:
    with pytest.raises(UnavailableError, match="without a summary"):
        result_of(['{"message_type":"status"}'])


def snapshot(time: str, tag: str, *paths: str) -> Snapshot:
    return Snapshot(time, f"2026-11-24T{time}:00+00:00", paths, (tag,))


SNAPSHOTS = [
    snapshot("14:00", "part", "/repos/b/.hg"),
    snapshot("13:00", "part", "/repos/a/.hg"),
    snapshot("12:00", "all", "/repos"),
    snapshot("11:00", "all", "/repos"),
]


@pytest.mark.parametrize(
    ("at", "chosen"),
    [
        (None, ["13:00", "12:00", "11:00"]),
        ("2026-11-24T12:59+00:00", ["12:00", "11:00"]),
        ("2026-11-24T12:00+01:00", ["11:00"]),
        ("2026-11-24T10:00+00:00", []),
    ],
)
def test_the_newest_backup_up_to_a_time_comes_first(at: str | None, chosen: list[str]) -> None:
    when = moment(at) if at else None
    assert [candidate.id for candidate in candidates(SNAPSHOTS, "/repos/a/.hg", when)] == chosen


def test_a_time_that_is_none_is_refused() -> None:
    with pytest.raises(UsageError, match="got 'yesterday', expected a time such as"):
        moment("yesterday")


def test_secrets_are_files_that_restic_reads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "backup-password").write_text("very secret")
    program = tmp_path / "restic"
    program.write_text("#!/bin/sh\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("CREDENTIALS_DIRECTORY", str(tmp_path))
    settings = Settings("h", "s3:https://s/b/h", frozenset({"ssh"}), restic=program)
    environment = Restic(settings).environment()
    assert environment["RESTIC_PASSWORD_FILE"] == str(tmp_path / "backup-password")
    assert not [value for value in environment.values() if "very secret" in value]
    with pytest.raises(UnavailableError, match="restic snapshots ended with 1"):
        Restic(settings).snapshots()


def test_a_missing_program_names_its_package(tmp_path: Path) -> None:
    settings = Settings("h", "x", frozenset({"ssh"}), restic=tmp_path / "none")
    with pytest.raises(HostError, match="`apt-get install restic` installs it"):
        Restic(settings).snapshots()
