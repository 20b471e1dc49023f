"""Bundles of private repositories: in the private store, signed, and nowhere else."""

from __future__ import annotations

import re
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.plan import Action
from hgfleet.bundles.hg import hg_side
from hgfleet.bundles.steps.explain import explain
from hgfleet.core.errors import UnavailableError
from hgfleet.hg.command_server import HgError
from testing.integration.support.site import identity_of
from testing.integration.support.store import NOW, SECRET, write_keys

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Repository
    from testing.integration.bundles.site import BundleSite


def team_only(repository: Repository) -> Repository:
    return replace(repository, read=("team",))


def test_private_bundles_go_to_the_private_store_and_nowhere_else(closed: BundleSite) -> None:
    public = closed.repository("open", kinds=("stream", "zstd"))
    private = team_only(closed.repository("team/secret", kinds=("stream", "zstd")))
    assert [result.error for result in closed.run(public, private, everything=True)] == [None, None]

    assert closed.bundles() == [["open", "open"], ["team/secret", "team/secret"]]
    assert not any(entry.private for entry in closed.published("open"))
    entries = closed.published("team/secret")
    assert all(entry.private and "?" not in entry.url for entry in entries)
    main, store = closed.stores
    # The probe, the comparison and the clone were signed; unsigned requests are refused.
    for entry in entries:
        asked = [line.split(" ")[0] for line in store.asked() if line.endswith(entry.url[-60:])]
        assert asked == ["HEAD", "GET", "GET"]
    assert store.signed.count(False) == 1 + len(entries)
    assert "X-Amz" not in closed.said.getvalue()
    assert SECRET not in closed.said.getvalue()
    # No page tells of it.
    assert "secret" not in main.pages["index.html"].decode() + main.pages["bundles.json"].decode()
    assert list(store.pages) == ["closed.txt"]

    # A second run has nothing to do.
    again = closed.run(public, private, everything=True)
    assert [result.plan.action for result in again if result.plan] == [Action.KEEP, Action.KEEP]
    assert closed.pipeline().verify(private).error is None
    said = "\n".join(explain(closed.pipeline(), private))
    assert "closed; not for it: main" in said


def test_a_private_store_that_is_open_gets_nothing(closed: BundleSite) -> None:
    public = closed.repository("open")
    private = team_only(closed.repository("secret"))
    closed.stores[1].is_open = lambda _path: True
    outcomes = closed.run(public, private)
    assert outcomes[0].error is None
    assert "open to all: without a signature the answer is 206" in str(outcomes[1].error)
    assert closed.bundles() == [["open"], []]
    assert closed.stores[1].metadata == {}, "something was there for a moment"
    assert closed.published("secret") == ()
    # Closed, it is filled by the next run.
    closed.stores[1].is_open = lambda _path: False
    assert [outcome.error for outcome in closed.run(public, private)] == [None, None]
    assert len(closed.published("secret")) == 1


def test_a_private_bundle_that_is_readable_without_a_signature_is_deleted(
    closed: BundleSite,
) -> None:
    """The store opens after it was found closed, or only for bundles."""
    private = team_only(closed.repository("secret"))
    closed.stores[1].is_open = lambda path: path.endswith(".hg")
    (outcome,) = closed.run(private)
    assert "open to all" in str(outcome.error)
    assert closed.bundles() == [[], []]
    assert closed.published("secret") == ()


@pytest.mark.parametrize("wrong", ["another key", "no key", "no file"])
def test_without_the_readers_key_nothing_private_is_brought_anywhere(
    closed: BundleSite, wrong: str
) -> None:
    reader = closed.stores[1].reader
    assert reader is not None
    if wrong == "another key":
        write_keys(closed.config.signing, replace(reader, secret_key="other"))
        said = "the answer to a signed request is 403"
    elif wrong == "no key":
        write_keys(closed.config.signing, replace(reader, url="https://other.example"))
        said = "no key to read it with"
    else:
        closed.config.signing.unlink()
        said = "cannot read the keys of the private stores"
    public = closed.repository("open")
    outcomes = closed.run(public, team_only(closed.repository("secret")))
    assert outcomes[0].error is None
    assert said in str(outcomes[1].error)
    assert closed.bundles() == [["open"], []]


