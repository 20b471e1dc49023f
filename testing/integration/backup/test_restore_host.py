"""Restore of a host: where a restore fails, the host keeps the files that it has."""

from __future__ import annotations

import shutil
import subprocess
from typing import TYPE_CHECKING

import pytest

from hgfleet.backup.restores import host as module
from hgfleet.backup.restores import restore
from hgfleet.backup.restores.host import restore_files, restore_host
from hgfleet.core.errors import HostError, UnavailableError
from testing.integration.backup.copies import Copies, Host
from testing.integration.backup.pushes import described
from testing.integration.support import site

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("HGRCPATH", "")
    monkeypatch.setattr(restore, "give", lambda *_, **__: None)
    return Host(tmp_path)


def blank(place: Path) -> Path:
    """An empty repository, as a deploy makes it, with a file of its own."""
    shutil.rmtree(place, ignore_errors=True)
    subprocess.run([site.HG, "init", str(place)], check=True)
    (place / ".hg/hgrc").write_text("# of the deploy\n")
    return place


def restored(host: Host) -> list[str]:
    return restore_host(host.settings, host.restic, host.report)  # type: ignore[arg-type]


def test_a_repository_that_cannot_be_restored_stays_as_it_was(host: Host) -> None:
    made = host.create("team/a", "a" * 32, b"0")
    host.run()
    place = blank(made.path)
    host.restic.damage(0)
    assert restored(host) == ["team/a"]
    assert (place / ".hg/hgrc").read_text() == "# of the deploy\n"
    assert [entry.name for entry in place.parent.iterdir()] == ["a"]


def test_a_repository_takes_the_place_of_a_blank_one(host: Host) -> None:
    made = host.create("team/a", "a" * 32, b"0")
    before = described(made.path)
    host.run()
    place = blank(made.path)
    # A run that was killed left its copy.
    (place.parent / ".restored.a/.hg").mkdir(parents=True)
    assert restored(host) == []
    assert described(place) == before
    assert [entry.name for entry in place.parent.iterdir()] == ["a"]
    shutil.rmtree(place)
    assert restored(host) == []
    assert described(place) == before


def test_changesets_that_came_meanwhile_stay(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    made = host.create("team/a", "a" * 32, b"0")
    before = described(made.path)
    host.run()
    looks = iter([False, True])
    monkeypatch.setattr(module, "has_changesets", lambda _: next(looks))
    with made.push():
        made.commit(b"1")
    pushed = described(made.path)
    assert restored(host) == ["team/a"]
    assert described(made.path) == pushed != before
    assert [entry.name for entry in made.path.parent.iterdir()] == ["a"]


def backed_up(host: Host, place: Path) -> Copies:
    host.restic.backup([str(place)], place, ["all"])
    return host.restic


def test_files_take_their_places_once_all_are_restored(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = host.folder / "etc/keys"
    (place / "more").mkdir(parents=True)
    (place / "key").write_text("of the backup")
    (place / "more/other").write_text("of the backup")
    (place / "more/link").symlink_to("other")
    place.chmod(0o750)
    restic = backed_up(host, place)
    snapshot = restic.snapshots()[0]
    (place / "key").write_text("of the host")
    shutil.rmtree(place / "more")
    (place / "new").write_text("of the host")

    # A restore that fails in the middle.
    original = restic.restore

    def half(snapshot_id: str, path: str, target: Path) -> None:
        original(snapshot_id, path, target)
        raise UnavailableError("restic restore ended with 1: connection reset")

    monkeypatch.setattr(restic, "restore", half)
    with pytest.raises(UnavailableError):
        restore_files(restic, snapshot, place, "root")  # type: ignore[arg-type]
    assert (place / "key").read_text() == "of the host"
    assert sorted(entry.name for entry in place.iterdir()) == ["key", "new"]

    monkeypatch.setattr(restic, "restore", original)
    restore_files(restic, snapshot, place, "root")  # type: ignore[arg-type]
    assert (place / "key").read_text() == "of the backup"
    assert (place / "more/other").read_text() == "of the backup"
    assert (place / "more/link").readlink().name == "other"
    # The backup does not have it.
    assert (place / "new").read_text() == "of the host"
    assert place.stat().st_mode & 0o777 == 0o750
    assert [entry.name for entry in place.parent.iterdir()] == ["keys"]
    # On a blank host.
    shutil.rmtree(host.folder / "etc")
    restore_files(restic, snapshot, place, "root")  # type: ignore[arg-type]
    assert (place / "key").read_text() == "of the backup"


def test_a_folder_in_the_place_of_a_file_is_refused_before_any_change(host: Host) -> None:
    place = host.folder / "etc/keys"
    (place / "z").mkdir(parents=True)
    (place / "a").write_text("of the backup")
    (place / "z/deep").write_text("of the backup")
    restic = backed_up(host, place)
    (place / "a").write_text("of the host")
    (place / "z/deep").unlink()
    (place / "z/deep").mkdir()
    with pytest.raises(HostError, match="z/deep: got a folder, expected a file"):
        restore_files(restic, restic.snapshots()[0], place, "root")  # type: ignore[arg-type]
    assert (place / "a").read_text() == "of the host"
    assert (place / "z/deep").is_dir()


def test_a_file_that_a_backup_does_not_have_is_told(host: Host) -> None:
    place = host.folder / "etc/none"
    host.restic.backup([], place, ["all"])
    with pytest.raises(HostError, match=r"the backup of .* does not have it"):
        restore_files(host.restic, host.restic.snapshots()[0], place, "root")  # type: ignore[arg-type]
