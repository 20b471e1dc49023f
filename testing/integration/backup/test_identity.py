"""Backups of repositories whose paths change hands: a restore is of the repository asked for."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hgfleet.backup import run_records
from hgfleet.backup.restores import restore
from hgfleet.backup.restores.drill import drill
from hgfleet.backup.restores.restore import Wanted
from hgfleet.core import identity
from hgfleet.core.errors import HostError
from testing.integration.backup.copies import Host
from testing.integration.backup.pushes import described

FIRST, SECOND = "a" * 32, "b" * 32


@pytest.fixture
def host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Host:
    monkeypatch.setenv("HGRCPATH", "")
    monkeypatch.setattr(restore, "give", lambda *_, **__: None)
    return Host(tmp_path)


def test_a_former_repository_of_the_path_is_not_put_over_the_one_of_today(host: Host) -> None:
    former = described(host.create("team/a", FIRST, b"secret").path)
    host.run()
    shutil.rmtree(host.settings.repositories / "team/a")
    running = host.create("team/a", SECOND, b"public")
    with pytest.raises(HostError, match="no backup has it"):
        host.restore(Wanted("team/a", SECOND))
    assert not (host.folder / "copy").exists()
    host.run()
    # Without an identity, the repository that had the path last.
    for wanted in (Wanted("team/a", SECOND), Wanted("team/a")):
        restored = host.restore(wanted)
        assert described(restored.folder) == described(running.path)
        assert identity.of(restored.folder) == SECOND
        assert restored.point.identity == SECOND
    # The former repository, by its identity, on an operator's word.
    restored = host.restore(Wanted("team/a", FIRST))
    assert described(restored.folder) == former
    assert identity.of(restored.folder) == FIRST


def test_a_renamed_repository_is_restored_from_backups_of_its_former_path(host: Host) -> None:
    made = host.create("team/a", FIRST, b"content")
    host.run()
    made.path.rename(made.path.with_name("b"))
    host.create("team/a", SECOND, b"another")
    before = described(made.path.with_name("b"))
    restored = host.restore(Wanted("team/b", FIRST))
    assert (described(restored.folder), restored.point.path) == (before, "team/a")
    at = restore.moment("2026-11-24T09:00+00:00")
    with pytest.raises(HostError):
        restore.restore_at(
            host.settings,
            host.restic,  # type: ignore[arg-type]
            Wanted("team/b", SECOND),
            host.folder / "other",
            at,
        )


def as_the_release_before(host: Host) -> None:
    """Turn the points of the newest backup into points of a release without identities."""
    number = len(host.restic.snapshots()) - 1
    folder = Path(f"{host.folder}/copies/{number}{host.settings.points}")
    (folder / "paths").unlink()
    for file in list(folder.iterdir()):
        point = json.loads(file.read_text())
        del point["identity"]
        file.unlink()
        (folder / f"{point['path'].replace('/', '+')}.json").write_text(json.dumps(point))


@pytest.mark.parametrize("path", ["team/a", "team/x"])
def test_the_push_log_of_an_older_backup_says_which_repository_it_has(
    host: Host, path: str
) -> None:
    made = host.create(path, FIRST, b"content", named=False)
    host.run()
    as_the_release_before(host)
    with pytest.raises(HostError, match=f"it has repository {FIRST}.*expected {SECOND}"):
        host.restore(Wanted(path, SECOND))
    restored = host.restore(Wanted(path, FIRST))
    assert described(restored.folder) == described(made.path)
    # It is known by its file from now on.
    assert identity.of(restored.folder) == FIRST
    # A lost repository, of which nothing else is known.
    assert described(host.restore(Wanted(path)).folder) == described(made.path)


def test_an_older_backup_without_a_log_is_not_taken_for_the_one_of_today(host: Host) -> None:
    made = host.create("team/a", FIRST, b"content", named=False)
    made.log.unlink()
    host.run()
    as_the_release_before(host)
    with pytest.raises(HostError, match=f"does not say whether it is repository {FIRST}"):
        host.restore(Wanted("team/a", FIRST))


def test_a_drill_is_one_of_the_repository_that_the_backup_has(host: Host) -> None:
    host.create("team/a", FIRST, b"content")
    host.run()
    drill(host.settings, host.restic, host.report, ["team/a"])  # type: ignore[arg-type]
    drilled = run_records.load(host.settings.state, run_records.DRILLS)["team/a"]
    assert (drilled["identity"], drilled.get("error")) == (FIRST, None)
    runs = run_records.load(host.settings.state, run_records.RUNS)["repositories"]
    assert runs["team/a"]["identity"] == FIRST


def test_two_folders_with_one_identity_have_a_point_each(host: Host) -> None:
    made = host.create("team/a", FIRST, b"content")
    shutil.copytree(made.path, made.path.with_name("b"))
    host.run()
    names = {file.name for file in host.settings.points.iterdir()}
    assert names == {f"{FIRST}.json", "team+b.json", "paths"}
