"""Checks of published bundles: by digest, by a clone, by `hg verify`, and every week."""

from __future__ import annotations

import time
from dataclasses import replace
from datetime import timedelta
from io import StringIO
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.plan import Action
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.steps.explain import explain
from hgfleet.bundles.steps.pipeline import Pipeline
from hgfleet.bundles.stores import corruption
from hgfleet.core.errors import UnavailableError
from hgfleet.core.report import Report
from hgfleet.hg.command_server import HgError
from hgfleet.steering import health
from hgfleet.steering.health import Findings
from testing.integration.support.site import identity_of
from testing.integration.support.store import NOW, Store, flip_bit

if TYPE_CHECKING:
    from testing.integration.bundles.site import BundleSite


def test_published_bundles_can_be_verified_again(site: BundleSite) -> None:
    project = site.repository("project")
    site.run(project)
    site.change("project")
    assert Pipeline(site.config, Report("text", StringIO())).verify(project).error is None
    site.store.lie = lambda data: data[:50] + b"?" + data[51:]
    outcome = Pipeline(site.config, Report("text", StringIO())).verify(project)
    assert "got sha256" in str(outcome.error)
    assert len(site.published("project")) == 1


def test_large_repositories_are_compared_and_not_cloned(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.config = replace(site.config, digest_only=("big/*",))
    giant = site.repository("big/one")
    with monkeypatch.context() as patched:
        patched.setattr(hg_side, "clone_through", None)
        assert site.run(giant)[0].error is None
        # Such a bundle is never due for `hg verify`: it is read instead (`read_age`).
        for days in (0, 31):
            site.run(giant, now=NOW + timedelta(days=days))
            assert "snapshot" not in site.said.getvalue()
    site.store.lie = flip_bit
    assert "got sha256" in str(site.run(giant, force=True)[0].error)


def test_hg_verify_checks_a_clone_on_schedule(site: BundleSite) -> None:
    site.config = replace(site.config, verify_age=timedelta(days=30))
    project = site.repository("project")
    site.run(project)
    said = []
    for days in (31, 32, 62):
        site.run(project, now=NOW + timedelta(days=days))
        said.append("hg verify found nothing wrong" in site.said.getvalue())
    assert said == [True, False, True]


def test_a_finding_of_hg_verify_fails_the_repository(
    site: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    project = site.repository("project")
    site.run(project)

    def find(*_arguments: object) -> None:
        raise HgError("hg verify failed: data/file.i@0: broken revlog")

    later = NOW + timedelta(days=31)
    with monkeypatch.context() as patched:
        patched.setattr(hg_side, "verify_clone", find)
        for _ in range(2):
            (outcome,) = site.run(project, now=later)
            assert "broken revlog" in str(outcome.error)
    assert site.run(project, now=later)[0].error is None


DUE = NOW + timedelta(days=8)


def one_store(site: BundleSite) -> Store:
    """Leave a site its first store."""
    site.config = replace(site.config, stores=site.config.stores[:1])
    site.stores = site.stores[:1]
    return site.store


def found_corrupt(site: BundleSite) -> dict[str, float]:
    """Return the findings that runs left for metrics."""
    return corruption.parse((site.config.state / corruption.NAME).read_bytes())


def test_an_object_corrupt_in_one_store_is_copied_from_another(rereading: BundleSite) -> None:
    project = rereading.repository("project", kinds=("stream",))
    rereading.run(project, everything=True)
    before = rereading.manifests.read_text(identity_of("project"))
    eu, us = rereading.stores
    eu.corrupt(rereading.published("project")[0])
    # Its time has not come.
    assert rereading.run(project, everything=True)[0].plan.action is Action.KEEP  # type: ignore[union-attr]

    (outcome,) = rereading.run(project, everything=True, now=DUE)
    said = rereading.said.getvalue()
    assert (outcome.error, outcome.missing) == (None, {})
    assert said.index("withdrawn: ") < said.index("uploaded to eu")
    assert "stream: not in eu (got sha256 " in said
    # No corrupt object was in the way of the right object.
    assert "already in eu" not in said
    assert "generated" not in said
    assert eu.content == us.content
    assert rereading.manifests.read_text(identity_of("project")) == before
    assert rereading.pipeline().verify(project).error is None
    # The store has other objects: a later run tells of it still.
    rereading.run(project, everything=True, now=DUE)
    findings = found_corrupt(rereading)
    assert time.time() - findings.pop("eu") < 60
    assert findings == {"us": 0.0, corruption.PULL_BUNDLES: 0.0}
    # Once a week is enough.
    asked = len(us.asked())
    rereading.run(project, everything=True, now=DUE + timedelta(days=1))
    assert len(us.asked()) == asked


def test_an_object_corrupt_in_the_only_store_is_generated_again_also_after_a_killed_run(
    rereading: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = one_store(rereading)
    project = rereading.repository("project", kinds=("zstd", "gzip"))
    rereading.run(project)
    right, before = dict(store.content), rereading.published("project")

    class Killed(BaseException):
        pass

    def die(_key: str) -> None:
        raise Killed

    store.corrupt(before[0])
    with monkeypatch.context() as patched:
        patched.setattr(store, "delete", die)
        with pytest.raises(Killed):
            rereading.run(project, everything=True, now=DUE)
    assert rereading.published("project") == before[1:]
    assert store.content != right
    # The next run meets the wrong object under the name of the right object.
    assert rereading.run(project, everything=True, now=DUE)[0].error is None
    assert store.content == right
    assert [entry.url for entry in rereading.published("project")] == [
        entry.url for entry in before
    ]

    # `verify` changes nothing, but the next run, whenever that is, looks.
    store.corrupt(before[1])
    known = found_corrupt(rereading)["eu"]
    assert "got sha256" in str(rereading.pipeline(DUE).verify(project).error)
    assert found_corrupt(rereading)["eu"] > known
    assert len(rereading.published("project")) == 2
    assert "the next run: a bundle is wrong" in "\n".join(explain(rereading.pipeline(), project))
    assert rereading.run(project, now=DUE)[0].error is None
    assert "uploaded to eu" in rereading.said.getvalue()
    assert store.content == right
    assert rereading.pipeline(DUE).verify(project).error is None


def test_an_object_that_cannot_be_read_is_not_taken_for_a_corrupt_one(
    rereading: BundleSite,
) -> None:
    project = rereading.repository("project")
    rereading.run(project)
    before = rereading.manifests.read_text(identity_of("project"))
    eu, us = rereading.stores
    right = dict(us.content)
    for trouble in ({"fault": "silent"}, {"fault": "403"}, {"cut": 60}):
        for name, value in trouble.items():
            setattr(us, name, value)
        (outcome,) = rereading.run(project, everything=True, now=DUE)
        assert (outcome.error, set(outcome.missing)) == (None, {"us"}), trouble
        assert rereading.manifests.read_text(identity_of("project")) == before
        assert us.content == right
        us.fault, us.cut = "", None
    # It is still due.
    us.corrupt(rereading.published("project")[1])
    rereading.run(project, everything=True, now=DUE)
    assert eu.content == us.content == right
    # A store that cannot even be listed is not read.
    us.refuse = UnavailableError("connection refused")
    us.requests.clear()
    rereading.run(project, everything=True, now=DUE + timedelta(days=8))
    assert not us.asked("GET")
    assert rereading.manifests.read_text(identity_of("project")) == before


@pytest.mark.parametrize("error", ["500", "slow"])
@pytest.mark.parametrize("is_probed", [False, True])
def test_an_object_that_is_not_served_is_made_again_if_others_are(
    rereading: BundleSite, error: str, is_probed: bool
) -> None:
    """Such as an object with a bad sector. The prober knows of it before its turn has come."""
    rereading.config = replace(rereading.config, timeout_seconds=0.3)
    store = one_store(rereading)
    project, other = rereading.repository("project"), rereading.repository("other", commits=3)
    rereading.run(project, other)
    right, before = dict(store.content), rereading.published("project")
    key = store.key(before[0])
    store.broken = {f"GET {key}": error}
    if is_probed:
        findings = Findings({before[0].url: "the answer is 500"})
        rereading.config.findings.write_bytes(health.dump_findings(findings))
    # Without the finding, its time has not come.
    assert rereading.run(project, other)[0].error is None
    assert bool(store.broken) == (not is_probed)
    # A run reads half of the repositories.
    for _ in range(2):
        for outcome in rereading.run(project, other, now=DUE, everything=True):
            assert (outcome.error, outcome.missing) == (None, {})
    assert store.broken == {}
    assert store.content == right
    after = rereading.published("project")
    assert [entry.url for entry in after] == [entry.url for entry in before]
    assert time.time() - found_corrupt(rereading)["eu"] < 60


def test_a_corrupt_object_is_withdrawn_even_if_hg_fails(rereading: BundleSite) -> None:
    store = one_store(rereading)
    project = rereading.repository("project")
    rereading.run(project)
    store.corrupt(rereading.published("project")[0])
    (rereading.config.repositories / "project/.hg/store/00changelog.i").write_bytes(b"rubbish")
    (outcome,) = rereading.run(project, everything=True, now=DUE)
    assert isinstance(outcome.error, HgError)
    assert rereading.published("project") == ()


def test_a_copy_with_a_corrupt_source_lets_the_next_run_repair_both(rereading: BundleSite) -> None:
    both, stores = rereading.config, rereading.stores
    eu = one_store(rereading)
    project = rereading.repository("project")
    rereading.run(project)
    right = dict(eu.content)
    eu.corrupt(rereading.published("project")[0])
    rereading.config, rereading.stores = both, stores
    (outcome,) = rereading.run(project)
    assert "got sha256" in str(outcome.missing["us"])
    assert rereading.run(project)[0].missing == {}
    assert stores[0].content == stores[1].content == right
    assert rereading.kinds_and_stores("project") == [("zstd", "eu"), ("zstd", "us")]


def test_a_run_reads_a_share_of_the_objects_that_are_due(rereading: BundleSite) -> None:
    one_store(rereading)
    repositories = [rereading.repository("one"), rereading.repository("two")]
    rereading.run(*repositories, everything=True)
    read = []
    # Pushes, and people who name a repository, do not wait for it.
    for everything in (False, True, True, True):
        rereading.run(*repositories, everything=everything, now=DUE)
        said = rereading.said.getvalue()
        read.append([path for path in ("one", "two") if f"{path}: read 1 bundles" in said])
    assert read[0] == read[3] == []
    assert sorted(read[1] + read[2]) == ["one", "two"]
    assert len(read[1]) == 1
