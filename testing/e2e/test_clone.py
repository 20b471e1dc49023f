"""Clones come from the object store, over HTTPS and over SSH, and are complete."""

from __future__ import annotations

import os
import uuid
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import wait_until
from testing.e2e.host import changesets_sent

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

REPOSITORY = "e2e/clone"
# Random bytes, so that no compression makes a clone cheap.
CONTENT_BYTES = 400_000
# The bytes of the protocol itself: capabilities, discovery, a manifest, phases and bookmarks.
SMALL_BYTES = 20_000


@pytest.fixture(scope="module")
def source(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """The repository's content: two heads, a merge, a branch, new changesets; bundles are made."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path_factory.mktemp("source") / "work")
    if not work.heads():
        work.commit("large.bin", os.urandom(CONTENT_BYTES), "something of size")
        work.commit("left.txt", b"left\n", "one way")
        work.hg("update", "--quiet", "-r", "0").ok()
        work.hg("branch", "--quiet", "side").ok()
        work.commit("right.txt", b"right\n", "another way")
        work.hg("merge", "--quiet", "default").ok()
        work.commit("merged.txt", b"both\n", "both ways")
        work.hg("update", "--quiet", "default").ok()
        work.commit("apart.txt", b"apart\n", "a second head")
    else:
        work.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
    work.hg("push", "--new-branch", "--force").ok()
    cluster.wait_for_bundles(REPOSITORY)
    return work


@pytest.fixture(params=[REPOSITORY, "hgfleet"])
def repository(request: pytest.FixtureRequest) -> str:
    """A small repository with merges and heads, and this project's own history."""
    return str(request.param)


def assert_equal(clone: Clone, heads: set[str], place: Path, alice: Person) -> None:
    """Compare a clone with a clone that used no bundle."""
    clone.hg("verify").ok()
    name = clone.hg("paths", "default").ok().stdout.strip()
    plain = alice.clone(name, place, "--config", "ui.clonebundles=false", "--noupdate")
    every = ("log", "-r", "sort(all(), node)", "-T", "{node} {phase} {branch} {bookmarks}\n")
    assert clone.hg(*every).ok().stdout == plain.hg(*every).ok().stdout
    assert clone.heads() == heads


def assert_from_store(clone: Clone, cluster: Cluster, repository: str, cursor: str) -> None:
    """Check the client's output and the object store's log."""
    url = cluster.manifest(repository)[0]
    assert url.startswith(cluster.env["HGFLEET_BUNDLE_URL"])
    assert f"applying clone bundle from {url}" in clone.made.output, clone.made
    key = url.rpartition("/")[2]
    host = cluster.first("objectstore")

    def served() -> list[str]:
        lines = host.journal_after(cursor, "--unit=hgfleet-objectstore")
        return [line for line in lines if key in line and " 200 " in line]

    wait_until(f"the object store logs the download of {key}", served, 10)


@pytest.mark.usefixtures("source")
def test_a_clone_over_https_comes_from_the_object_store(
    cluster: Cluster, alice: Person, repository: str, tmp_path: Path
) -> None:
    requests = cluster.requests(repository)
    cursor = cluster.first("objectstore").journal_cursor()

    clone = alice.clone(cluster.url(repository), tmp_path / "clone")

    lines = requests.wait("getbundle")
    assert changesets_sent(lines) == 0, lines
    assert sum(line["bytes"] for line in lines) < SMALL_BYTES, lines
    assert clone.size() > SMALL_BYTES * 10, "too small to show anything"
    assert_from_store(clone, cluster, repository, cursor)
    assert_equal(clone, cluster.remote_heads(repository), tmp_path / "plain", alice)


@pytest.mark.usefixtures("source")
def test_a_clone_over_ssh_comes_from_the_object_store(
    cluster: Cluster, alice: Person, repository: str, tmp_path: Path
) -> None:
    sessions = cluster.sessions(repository, "alice")
    cursor = cluster.first("objectstore").journal_cursor()

    clone = alice.clone(alice.ssh_url(repository), tmp_path / "clone")

    assert sessions.written() < SMALL_BYTES
    assert clone.size() > SMALL_BYTES * 10, "too small to show anything"
    assert_from_store(clone, cluster, repository, cursor)
    assert_equal(clone, cluster.remote_heads(repository), tmp_path / "plain", alice)


@pytest.mark.usefixtures("source")
def test_a_clone_past_the_bundles_is_seen_in_both_logs(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    """The logs that prove the offload can also disprove it."""
    requests = cluster.requests(REPOSITORY)
    sessions = cluster.sessions(REPOSITORY, "alice")
    without = ("--config", "ui.clonebundles=false")

    alice.clone(cluster.url(REPOSITORY), tmp_path / "https", *without)
    alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "ssh", *without)

    assert changesets_sent(requests.wait("getbundle")) > CONTENT_BYTES
    assert sessions.written() > CONTENT_BYTES


def test_what_is_newer_than_the_bundle_comes_from_the_server(
    cluster: Cluster, alice: Person, source: Clone, tmp_path: Path
) -> None:
    node = source.commit("newest.txt", uuid.uuid4().bytes, "newer than the bundle")
    source.hg("push").ok()
    requests = cluster.requests(REPOSITORY)

    clone = alice.clone(cluster.url(REPOSITORY), tmp_path / "clone")

    assert "applying clone bundle from" in clone.made.output
    assert 0 < changesets_sent(requests.wait("getbundle")) < SMALL_BYTES
    assert node in clone.heads()
    clone.hg("verify").ok()


@pytest.mark.usefixtures("source")
@pytest.mark.parametrize("kind", ["zstd", "gzip"])
def test_a_client_that_prefers_another_kind_gets_that(
    cluster: Cluster, alice: Person, tmp_path: Path, kind: str
) -> None:
    """Each kind in the manifest is good, not only the first."""
    prefers = ("--config", f"ui.clonebundleprefers=COMPRESSION={kind}")

    told = cluster.manifest(REPOSITORY)
    clone = alice.clone(cluster.url(REPOSITORY), tmp_path / "clone", *prefers)
    # The prober may just have read a copy in the cache, or a push may have led to new bundles.
    told += cluster.manifest(REPOSITORY)

    wanted = [url for url in told if f".{kind}" in url]
    assert any(f"applying clone bundle from {url}" in clone.made.output for url in wanted)
    clone.hg("verify").ok()
    assert clone.heads() == cluster.remote_heads(REPOSITORY)
