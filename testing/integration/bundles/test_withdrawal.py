"""Bundles of repositories that are replaced, archived, purged, private or unregistered."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core.report import Report
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Namespace, Settings, build
from testing.integration.support.site import identity_of
from testing.integration.support.store import NOW

if TYPE_CHECKING:
    from testing.integration.bundles.site import BundleSite


def test_replaced_bundles_are_deleted_after_the_retention_time(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    (first,) = site.published("project")
    site.change("project")
    # The first bundle is old when it is replaced; a client may have been sent to it just before.
    real_now = datetime.now(UTC)
    site.run(project, now=real_now)
    assert len(site.store.content) == 2
    site.run(project, now=real_now + timedelta(days=6))
    assert len(site.store.content) == 2
    site.run(project, now=real_now + timedelta(days=8))
    (second,) = site.published("project")
    assert list(site.store.content) == [site.store.key(second)]
    assert second != first


def test_a_repository_that_becomes_private_is_withdrawn_at_once(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    private = replace(project, read=("staff",))
    (outcome,) = site.run(private, now=NOW + timedelta(seconds=1))
    assert outcome.error is None
    assert site.manifests.read_text(identity_of("project")) == ""
    assert site.store.content == {}
    assert not (site.config.scratch / "snapshots" / identity_of("project")).exists()


def test_a_repository_that_is_archived_loses_its_bundles_in_the_next_run(site: BundleSite) -> None:
    known_as = site.make("people/bob/x", commits=3)
    static = build({}, {"people": Namespace("people")}, Settings(bundles=("zstd",), bundles_from=1))
    site.config.registry.write_text(dump_compiled(static))
    site.config.dynamic.parent.mkdir()
    entry = Entry("bob", "", "2026-11-20T00:00:00Z", identity=known_as)
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = entry
    pipeline = Pipeline(site.config, Report("text", site.said))
    known, archived = pipeline.known()
    site.run(*known.repositories.values(), *archived)
    assert site.published("people/bob/x")
    assert site.store.content
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = replace(entry, archived="2026-11-20T12:00:00Z")
    known, archived = pipeline.known()
    assert list(known.repositories) == []
    site.run(*archived, now=NOW + timedelta(hours=1))
    assert site.published("people/bob/x") == ()
    assert site.store.content == {}


def test_bundles_of_a_purged_repository_go_in_the_next_run_though_none_saw_it_archived(
    site: BundleSite,
) -> None:
    paths = ("people/bob/x", "people/bob/stays")
    entry = Entry("bob", "", "2026-11-20T00:00:00Z")
    made = {path: replace(entry, identity=site.make(path, commits=3)) for path in paths}
    static = build({}, {"people": Namespace("people")}, Settings(bundles=("zstd",), bundles_from=1))
    site.config.registry.write_text(dump_compiled(static))
    site.config.dynamic.parent.mkdir()
    with dynamic_update.update(site.config.dynamic) as entries:
        entries.update(made)

    def run(hours: float) -> set[str]:
        pipeline = site.pipeline(now=NOW + timedelta(hours=hours))
        known, archived = pipeline.known()
        for outcome in pipeline.run([*known.repositories.values(), *archived], everything=True):
            assert outcome.error is None
        return set(site.in_store(site.store))

    assert run(0) == {"people/bob/x", "people/bob/stays"}
    with dynamic_update.update(site.config.dynamic) as entries:
        entries.note_purged(made["people/bob/x"].identity)
        del entries["people/bob/x"]
    assert run(1) == {"people/bob/stays"}
    assert site.published("people/bob/x") == ()
    # A later repository of that name has bundles.
    site.change("people/bob/x")
    again = replace(entry, identity=site.identify("people/bob/x", "9a" * 16))
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = again
    assert run(2) == run(3) == {again.identity, "people/bob/stays"}
    assert site.published("people/bob/x") == ()


def test_a_damaged_dynamic_registry_withdraws_nothing(site: BundleSite) -> None:
    site.config.registry.write_text(dump_compiled(build({}, {}, Settings())))
    site.config.dynamic.parent.mkdir()
    site.config.dynamic.write_text("half of it")
    known, archived = Pipeline(site.config, Report("text", site.said)).known()
    assert (list(known.repositories), archived) == ([], [])
    assert "not a dynamic registry" in site.said.getvalue()


def test_a_repository_that_left_the_registry_is_withdrawn_and_deleted_after_the_retention_time(
    regions: BundleSite,
) -> None:
    stays, leaves = regions.repository("stays"), regions.repository("team/leaves")
    regions.run(stays, leaves, everything=True)
    now = datetime.now(UTC)
    regions.leave("team/leaves")
    (_, outcome) = regions.run(stays, everything=True, now=now)
    assert outcome.repository == leaves.identity
    assert regions.published("team/leaves") == ()
    assert not (regions.config.scratch / "snapshots" / leaves.identity).exists()
    # A client may still be downloading.
    assert all(len(store.content) == 2 for store in regions.stores)
    regions.run(stays, everything=True, now=now + timedelta(days=8))
    for store in regions.stores:
        assert regions.in_store(store) == ["stays"]
    assert len(regions.run(stays, everything=True, now=now + timedelta(days=9))) == 1


def test_a_run_for_some_repositories_leaves_the_others_alone(site: BundleSite) -> None:
    chosen, other = site.repository("one"), site.repository("other")
    site.run(chosen, other, everything=True)
    site.run(chosen, now=datetime.now(UTC) + timedelta(days=400))
    assert site.published("other")
    assert len(site.store.content) == 2


def test_a_run_leaves_bundles_of_another_host_alone_and_prune_does_not(site: BundleSite) -> None:
    project = site.repository("project")
    foreign = f"elsewhere/project/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
    site.store.content[foreign] = b"x"
    site.store.modified[foreign] = NOW - timedelta(days=400)
    site.run(project, everything=True)
    assert foreign in site.store.content
    site.pipeline().prune([project], everything=True)
    assert foreign not in site.store.content


def test_a_registry_that_is_empty_or_damaged_deletes_nothing(site: BundleSite) -> None:
    chosen, other = site.repository("one"), site.repository("other")
    site.run(chosen, other, everything=True)
    later = datetime.now(UTC) + timedelta(days=400)
    assert site.run(everything=True, now=later) == []
    pipeline = site.pipeline(later)
    pipeline.partial = True
    pipeline.run([chosen], everything=True)
    assert len(site.store.content) == 2
    assert site.published("other")


def test_prune_deletes_orphans_of_killed_runs_and_makes_nothing(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    (entry,) = site.published("project")
    orphan = f"{project.identity}/{'a' * 40}.{'b' * 16}.zstd-v2.hg"
    for key in (orphan, "index.html"):
        site.store.content[key] = b"x"
        site.store.modified[key] = NOW - timedelta(days=8)
    left = site.config.scratch / "work/gone+repository"
    left.mkdir()
    site.change("project")
    dry = site.pipeline(dry_run=True)
    dry.prune([project], everything=True)
    assert f"would delete {orphan}" in site.said.getvalue()
    assert orphan in site.store.content
    site.pipeline().prune([project], everything=True)
    assert {*site.store.content} == {site.store.key(entry), "index.html"}
    assert site.published("project") == (entry,)
    assert not left.exists()


def test_a_lost_dynamic_registry_withdraws_nothing(site: BundleSite) -> None:
    known_as, of_project = site.make("people/bob/x", commits=3), site.make("project")
    static = build(
        {"project": ("", Settings())},
        {"people": Namespace("people")},
        Settings(bundles=("zstd",), bundles_from=1),
    )
    site.config.registry.write_text(dump_compiled(static))
    site.config.dynamic.parent.mkdir()
    with dynamic_update.update(site.config.dynamic) as entries:
        entries["people/bob/x"] = Entry("bob", "", "2026-11-20T00:00:00Z", identity=known_as)
        entries.note_identity("project", of_project)
    known, archived = site.pipeline().known()
    project = known.repositories["project"]
    site.run(*known.repositories.values(), *archived, everything=True)
    site.pipeline().known()
    published = site.published("people/bob/x")
    assert published
    # First only the file, then the folder with it.
    for lost in (site.config.dynamic, site.config.dynamic.parent):
        lost.rename(site.root / f"lost-{lost.name}")
        pipeline = site.pipeline(NOW + timedelta(days=30))
        known, archived = pipeline.known()
        assert "missing, and it existed before" in site.said.getvalue()
        pipeline.run([project, *archived], everything=True)
        assert site.published("people/bob/x") == published
        assert site.store.content
