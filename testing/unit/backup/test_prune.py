from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.backup.restic import prune as module
from hgfleet.backup.restic.prune import Look, chosen, of_host, options, parse_look, prune
from hgfleet.backup.restic.settings import CREDENTIALS, Retention, Settings
from hgfleet.backup.restic.snapshot_times import Group
from hgfleet.core.errors import TemporaryError, UsageError
from hgfleet.core.report import Report

if TYPE_CHECKING:
    from collections.abc import Iterator

SETTINGS = Settings(
    *("store", "s3:https://s3/backup/store", frozenset()),
    state=Path("/nonexistent"),
    pruned=("hg1", "hg2"),
    retention=Retention(0, 1, 0),
)
NOW = datetime.now(UTC)
RUNNING = [{"time": NOW.isoformat()}]


class Store:
    """The restic repositories of all hosts; `locks` are the locks that each look finds."""

    def __init__(self, *locks: list[dict[str, str]], keeps_locks: bool = True) -> None:
        self.keeps_locks = keeps_locks
        self.snapshots: list[dict[str, Any]] = []
        self.credentials: list[Path] = []
        self._locks = list(locks)
        self.pruned: list[list[str]] = []
        self.is_unlocked = False

    def exists(self) -> bool:
        return True

    def locks(self) -> list[dict[str, str]]:
        return self._locks.pop(0) if self._locks else []

    def raw_snapshots(self) -> list[dict[str, Any]]:
        return self.snapshots

    def all_snapshots(self) -> list[dict[str, Any]]:
        return self.snapshots

    def plan(self, options: list[str]) -> list[Group]:
        self.options = options
        return [Group((), tuple(self.snapshots))] if self.snapshots else []

    def forget(self, snapshots: list[str]) -> None:
        assert self.is_unlocked
        self.pruned.append(snapshots)

    def unlocked(self) -> Iterator[None]:
        self.is_unlocked = True
        yield
        self.is_unlocked = False


def prepare(monkeypatch: pytest.MonkeyPatch, store: Store) -> None:
    import contextlib

    class Bucket:
        def __init__(self, _settings: Settings, credentials: Path) -> None:
            store.credentials.append(credentials)

        unlocked = staticmethod(contextlib.contextmanager(store.unlocked))

    monkeypatch.setattr(module, "Bucket", Bucket)
    monkeypatch.setattr(module, "of_host", lambda _settings, _host: store)
    monkeypatch.setattr(module.run_records, "save", lambda *_: None)


def test_the_backups_of_each_host_are_pruned_once_none_is_under_way(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    store, slept = Store([], RUNNING), list[float]()
    prepare(monkeypatch, store)
    assert prune(SETTINGS, Report(part="backup"), SETTINGS.pruned, sleep=slept.append) == []
    assert len(store.pruned) == 2
    assert len(slept) == 1
    assert not store.is_unlocked


@pytest.mark.parametrize(
    "looks",
    [
        # Under way all the time; begun after the look at every host, before writers are refused.
        [RUNNING],
        [[], [], RUNNING],
    ],
)
def test_nothing_is_pruned_beside_a_backup(
    monkeypatch: pytest.MonkeyPatch, looks: list[list[dict[str, str]]]
) -> None:
    store = Store(*looks)
    prepare(monkeypatch, store)
    with pytest.raises(TemporaryError, match="under way since 20"):
        prune(SETTINGS, Report(part="backup"), SETTINGS.pruned, patience=0)
    assert store.pruned == []


@pytest.mark.parametrize("keeps_locks", [True, False])
def test_a_lock_from_before_the_last_end_is_left_over_only_where_backups_leave_theirs(
    monkeypatch: pytest.MonkeyPatch, *, keeps_locks: bool
) -> None:
    """Over SSH a backup removes its locks: a lock that is left is of a backup under way."""
    store = Store(*[RUNNING] * 9, keeps_locks=keeps_locks)
    store.snapshots = [{"id": "ab", "time": NOW.isoformat(), "summary": None}]
    prepare(monkeypatch, store)
    if keeps_locks:
        assert prune(SETTINGS, Report(part="backup"), ["hg1"], patience=0) == []
        assert len(store.pruned) == 1
    else:
        with pytest.raises(TemporaryError, match="under way since 20"):
            prune(SETTINGS, Report(part="backup"), ["hg1"], patience=0)


def test_credentials_are_those_of_the_unit_or_the_ones_on_the_host(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    store = Store()
    prepare(monkeypatch, store)
    for folder in ("", str(tmp_path)):
        monkeypatch.setattr(
            module.systemd, "credential", lambda name, at=folder: Path(at, name) if at else None
        )
        prune(SETTINGS, Report(part="backup"), ["hg1"])
    assert store.credentials == [SETTINGS.secrets / CREDENTIALS, tmp_path / CREDENTIALS]


def test_each_host_has_its_place_beside_the_others() -> None:
    environment = of_host(SETTINGS, "hg1").environment()
    assert environment["RESTIC_REPOSITORY"] == "s3:https://s3/backup/hg1"


def test_retention_is_of_hours_days_and_months() -> None:
    arguments = options(Retention(hours=1, days=2, months=3))
    assert {"--keep-hourly=1", "--keep-daily=2", "--keep-monthly=3"} <= set(arguments)


def test_backups_of_a_part_are_counted_apart_and_the_last_one_of_each_is_kept() -> None:
    """Without the group, the backups of a repository replace the backups of the whole host."""
    arguments = options(Retention(hours=0, days=0, months=0))
    assert {"--group-by=host,tags", "--keep-last=1"} <= set(arguments)


def test_a_snapshot_is_named_by_enough_digits_of_its_id() -> None:
    ids = ["abcdef0123", "abcdef0199", "ffffffff00"]
    assert chosen(ids, ["abcdef012", "ffffffff"]) == ["abcdef0123", "ffffffff00"]
    for name in ("abcdef01", "ffff", "00000000"):
        with pytest.raises(UsageError, match=f"got '{name}', expected 8 or more digits"):
            chosen(ids, [name])


@pytest.mark.parametrize("data", [None, 7, {}, {"time": [], "snapshots": [], "refused": ""}])
def test_a_damaged_record_is_that_of_a_host_without_a_prune(data: object) -> None:
    assert parse_look(data) == Look()
    assert parse_look(Look(5.0, frozenset({"ab"}), "x").data()) == Look(5.0, frozenset({"ab"}), "x")
