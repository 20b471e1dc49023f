"""The state cache: hg is asked about a repository only after a change."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.plan import Action
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.core.report import Report
from hgfleet.hg import fingerprint as files
from testing.integration.support.site import identity_of

if TYPE_CHECKING:
    from pathlib import Path

    from testing.conftest import WaitFor
    from testing.integration.bundles.site import BundleSite


@pytest.fixture
def asked(site: BundleSite, tmp_path: Path) -> Path:
    """Have the site's hg note each of its runs in this file, a line each."""
    notes, noting = tmp_path / "asked", tmp_path / "hg"
    noting.write_text(f'#!/bin/sh\necho "$@" >> {notes}\nexec {site.config.hg} "$@"\n')
    noting.chmod(0o755)
    site.config = replace(site.config, hg=noting)
    return notes


def settle(site: BundleSite, path: str, wait_for: WaitFor) -> None:
    """Wait until the files of a repository are old enough for their stat to be trusted."""
    watched = files.paths(site.config.repositories / path / ".hg")
    wait_for("files to settle", lambda: files.read(watched).is_settled(), every=0.02)


def test_an_untouched_repository_is_not_asked_twice(
    site: BundleSite, asked: Path, wait_for: WaitFor
) -> None:
    project = site.repository("project")
    site.run(project)
    settle(site, "project", wait_for)
    site.run(project)
    asked.write_text("")
    (outcome,) = site.run(project)
    assert outcome.plan is not None
    assert outcome.plan.action is Action.KEEP
    assert asked.read_text() == ""


@pytest.mark.parametrize("damage", ["", "{", '{"for": 1}', "[]"])
def test_a_damaged_cache_entry_is_a_missing_one(
    site: BundleSite, asked: Path, wait_for: WaitFor, damage: str
) -> None:
    project = site.repository("project")
    site.run(project)
    settle(site, "project", wait_for)
    site.run(project)
    (site.config.scratch / "known" / identity_of("project")).write_text(damage)
    asked.write_text("")
    assert site.run(project)[0].error is None
    assert "serve" in asked.read_text()


def test_every_kind_of_change_invalidates_the_cache(site: BundleSite, wait_for: WaitFor) -> None:
    project = site.repository("project", commits=3)
    source = site.path("project")
    site.run(project)
    pipeline = Pipeline(site.config, Report("text", site.said))

    def heads() -> frozenset[str]:
        settle(site, "project", wait_for)
        _, seen = pipeline.plan(project, remember=True)
        assert pipeline.plan(project)[1] == seen
        return seen.heads

    seen = [heads()]
    site.change("project")
    seen.append(heads())
    # Neither adds to the changelog: a phase, and a marker of obsolescence.
    site.hg("-R", source, "phase", "--force", "--secret", "tip")
    seen.append(heads())
    site.hg("-R", source, "phase", "--draft", "tip")
    seen.append(heads())
    tip = site.hg("-R", source, "log", "-r", "tip", "-T", "{node}")
    evolution = ("--config", "experimental.evolution=all")
    site.hg("-R", source, "update", "--rev", "tip^", *evolution)
    site.hg("-R", source, "debugobsolete", tip, *evolution)
    with site.config.hgrc.open("a") as file:
        file.write("[experimental]\nevolution = all\n")
    seen.append(heads())
    site.hg("-R", source, "--config", "extensions.strip=", "strip", "--no-backup", "--hidden", tip)
    site.change("project")
    seen.append(heads())
    for before, after in itertools.pairwise(seen):
        assert before != after
    assert seen[0] == seen[2] == seen[4]
    assert seen[1] == seen[3]
