"""The pass that only withdraws and deletes, and objects that are deleted for good."""

from __future__ import annotations

import fcntl
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.bundles.hg import hg_side, recent_pushes
from hgfleet.bundles.stores import purging
from hgfleet.core.errors import UnavailableError
from testing.integration.support.site import identity_of
from testing.integration.support.store import NOW

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.registry.model.registry import Repository
    from testing.integration.bundles.site import BundleSite


def team_only(site: BundleSite, repository: Repository) -> Repository:
    """Have the registry say that a repository is private now."""
    private = replace(repository, read=("team",))
    site.enter(private)
    return private


def test_nothing_waits_behind_the_generation_of_another_bundle(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    secret = site.repository("z-secret")
    site.run(secret)
    private, first = team_only(site, secret), site.repository("a-first")
    generate = hg_side.generate
    seen: list[Any] = []

    def slow(*arguments: Any) -> hg_side.Bundle:
        seen.append((site.published("z-secret"), site.bundles()))
        return generate(*arguments)

    monkeypatch.setattr(hg_side, "generate", slow)
    site.run(first, private, everything=True)
    assert seen == [((), [[]])]


def test_a_withdrawal_does_not_wait_for_another_run(site: BundleSite) -> None:
    project, other = site.repository("project"), site.repository("other")
    site.run(project, other, everything=True)
    private = team_only(site, project)
    with (site.config.scratch / "locks" / project.identity).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert site.run(private)[0].busy
        assert site.published("project") == ()
        assert site.bundles() == [["other"]]
        # The command only withdraws as well.
        private = team_only(site, other)
        assert site.pipeline().withdraw([private, project], everything=True) == []
        assert site.bundles() == [[]]


def test_without_anything_to_withdraw_the_stores_are_not_asked(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    site.store.refuse = UnavailableError("connection refused")
    assert site.pipeline().withdraw([project], everything=True) == []
    assert len(site.published("project")) == 1


def test_entries_are_withdrawn_although_no_store_answers(site: BundleSite) -> None:
    project, other = site.repository("project"), site.repository("other")
    site.run(project, other)
    site.store.refuse = UnavailableError("connection refused")
    private = team_only(site, project)
    with pytest.raises(UnavailableError):
        site.run(private, other, everything=True)
    assert site.published("project") == ()
    assert len(site.published("other")) == 1
    # The objects of the store follow when it answers.
    site.store.refuse = None
    site.run(private, other, everything=True)
    assert site.bundles() == [["other"]]


def test_bundles_from_before_a_removal_go_at_once(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The removed changeset may be in any of them, also where the tip is still there."""
    project, other = site.repository("project"), site.repository("other")
    site.run(project, other)
    removed = datetime.now(UTC) + timedelta(seconds=1)

    def removal(place: Path, since: datetime) -> datetime | None:
        return removed if place.name == "project" and since <= removed else None

    monkeypatch.setattr(recent_pushes, "removal", removal)
    assert site.pipeline().withdraw([project, other], everything=True) == []
    assert site.bundles() == [["other"]]
    assert site.published("project") == ()
    assert len(site.published("other")) == 1
    # Bundles made since stay.
    removed = datetime.now(UTC) - timedelta(minutes=5)
    site.run(project, other)
    assert sorted(site.in_store(site.store)) == ["other", "project"]
    assert site.pipeline().withdraw([project, other], everything=True) == []
    assert len(site.published("project")) == 1


def test_a_bundle_whose_tip_was_removed_goes_before_another_can_be_made(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = site.repository("project", commits=3)
    site.run(project)
    with site.hgrc.open("a") as hgrc:
        hgrc.write("[extensions]\nstrip =\n")
    site.hg_in("project", "strip", "--no-backup", "tip")

    def failing(*_arguments: Any) -> hg_side.Bundle:
        raise UnavailableError("no room")

    monkeypatch.setattr(hg_side, "generate", failing)
    (outcome,) = site.run(project, now=NOW + timedelta(minutes=1))
    assert "no room" in str(outcome.error)
    assert site.published("project") == ()
    assert site.bundles() == [[]]


def test_a_bundle_whose_tip_was_rewritten_stays_until_another_is_made(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    with site.hgrc.open("a") as hgrc:
        hgrc.write("[experimental]\nevolution = all\n[phases]\npublish = no\n")
    project = site.repository("project", commits=0)
    site.change("project")
    site.change("project")
    site.run(project)
    site.hg_in("project", "commit", "--amend", "--message", "another")

    def failing(*_arguments: Any) -> hg_side.Bundle:
        raise UnavailableError("no room")

    monkeypatch.setattr(hg_side, "generate", failing)
    (outcome,) = site.run(project, now=NOW + timedelta(minutes=1))
    assert "no room" in str(outcome.error)
    assert len(site.published("project")) == 1
    assert site.bundles() == [["project"]]


def test_a_forgotten_repository_leaves_nothing(site: BundleSite) -> None:
    project, other = site.repository("project"), site.repository("other")
    site.run(project, other)
    site.change("project")
    site.run(project, other, now=NOW + timedelta(minutes=1))
    assert site.bundles() == [["project", "project", "other"]] or len(site.store.content) == 3
    outcome = site.pipeline().forget(project)
    assert outcome.error is None
    assert site.bundles() == [["other"]]
    left = [*site.root.rglob(f"*{project.identity}*")]
    assert [path for path in left if path.parent.name != "locks"] == []
    # The next run makes new bundles.
    site.run(project)
    assert len(site.published("project")) == 1


def test_a_repository_that_a_run_has_is_forgotten_as_far_as_that_goes(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    with (site.config.scratch / "locks" / project.identity).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        outcome = site.pipeline().forget(project)
    assert "another run is at work on it" in str(outcome.error)
    assert site.bundles() == [[]]
    assert site.published("project") == ()


def test_a_store_that_does_not_answer_makes_a_command_to_forget_fail(regions: BundleSite) -> None:
    project = regions.repository("project")
    regions.run(project)
    regions.stores[1].refuse = UnavailableError("connection refused")
    outcome = regions.pipeline().forget(project)
    assert "connection refused" in str(outcome.error)
    assert regions.bundles() == [[], ["project"]]


def test_caches_are_told_of_what_must_not_be_read_any_more(closed: BundleSite) -> None:
    taken = closed.root / "taken"
    program = f"import sys; open({str(taken)!r}, 'a').write(sys.stdin.read())"
    closed.config = replace(closed.config, purge_command=(sys.executable, "-c", program))
    project = closed.repository("project")
    closed.run(project)
    (entry,) = closed.published("project")
    assert not taken.exists()
    private = team_only(closed, project)
    closed.run(private)
    assert taken.read_text().splitlines() == [entry.url]
    # No cache has objects of a private store.
    closed.pipeline().forget(private)
    assert taken.read_text().splitlines() == [entry.url]
    # A command that fails makes the run fail, until it works.
    project = replace(private, read="public")
    closed.enter(project)
    closed.run(project)
    broken = replace(closed.config, purge_command=(sys.executable, "-c", "raise SystemExit(3)"))
    good, closed.config = closed.config, broken
    (*_, outcome) = closed.run(team_only(closed, project))
    assert "ended with 3, expected 0" in str(outcome.error)
    assert len(purging.waiting(closed.config.state)) == 1
    closed.config = good
    assert all(outcome.error is None for outcome in closed.run(private))
    assert purging.waiting(closed.config.state) == []
    assert len(taken.read_text().splitlines()) == 2
    assert identity_of("project") in taken.read_text()
