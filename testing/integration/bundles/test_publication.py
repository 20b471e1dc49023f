"""Publication: the order of kinds, and nothing that a store does not give back as it was made."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.bundles.decide.plan import Action
from hgfleet.bundles.hg import hg_side
from hgfleet.core.errors import UnavailableError
from hgfleet.hg.command_server import HgError
from testing.integration.support.site import identity_of
from testing.integration.support.store import NOW, flip_bit

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.hg.command_server import Hg
    from testing.integration.bundles.site import BundleSite


def test_every_kind_is_published_in_the_order_of_the_registry(site: BundleSite) -> None:
    project = site.repository("team/project", kinds=("zstd", "stream", "gzip"))
    (outcome,) = site.run(project)
    assert outcome.error is None
    specs = [entry.bundlespec.split(";requirements")[0] for entry in site.published("team/project")]
    assert specs == ["zstd-v2", "none-v2;stream=v2", "gzip-v2"]
    assert len(site.store.content) == 3
    # A second run finds nothing to do and touches nothing.
    (again,) = site.run(project)
    assert again.plan is not None
    assert again.plan.action is Action.KEEP
    assert not list((site.config.scratch / "work").iterdir())


def test_a_kind_is_published_although_another_one_fails(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each kind is published as soon as it is verified, next to the old bundles of the others."""
    project = site.repository("project", kinds=("stream", "zstd"))
    generate = hg_side.generate

    def failing(hg: Hg, snapshot: Path, kind: str, *more: Any) -> hg_side.Bundle:
        if kind == "zstd":
            raise HgError("out of disk")
        return generate(hg, snapshot, kind, *more)

    with monkeypatch.context() as patched:
        patched.setattr(hg_side, "generate", failing)
        (outcome,) = site.run(project)
    assert "out of disk" in str(outcome.error)
    assert site.kinds_and_stores("project") == [("stream", "main")]
    (outcome,) = site.run(project)
    assert outcome.error is None
    before = site.published("project")
    assert site.kinds_and_stores("project") == [("stream", "main"), ("zstd", "main")]
    site.change("project")
    with monkeypatch.context() as patched:
        patched.setattr(hg_side, "generate", failing)
        site.run(project, now=NOW + timedelta(days=8))
    stream, zstd = site.published("project")
    assert stream != before[0]
    assert zstd == before[1]


def test_a_client_with_the_published_manifest_clones_from_the_store(site: BundleSite) -> None:
    project = site.repository("project", kinds=("stream",))
    site.run(project)
    source = site.path("project")
    (source / ".hg/clonebundles.manifest").symlink_to(site.manifests.path(identity_of("project")))
    said = site.hg("clone", "-U", *site.ssh(), site.url("project"), site.root / "clone")
    assert f"applying clone bundle from {site.published('project')[0].url}" in said
    assert "no changes found" in said
    heads = ("log", "-r", "heads(all())", "-T", "{node}")
    assert site.hg("-R", site.root / "clone", *heads) == site.hg("-R", source, *heads)


@pytest.mark.parametrize(
    ("lie", "said"),
    [
        (lambda data: data[:-1], "bytes instead of"),
        (flip_bit, "got sha256"),
        (lambda data: data[:-1] + bytes([data[-1] ^ 1]), "its last bytes are not those uploaded"),
        (lambda _: b"", "it has 0 bytes"),
    ],
    ids=["truncated", "bit flipped", "last bit flipped", "empty"],
)
def test_an_object_that_the_store_changed_is_never_published(
    site: BundleSite, lie: Callable[[bytes], bytes], said: str
) -> None:
    project = site.repository("project")
    site.store.lie = lie
    (outcome,) = site.run(project)
    assert said in str(outcome.error)
    assert not site.manifests.path(identity_of("project")).exists()
    # It would be "already there" for ever; so it is not left there.
    assert site.store.content == {}
    # Once the store returns the right bytes again, the bundle is published.
    site.store.lie = lambda data: data
    assert site.run(project)[0].error is None
    assert len(site.published("project")) == 1


