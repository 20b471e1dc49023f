"""Upgrades of a repository: nothing is lost, and a damaged repository is left as it is."""

from __future__ import annotations

import os
import shutil
import stat
from typing import TYPE_CHECKING

from hgfleet.core import identity
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Settings, build
from hgfleet.storage import work_folder

if TYPE_CHECKING:
    from pathlib import Path
from testing.integration.storage.site import IDENTITY, StorageSite, digest
from testing.integration.support.hostile_settings import HostileSettings


def test_an_upgrade_loses_nothing(site: StorageSite) -> None:
    before = site.all()
    plan = site.storage("plan")
    assert "team/old: upgrade\n    no generaldelta" in plan
    assert "1 of 1 repositories need an upgrade" in plan
    said = site.storage("upgrade", "--format", "text")
    assert "team/old: upgraded in" in said
    assert "zlib -> zstd generaldelta sparse" in said
    assert site.all() == before
    site.assert_modern()
    # `hg rollback` would go back to a store that no longer exists.
    assert not [*site.store.glob("undo*"), *(site.repository / ".hg").glob("undo*")]
    control = site.repository / ".hg"
    assert (control / "hgrc").read_text() == "[web]\ndescription = ours\n"
    assert (control / "clonebundles.manifest").readlink().name == "old.manifest"
    assert (site.store / "pushlog").read_text() == "who, when\n"
    assert identity.of(site.repository) == IDENTITY
    assert (site.store / "ours/file").read_text() == "kept\n"
    assert stat.S_IMODE(site.store.stat().st_mode) == 0o2750
    for file in site.store.rglob("*.i"):
        assert stat.S_IMODE(file.stat().st_mode) == 0o640, file
    # 0x28 is zstd, 0x78 would be zlib.
    assert "0x78" not in site.old("debugrevlog", "-m")


def test_a_second_upgrade_has_nothing_to_do(site: StorageSite) -> None:
    site.upgrade()
    before = digest(site.repository)
    assert "1 repositories, 0 upgraded, 0 failed" in site.upgrade()
    assert digest(site.repository) == before
    assert "zstd generaldelta sparse" in site.storage("status")


def test_another_repository_at_the_path_is_left_as_it_is(site: StorageSite) -> None:
    site.identify("b" * 32)
    before = digest(site.repository)
    assert f"got repository {IDENTITY}, expected {'b' * 32}" in site.upgrade(code=75)
    assert digest(site.repository) == before
    site.identify(IDENTITY)
    assert "1 upgraded, 0 failed" in site.upgrade()
    assert identity.of(site.repository) == IDENTITY


REPLACE = """
import shutil
original = rebuild._Rebuild._swap
def swap(self):
    away = self.repository.with_name("away")
    self.repository.rename(away)
    shutil.copytree(away, self.repository, symlinks=True)
    original(self)
rebuild._Rebuild._swap = swap
"""


def test_the_repository_that_took_the_path_meanwhile_is_left_as_it_is(site: StorageSite) -> None:
    code, said = site.worker(REPLACE)
    assert code == 75, said
    assert "was renamed, archived or replaced during the upgrade" in said
    for folder in (site.repository, site.repository.with_name("away")):
        assert "revlog-compression-zstd" not in (folder / ".hg/requires").read_text()
        assert not (folder / ".hg/store/requires").exists()


def test_a_dry_run_changes_nothing(site: StorageSite) -> None:
    before = digest(site.repository)
    assert "team/old: upgrade" in site.storage("upgrade", "--dry-run")
    site.storage("status", "--json")
    assert digest(site.repository) == before


def test_a_damaged_repository_is_refused_and_left_as_it_is(site: StorageSite) -> None:
    file = site.store / "00manifest.i"
    content = bytearray(file.read_bytes())
    content[-10] ^= 1
    file.write_bytes(content)
    before = digest(site.store)
    said = site.upgrade(code=65)
    assert "team/old: FAILED: Mercurial says:" in said
    assert digest(site.store) == before
    assert site.old("log", "-r", "0", "-T", "{rev}") == "0"


def test_a_missing_file_is_found_by_verify(site: StorageSite) -> None:
    lines = (site.store / "fncache").read_text().splitlines(keepends=True)
    (site.store / "fncache").write_text("".join(lines[1:]))
    before = digest(site.store)
    assert "hg verify finds the repository damaged" in site.upgrade(code=65)
    assert digest(site.store) == before


def test_a_failure_of_one_repository_stops_no_other(site: StorageSite, template: Path) -> None:
    for name in ("broken", "fine"):
        shutil.copytree(template, site.repos / name, symlinks=True)
    (site.repos / "broken/.hg/requires").write_text("revlogv1\nstore\ntreemanifest\n")
    registry = build(
        {path: ("", Settings()) for path in ("broken", "fine", "team/old")},
        {},
        Settings(push=("all",)),
    )
    (site.root / "registry.json").write_text(dump_compiled(registry))
    said = site.storage("upgrade", "--no-measure", "--jobs", "2", code=71)
    assert 'event=storage.failed repository=broken error="it has treemanifest' in said
    assert "event=storage.done repositories=3 upgraded=2 failed=1 failures=broken" in said


def test_an_interrupted_push_is_cleaned_up_first(site: StorageSite) -> None:
    (site.store / "journal").touch()
    assert "run `hg recover" in site.upgrade(code=71)
    assert not (site.store / "requires").exists()


def test_a_later_run_leaves_a_kept_store(site: StorageSite) -> None:
    site.storage("upgrade", "--no-measure", "--keep-backup", "7")
    old = site.repository / ".hg" / work_folder.WORK / ".hg/store"
    before = digest(old)
    assert "its old store stays for now" in site.upgrade()
    site.storage("upgrade", "--no-measure", "--keep-backup", "0")
    assert digest(old) == before
    said = site.storage("upgrade", "--no-measure", "--prune-backups", "--format", "text")
    assert "its old store is removed" in said
    site.assert_modern()


def test_a_kept_store_is_removed_after_its_days(site: StorageSite) -> None:
    site.storage("upgrade", "--no-measure", "--keep-backup", "2")
    since = site.repository / ".hg" / work_folder.WORK / work_folder.SINCE
    before = since.stat().st_mtime - 3 * 86_400
    os.utime(since, (before, before))
    assert "its old store is removed" in site.upgrade()
    site.assert_modern()


def test_a_store_kept_by_a_killed_run_stays(site: StorageSite) -> None:
    hook = "work_folder.SINCE = None"  # the first step after the exchange fails
    code, said = site.worker(hook, keep="3600")
    assert code == 1, said
    assert "its old store stays for now" in site.upgrade()


def test_no_setting_in_the_repository_is_followed(site: StorageSite, tmp_path: Path) -> None:
    hostile = HostileSettings(tmp_path, site.repository)
    assert "1 upgraded, 0 failed" in site.upgrade()
    assert hostile.followed() == []
