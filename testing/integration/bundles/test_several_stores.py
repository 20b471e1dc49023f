"""Several stores: each gets every bundle, and each may fail alone."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import TYPE_CHECKING

from hgfleet.bundles.plan import Action, Refresh
from hgfleet.core.errors import UnavailableError
from testing.integration.support.store import flip_bit

if TYPE_CHECKING:
    from testing.integration.bundles.site import BundleSite


def test_every_store_gets_every_bundle_and_kinds_come_first(regions: BundleSite) -> None:
    project = regions.repository("team/project", kinds=("zstd", "stream"))
    (outcome,) = regions.run(project)
    assert (outcome.error, outcome.missing) == (None, {})
    both = [("zstd", "eu"), ("zstd", "us"), ("stream", "eu"), ("stream", "us")]
    assert regions.kinds_and_stores("team/project") == both
    eu, us = regions.stores
    assert eu.content == us.content
    # Each was cloned from under the URL that is published.
    for store in regions.stores:
        assert len(store.asked("GET")) >= 4
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
    # Even if it is a little behind: making all of them anew is no reason to wait for.
    assert outcome.plan.action is Action.COPY
    first, second = regions.published("project")
    assert first.changesets == second.changesets == 2