def test_a_repository_that_becomes_private_leaves_the_public_store_at_once(
    closed: BundleSite,
) -> None:
    project = closed.repository("project")
    closed.run(project)
    assert closed.bundles() == [["project"], []]
    private = team_only(project)
    closed.stores[1].refuse = UnavailableError("connection refused")
    # Even where no other bundles can be made.
    (outcome,) = closed.run(private, now=NOW + timedelta(seconds=1))
    assert "connection refused" in str(outcome.error)
    assert closed.published("project") == ()

    closed.stores[1].refuse = None
    (outcome,) = closed.run(private, now=NOW + timedelta(seconds=2))
    assert outcome.error is None
    assert closed.bundles() == [[], ["project"]]
    assert [entry.private for entry in closed.published("project")] == [True]


def test_prune_deletes_public_bundles_of_a_repository_that_became_private(
    closed: BundleSite,
) -> None:
    project = closed.repository("project")
    closed.run(project)
    private = team_only(project)
    closed.enter(private)
    closed.pipeline(NOW + timedelta(seconds=1)).prune([private], everything=True)
    assert closed.published("project") == ()
    assert closed.bundles() == [[], []]


def test_a_repository_that_becomes_public_leaves_the_private_store_after_the_retention_time(
    closed: BundleSite,
) -> None:
    project = closed.repository("project")
    closed.run(team_only(project))
    (outcome,) = closed.run(project, now=NOW + timedelta(days=1))
    assert outcome.error is None
    assert [entry.private for entry in closed.published("project")] == [False]
    assert closed.bundles() == [["project"], ["project"]]
    later = datetime.now(UTC) + timedelta(days=8)
    closed.run(project, now=later)
    assert closed.bundles() == [["project"], []]


def test_a_private_store_is_emptied_before_it_becomes_public(
    closed: BundleSite,
) -> None:
    """The order that the runbook tells: the settings, a run, and only then the bucket."""
    public, private = closed.repository("open"), team_only(closed.repository("secret"))
    closed.run(public, private, everything=True)
    main, store = closed.config.stores
    closed.config = replace(closed.config, stores=(main, replace(store, private=False)))
    outcomes = closed.run(public, private, everything=True, now=NOW + timedelta(seconds=1))
    assert "403 Forbidden; this public store must answer requests without a signature" in str(
        outcomes[0].missing["closed"]
    )
    assert closed.bundles() == [["open"], []]
    assert closed.published("secret") == ()
    closed.stores[1].reader = None
    outcomes = closed.run(public, private, everything=True)
    assert [(outcome.error, outcome.missing) for outcome in outcomes] == [(None, {}), (None, {})]
    assert closed.bundles() == [["open"], ["open"]]


def test_private_bundles_are_kept_for_the_retention_time_too(closed: BundleSite) -> None:
    private = team_only(closed.repository("secret"))
    closed.run(private)
    closed.change("secret")
    closed.run(private, now=NOW + timedelta(hours=1))
    assert closed.bundles() == [[], ["secret", "secret"]]
    closed.run(private, now=datetime.now(UTC) + timedelta(days=8))
    assert closed.bundles() == [[], ["secret"]]


def test_a_lost_private_manifest_is_rebuilt_from_the_private_store(closed: BundleSite) -> None:
    private = team_only(closed.repository("secret"))
    closed.run(private)
    before = closed.published("secret")
    # Private objects in a public store are no source.
    key = before[0].url.removeprefix(f"{closed.stores[1].url}/")
    closed.store.content[key] = closed.stores[1].content[key]
    closed.store.metadata[key] = closed.stores[1].metadata[key]
    closed.store.modified[key] = NOW
    closed.manifests.path(identity_of("secret")).unlink()
    assert closed.pipeline().publish([private])[0].error is None
    assert closed.published("secret") == before


def test_errors_of_hg_are_reported_without_signatures(
    closed: BundleSite, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_hg: object, _snapshot: object, line: str, _target: object) -> frozenset[str]:
        assert "X-Amz-Signature=" in line
        raise HgError(f"hg clone failed: {line}")

    monkeypatch.setattr(hg_side, "clone_through", fail)
    (outcome,) = closed.run(team_only(closed.repository("secret")))
    assert "hg clone failed: http://" in str(outcome.error)
    signatures = re.findall(r"X-Amz-Signature=([^&\s]+)", str(outcome.error))
    assert signatures == ["..."]


def test_a_dry_run_writes_nothing_into_a_private_store(closed: BundleSite) -> None:
    (outcome,) = closed.run(team_only(closed.repository("secret")), dry_run=True)
    assert outcome.error is None
    assert closed.stores[1].pages == {}