def test_a_new_bundle_that_the_store_changed_leaves_the_published_one(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    before = site.published("project")
    site.change("project")
    site.store.lie = lambda data: data if len(data) == before[0].size else b"x"
    (outcome,) = site.run(project)
    assert outcome.error is not None
    assert site.published("project") == before
    assert list(site.store.content) == [before[0].url.removeprefix(f"{site.store.url}/")]


def test_a_corrupt_object_is_replaced_under_the_same_key(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    (entry,) = site.published("project")
    right = dict(site.store.content)
    site.store.corrupt(entry)
    # Nothing but a look at the whole content finds it, and --force makes the same key.
    assert site.run(project, force=True)[0].error is None
    assert "already in main" in site.said.getvalue()
    assert [published.url for published in site.published("project")] == [entry.url]
    assert site.store.content == right


def test_a_failing_repository_does_not_touch_another(site: BundleSite) -> None:
    broken, fine = site.repository("broken"), site.repository("fine")
    (site.path("broken") / ".hg/store/00manifest.i").write_bytes(b"rubbish")
    outcomes = site.run(broken, fine)
    assert [outcome.error is None for outcome in outcomes] == [False, True]
    assert "hg clone failed" in str(outcomes[0].error)
    assert len(site.published("fine")) == 1
    assert site.published("broken") == ()


def test_a_store_that_is_down_stops_the_run_before_anything_happens(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    before = site.published("project")
    site.change("project")
    site.store.refuse = UnavailableError("connection refused")
    with pytest.raises(UnavailableError):
        site.run(project)
    assert site.published("project") == before
    site.store.refuse = None
    assert site.run(project)[0].error is None
    assert site.published("project")[0].changesets == 3


def test_a_store_that_ignores_ranges_is_not_published(site: BundleSite) -> None:
    site.store.ranges = False
    (outcome,) = site.run(site.repository("project"))
    assert "asked for a range, got status 200" in str(outcome.error)


def test_secret_changesets_are_in_no_bundle(site: BundleSite) -> None:
    project = site.repository("project", kinds=("stream", "zstd"))
    secret = site.change("project", "--secret")
    site.run(project)
    snapshot = site.config.scratch / "snapshots" / identity_of("project")
    assert secret not in site.hg("-R", snapshot, "log", "-T", "{node}\n")
    for entry in site.published("project"):
        assert secret not in entry.url
        assert entry.changesets == 2
    # Committing more secrets is no reason for a new bundle.
    before = site.published("project")
    site.change("project", "--secret")
    (outcome,) = site.run(project)
    assert outcome.plan is not None
    assert outcome.plan.action is Action.KEEP
    assert site.published("project") == before


def test_drafts_of_a_repository_that_does_not_publish_stay_drafts(site: BundleSite) -> None:
    project = replace(site.repository("project", commits=0), publishing=False)
    hgrc = site.config.repositories / "project/.hg/hgrc"
    hgrc.write_text("[phases]\npublish = false\n")
    site.change("project")
    assert site.run(project)[0].error is None
    snapshot = site.config.scratch / "snapshots" / identity_of("project")
    assert site.hg("-R", snapshot, "log", "-T", "{phase}\n") == "draft\n"


def test_an_empty_repository_gets_no_manifest(site: BundleSite) -> None:
    (outcome,) = site.run(site.repository("project", commits=0))
    assert outcome.error is None
    assert not site.manifests.path(identity_of("project")).exists()


def test_a_dry_run_changes_nothing(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project, dry_run=True)
    assert site.store.content == {}
    assert not site.manifests.path(identity_of("project")).exists()
    assert "generate: zstd: no bundle is published" in site.said.getvalue()


def test_a_run_in_ram_leaves_nothing_on_disk_or_in_ram(site: BundleSite, tmp_path: Path) -> None:
    ram = tmp_path / "ram"
    ram.mkdir()
    site.config = replace(site.config, scratch_ram=ram, scratch_ram_bytes=64 * 1024 * 1024)
    project = site.repository("project", kinds=("stream", "zstd", "gzip"))
    assert site.run(project)[0].error is None
    assert not (site.config.scratch / "snapshots").exists()
    assert not list((ram / "work").iterdir())
    # A snapshot that does not fit goes to the disk.
    site.config = replace(site.config, scratch_ram_bytes=1000)
    assert site.run(project, force=True)[0].error is None
    assert (site.config.scratch / "snapshots" / identity_of("project")).exists()
