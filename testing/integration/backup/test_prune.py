"""Prune with restic: snapshots that a taken-over host may add do not push out its genuine ones."""

from __future__ import annotations

import contextlib
import shutil
import subprocess
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING
from zoneinfo import ZoneInfo

import pytest

from hgfleet.backup import run_records
from hgfleet.backup.restic import prune as module
from hgfleet.backup.restic.prune import forget, of_host, prune
from hgfleet.backup.restic.restic import Restic
from hgfleet.backup.restic.settings import Retention, Settings
from hgfleet.core.errors import HostError, UnavailableError
from hgfleet.core.report import Report

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

NOW = datetime.now(UTC).replace(microsecond=0)
KEPT = 6
"""Hours of the retention."""


class Store:
    """A store with the repository of hg1, which has a genuine snapshot for each of some hours."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.genuine: list[str] = []
        self.settings = Settings(
            *("store", f"{folder}/store", frozenset()),
            state=folder / "state",
            cache=folder / "cache",
            secrets=folder,
            restic=Path(shutil.which("restic") or "restic"),
            pruned=("hg1",),
            retention=Retention(hours=KEPT, days=2, months=1),
        )
        self.restic = of_host(self.settings, "hg1")

    def fill(self) -> None:
        """Make the repository and its snapshots."""
        (self.folder / "source").mkdir()
        (self.folder / "source/file").write_text("content")
        (self.folder / "backup-password").write_text("a password of the test\n")
        (self.folder / "state").mkdir()
        self.restic.run("init")
        self.genuine = [self.add(NOW - timedelta(hours=hours)) for hours in range(8, 0, -1)]

    def add(self, when: datetime, zone: str = "UTC", host: str = "hg1", tag: str = "all") -> str:
        """Back up as of a time, as root of the host can; return the id of the snapshot."""
        before = self.ids()
        # restic takes the time for a time in the zone of the process.
        local = when.astimezone(ZoneInfo(zone))
        options = ("-q", f"--host={host}", f"--tag={tag}", f"--time={local:%Y-%m-%d %H:%M:%S}")
        subprocess.run(
            self.restic.command("backup", *options, str(self.folder / "source")),
            env=self.restic.environment() | {"TZ": zone},
            check=True,
        )
        (snapshot,) = self.ids() - before
        return snapshot

    def ids(self) -> set[str]:
        """The ids of all snapshots, which are the names of their files."""
        return {file.name for file in (self.folder / "hg1/snapshots").iterdir()}

    def prune(self, *accepted: str) -> str:
        """Prune; return why it was refused, empty if it was not."""
        failed = prune(self.settings, Report("events", part="backup"), ["hg1"], accepted=accepted)
        refused = run_records.load(self.settings.state, run_records.PRUNES)["hg1"]["refused"]
        assert failed == (["hg1"] if refused else [])
        return str(refused)


@pytest.fixture(scope="module")
def filled(tmp_path_factory: pytest.TempPathFactory) -> Store:
    filled = Store(tmp_path_factory.mktemp("filled"))
    filled.fill()
    return filled


@pytest.fixture
def store(filled: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    class Bucket:
        def __init__(self, *_: object) -> None:
            pass

        @contextlib.contextmanager
        def unlocked(self) -> Iterator[None]:
            yield

    monkeypatch.setattr(module, "Bucket", Bucket)
    shutil.copytree(filled.folder, tmp_path, dirs_exist_ok=True)
    store = Store(tmp_path)
    store.genuine = filled.genuine
    return store


def plant_future(store: Store) -> list[str]:
    return [store.add(NOW + timedelta(days=900, hours=number)) for number in range(KEPT)]


def plant_zones(store: Store) -> list[str]:
    """Add snapshots of a few seconds in different zones, which restic takes for many hours."""
    return [
        store.add(NOW - timedelta(seconds=9 - number), f"Etc/GMT{12 if number % 2 else -12:+}")
        for number in range(KEPT + 2)
    ]


def test_old_backups_are_removed(store: Store) -> None:
    assert store.prune() == ""
    # The newest of the two days and of the month.
    assert store.ids() >= set(store.genuine[-KEPT:])
    assert len(store.ids()) < len(store.genuine)


@pytest.mark.parametrize(
    ("plant", "reason"),
    [
        (plant_future, "got 6 snapshots later than the clock of this host"),
        (plant_zones, "that the retention needs by the clock"),
    ],
)
def test_planted_snapshots_push_out_no_genuine_one(
    store: Store, plant: Callable[[Store], list[str]], reason: str
) -> None:
    planted = plant(store)
    assert reason in store.prune()
    assert store.ids() == {*store.genuine, *planted}
    # A person removes them, by the command that the refusal names.
    assert forget(store.settings, "hg1", [snapshot[:8] for snapshot in planted]) == planted
    assert store.prune() == ""
    assert store.ids() >= set(store.genuine[-KEPT:])


def test_snapshots_that_were_dated_back_replace_no_genuine_one(store: Store) -> None:
    """Later in its hour than the genuine snapshot, each would be the newest of that hour."""
    assert store.prune() == ""
    looks = run_records.load(store.settings.state, run_records.PRUNES)
    before = store.ids()
    planted = store.add(NOW - timedelta(hours=3) + timedelta(seconds=1))
    assert "snapshots that came since the last prune and are dated before it" in store.prune()
    assert store.ids() == {*before, planted}
    assert (
        run_records.load(store.settings.state, run_records.PRUNES)["hg1"]["time"]
        == looks["hg1"]["time"]
    )
    # Copied there by a person.
    assert store.prune("hg1") == ""
    assert store.prune() == ""


def test_the_name_of_another_host_or_another_tag_pushes_out_nothing(store: Store) -> None:
    for number in range(3):
        store.add(NOW - timedelta(hours=number, seconds=5), host="hg2")
        store.add(NOW - timedelta(hours=number, seconds=5), tag="other")
    assert store.prune() == ""
    assert store.ids() >= set(store.genuine[-KEPT:])
    # A snapshot of the future refuses the prune, also if it says that it is of another host.
    store.add(NOW + timedelta(days=1), host="hg2")
    assert "later than the clock of this host" in store.prune()


def test_a_restore_takes_no_backup_of_the_future(store: Store) -> None:
    own = Restic(
        Settings(
            *("hg1", f"{store.folder}/hg1", frozenset()),
            cache=store.folder / "cache",
            secrets=store.folder,
            restic=store.settings.restic,
        )
    )
    planted = store.add(NOW + timedelta(days=1))
    assert own.snapshots()[0].id == store.genuine[-1]
    assert [snapshot.id for snapshot in own.from_future()] == [planted]


def test_a_store_that_cannot_be_asked_is_not_an_empty_one(store: Store) -> None:
    assert store.restic.exists()
    (store.folder / "backup-password").write_text("another password\n")
    for ask in (store.restic.exists, store.restic.create):
        with pytest.raises(UnavailableError, match="wrong password"):
            ask()
    with pytest.raises(UnavailableError):
        prune(store.settings, Report("events", part="backup"), ["hg1"])


def test_a_file_that_is_not_in_a_backup_differs_from_a_backup_that_cannot_be_read(
    store: Store,
) -> None:
    newest = store.restic.snapshots()[0]
    source = f"{newest.paths[0]}/file"
    assert store.restic.dump(newest.id, source) == "content"
    assert store.restic.dump(newest.id, f"{source}s") is None
    (store.folder / "backup-password").write_text("another password\n")
    with pytest.raises(UnavailableError, match="restic dump ended with"):
        store.restic.dump(newest.id, source)


def test_a_repository_that_is_gone_is_told(store: Store) -> None:
    assert store.prune() == ""
    looks = run_records.load(store.settings.state, run_records.PRUNES)
    with pytest.raises(HostError, match="no restic repository, expected the repository with"):
        module._demand_never(module.parse_look(looks["hg1"]))
    module._demand_never(module.Look())
