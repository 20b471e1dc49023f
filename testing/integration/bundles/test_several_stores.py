"""Several stores: each gets every bundle, and each may fail without the others."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.plan import Action, Refresh
from hgfleet.bundles.hg import hg_side
from hgfleet.core.errors import UnavailableError
from testing.integration.support.store import flip_bit

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.hg.command_server import Hg
    from testing.integration.bundles.site import BundleSite


@pytest.fixture
def cloned(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """URLs through which a trial clone was begun."""
    urls: list[str] = []
    real = hg_side.clone_through

    def clone(hg: Hg, snapshot: Path, manifest_line: str, target: Path) -> frozenset[str]:
        urls.append(manifest_line.split()[0])
        return real(hg, snapshot, manifest_line, target)

    monkeypatch.setattr(hg_side, "clone_through", clone)
    return urls


def test_every_store_gets_every_bundle_and_kinds_come_first(regions: BundleSite) -> None:
    project = regions.repository("team/project", kinds=("zstd", "stream"))
    (outcome,) = regions.run(project)
    assert (outcome.error, outcome.missing) == (None, {})
    both = [("zstd", "eu"), ("zstd", "us"), ("stream", "eu"), ("stream", "us")]
    assert regions.kinds_and_stores("team/project") == both
    eu, us = regions.stores
    assert eu.content == us.content
    # Each was read whole from under the URL that is published.
    for store in regions.stores:
        assert {f"GET {key}" for key in store.content} <= {*store.asked()}
    assert regions.run(project)[0].plan.action is Action.KEEP  # type: ignore[union-attr]


def test_a_store_that_is_down_is_left_out_and_filled_by_the_next_run(regions: BundleSite) -> None:
    project = regions.repository("project", kinds=("zstd", "gzip"))
    eu, us = regions.stores
    us.refuse, us.fault = UnavailableError("connection refused"), "silent"
    (outcome,) = regions.run(project)
    assert outcome.error is None
    assert set(outcome.missing) == {"us"}
    assert regions.kinds_and_stores("project") == [("zstd", "eu"), ("gzip", "eu")]
    # It is back: bundles of the other store are copied, and none is generated.
    us.refuse, us.fault = None, ""
    (outcome,) = regions.run(project)
    assert outcome.missing == {}
    assert outcome.plan is not None
    assert outcome.plan.action is Action.COPY
    assert outcome.plan.reasons == ("zstd: not in us", "gzip: not in us")
    assert "generated" not in regions.said.getvalue()
    assert len(regions.published("project")) == 4
    assert eu.content == us.content


def test_a_store_that_dies_takes_its_entries_with_it(regions: BundleSite) -> None:
    project = regions.repository("project")
    regions.run(project)
    eu = regions.stores[0]
    eu.refuse, eu.fault = UnavailableError("connection refused"), "silent"
    (outcome,) = regions.run(project)
    assert set(outcome.missing) == {"eu"}
    assert regions.kinds_and_stores("project") == [("zstd", "us")]
    # Back with all its objects: they are verified again, and not uploaded.
    eu.refuse, eu.fault = None, ""
    regions.run(project)
    assert "already in eu" in regions.said.getvalue()
    assert regions.kinds_and_stores("project") == [("zstd", "eu"), ("zstd", "us")]


def test_a_store_that_takes_no_uploads_but_answers_keeps_its_entries(regions: BundleSite) -> None:
    project = regions.repository("project")
    regions.run(project)
    regions.stores[0].refuse = UnavailableError("connection refused")
    (outcome,) = regions.run(project)
    assert len(regions.published("project")) == 2
    assert set(outcome.missing) == {"eu"}


def test_one_store_that_changes_objects_does_not_keep_the_other_from_publication(
    regions: BundleSite,
) -> None:
    project = regions.repository("project")
    eu = regions.stores[0]
    eu.lie = flip_bit
    (outcome,) = regions.run(project)
    assert "got sha256" in str(outcome.missing["eu"])
    assert regions.kinds_and_stores("project") == [("zstd", "us")]
    assert eu.content == {}
    eu.lie = lambda data: data
    regions.run(project)
    assert regions.kinds_and_stores("project") == [("zstd", "eu"), ("zstd", "us")]


def test_a_new_store_gets_a_copy_of_the_published_bundles(regions: BundleSite) -> None:
    project = regions.repository("project")
    both = regions.config
    regions.config = replace(both, stores=both.stores[:1])
    regions.run(project)
    regions.change("project")
    regions.config = replace(both, refresh=Refresh(share=0.9, age=timedelta(days=7)))
    (outcome,) = regions.run(project)
    assert outcome.plan is not None
    # Even if they are a little behind: new bundles are not worth the wait.
    assert outcome.plan.action is Action.COPY
    first, second = regions.published("project")
    assert first.changesets == second.changesets == 2


def test_one_content_is_cloned_once_and_its_copies_are_compared(
    regions: BundleSite, cloned: list[str]
) -> None:
    project = regions.repository("project", kinds=("zstd", "stream"))
    (outcome,) = regions.run(project)
    assert (outcome.error, outcome.missing) == (None, {})
    assert len(regions.published("project")) == 4
    keys = [url.rpartition("/")[2] for url in cloned]
    assert len(keys) == len({*keys}) == 2
    said = regions.said.getvalue()
    assert (said.count("verified by a clone"), said.count("compared from")) == (2, 2)
    cloned.clear()
    assert regions.pipeline().verify(project).error is None
    assert len(cloned) == 2


def test_a_content_is_cloned_through_another_store_if_the_first_clone_fails(
    regions: BundleSite, cloned: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    project = regions.repository("project")
    begun = hg_side.clone_through

    def clone(hg: Hg, snapshot: Path, manifest_line: str, target: Path) -> frozenset[str]:
        heads = begun(hg, snapshot, manifest_line, target)
        return frozenset() if len(cloned) == 1 else heads

    monkeypatch.setattr(hg_side, "clone_through", clone)
    (outcome,) = regions.run(project)
    assert outcome.error is None
    assert len(cloned) == 2
    assert len(outcome.missing) == len(regions.published("project")) == 1
    assert cloned[1] == regions.published("project")[0].url


def test_a_copy_of_a_published_bundle_is_compared_and_not_cloned(
    regions: BundleSite, cloned: list[str]
) -> None:
    project = regions.repository("project")
    both = regions.config
    regions.config = replace(both, stores=both.stores[:1])
    regions.run(project)
    assert len(cloned) == 1
    regions.config = both
    assert regions.run(project)[0].missing == {}
    assert len(regions.published("project")) == 2
    assert len(cloned) == 1
