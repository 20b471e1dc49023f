"""Runs that are killed, and files that are lost or removed between two runs."""

from __future__ import annotations

import fcntl
import shutil
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.manifest import Manifests
from hgfleet.bundles.decide.plan import Action
from hgfleet.bundles.hg import hg_side
from hgfleet.objectstore.bucket import Upload
from testing.integration.support.site import identity_of
from testing.integration.support.store import NOW, flip_bit

if TYPE_CHECKING:
    from testing.integration.bundles.site import BundleSite


def test_another_run_at_work_is_left_alone(site: BundleSite) -> None:
    project = site.repository("project")
    locks = site.config.scratch / "locks"
    locks.mkdir()
    with (locks / identity_of("project")).open("w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        (outcome,) = site.run(project)
    assert (outcome.error, outcome.plan) == (None, None)
    assert "another run is at work" in site.said.getvalue()
    assert site.run(project)[0].plan is not None


@pytest.mark.parametrize("step", ["generate", "clone_through", "publish"])
def test_a_run_killed_at_any_step_is_completed_by_the_next(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    project = site.repository("project", kinds=("zstd", "gzip"))

    class Killed(BaseException):
        pass

    def die(*_arguments: object) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Manifests if step == "publish" else hg_side, step, die)
        # A killed process cleans nothing up.
        patched.setattr(shutil, "rmtree", lambda *_arguments, **_more: None)
        with pytest.raises(Killed):
            site.run(project)
    assert site.published("project") == ()
    (outcome,) = site.run(project)
    assert outcome.error is None
    assert len(site.published("project")) == 2
    assert not list((site.config.scratch / "work").iterdir())
    # This run publishes the objects of the killed run: the same content has the same key.
    assert len(site.store.content) == 2


def test_an_interrupted_snapshot_is_made_again(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    snapshot = site.config.scratch / "snapshots" / identity_of("project")
    (snapshot / ".hg/store/journal").write_bytes(b"00changelog.i\x000\n")
    site.change("project")
    assert site.run(project)[0].error is None
    assert site.published("project")[0].changesets == 3
    assert not (snapshot / ".hg/store/journal").exists()


def test_the_scratch_folder_may_be_lost(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    shutil.rmtree(site.config.scratch)
    site.config.scratch.mkdir()
    site.change("project")
    assert site.run(project)[0].error is None


def test_history_that_was_removed_leaves_the_bundles(site: BundleSite) -> None:
    project = site.repository("project", commits=3)
    gone = site.hg("-R", site.path("project"), "log", "-r", "tip", "-T", "{node}")
    site.run(project)
    source = site.path("project")
    site.hg("-R", source, "--config", "extensions.strip=", "strip", "--no-backup", "tip")
    (outcome,) = site.run(project)
    assert outcome.plan is not None
    assert "no longer has" in outcome.plan.reasons[0]
    (entry,) = site.published("project")
    assert entry.changesets == 2
    snapshot = site.config.scratch / "snapshots" / identity_of("project")
    assert gone not in site.hg("-R", snapshot, "log", "-T", "{node}\n")


def test_a_deleted_object_is_withdrawn_even_if_nothing_can_replace_it(site: BundleSite) -> None:
    project = site.repository("project", kinds=("stream", "zstd"))
    site.run(project)
    stream, zstd = site.published("project")
    del site.store.content[site.store.key(stream)]
    shutil.move(site.config.hgrc, site.root / "away")
    with pytest.MonkeyPatch.context() as patched:

        def full(*_arguments: object) -> None:
            raise OSError(28, "No space left on device")

        patched.setattr(hg_side, "generate", full)
        (outcome,) = site.run(project)
    assert "No space left" in str(outcome.error)
    assert site.published("project") == (zstd,)
    shutil.move(site.root / "away", site.config.hgrc)
    assert site.run(project)[0].error is None
    assert [entry.sha256 for entry in site.published("project")] == [stream.sha256, zstd.sha256]


def test_unfinished_uploads_are_aborted_after_the_retention_time(site: BundleSite) -> None:
    project = site.repository("project")
    key = f"project/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
    site.store.unfinished = [
        Upload(key, "old", NOW - timedelta(days=8)),
        Upload(key, "young", NOW - timedelta(days=6)),
        Upload("other/file", "not ours", NOW - timedelta(days=80)),
    ]
    site.run(project)
    assert [upload.id for upload in site.store.unfinished] == ["young", "not ours"]


def test_a_lost_manifest_is_rebuilt_from_the_objects_in_the_stores(regions: BundleSite) -> None:
    project = regions.repository("project", kinds=("stream", "zstd"))
    regions.run(project)
    regions.change("project")
    regions.run(project)
    before = regions.manifests.read_text(identity_of("project"))
    shutil.rmtree(regions.config.manifests)
    (outcome,) = regions.pipeline().publish([project])
    assert (outcome.error, outcome.missing) == (None, {})
    # The newer bundles, each after a clone.
    assert regions.manifests.read_text(identity_of("project")) == before
    assert "generated" not in regions.said.getvalue()
    assert regions.run(project)[0].plan.action is Action.KEEP  # type: ignore[union-attr]


def test_an_object_with_another_digest_than_its_key_is_not_published_again(
    regions: BundleSite,
) -> None:
    project = regions.repository("project")
    regions.run(project)
    shutil.rmtree(regions.config.manifests)
    eu = regions.stores[0]
    eu.lie = flip_bit
    (outcome,) = regions.pipeline().publish([project])
    assert set(outcome.missing) == {"eu"}
    assert regions.kinds_and_stores("project") == [("zstd", "us")]


def test_a_publication_without_objects_names_the_command_that_makes_them(site: BundleSite) -> None:
    (outcome,) = site.pipeline().publish([site.repository("project")])
    assert "`hgfleet bundles run` makes them" in str(outcome.error)
    assert not site.manifests.path(identity_of("project")).exists()
