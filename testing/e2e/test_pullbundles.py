"""A stale clone gets pull bundles from the disk of the server, over HTTPS and over SSH."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Person

REPOSITORY = "hgfleet"
STALE = "40"
"""The revision that a stale clone ends with; a cluster begins with more."""


@pytest.fixture(scope="module")
def links(cluster: Cluster) -> list[dict[str, object]]:
    """The pull bundles of this project's own history, after the run that follows a push."""
    cluster.wait_for_bundles(REPOSITORY)
    said = cluster.first("bundles").run("hgfleet", "bundles", "status", "--json", REPOSITORY)
    listed: list[dict[str, object]] = json.loads(said.ok().stdout)["pull_bundles"][REPOSITORY]
    assert listed
    return listed


@pytest.mark.parametrize("scheme", ["https", "ssh"])
def test_a_stale_clone_is_sent_from_disk_what_it_lacks(
    cluster: Cluster,
    alice: Person,
    tmp_path: Path,
    scheme: str,
    links: list[dict[str, object]],
) -> None:
    url = cluster.url(REPOSITORY) if scheme == "https" else alice.ssh_url(REPOSITORY)
    clone = alice.clone(url, tmp_path / "clone", "--noupdate", "-r", STALE)
    journals = cluster.journals("web" if scheme == "https" else "ssh")

    clone.hg("pull").ok()

    def served() -> list[str]:
        event = f"event=pullbundle repository={REPOSITORY} "
        return [line for line in journals.lines() if event in line]

    (line,) = wait_until("the server logs that it sent pull bundles", served, 10)
    fields = dict(word.partition("=")[::2] for word in line.split() if "=" in word)
    assert 0 < int(fields["links"]) <= len(links)
    assert int(fields["from_disk"]) > int(fields["live"]), line
    # The result equals a clone through a clone bundle, including phases and bookmarks.
    clone.hg("verify").ok()
    other = alice.clone(cluster.url(REPOSITORY), tmp_path / "other", "--noupdate")
    every = ("log", "-r", "sort(all(), node)", "-T", "{node} {phase} {branch} {bookmarks} {tags}\n")
    assert clone.hg(*every).ok().stdout == other.hg(*every).ok().stdout


@pytest.mark.parametrize("scheme", ["https", "ssh"])
def test_incoming_is_sent_from_disk_and_its_bundle_can_be_applied(
    cluster: Cluster,
    alice: Person,
    tmp_path: Path,
    scheme: str,
    links: list[dict[str, object]],
) -> None:
    url = cluster.url(REPOSITORY) if scheme == "https" else alice.ssh_url(REPOSITORY)
    clone = alice.clone(url, tmp_path / "clone", "--noupdate", "-r", STALE)
    journals = cluster.journals("web" if scheme == "https" else "ssh")

    bundle = tmp_path / "incoming.hg"
    shown = clone.hg("incoming", "--quiet", "-T", "{node}\n", "--bundle", str(bundle)).ok().stdout
    clone.hg("unbundle", "--quiet", str(bundle)).ok()

    def is_served() -> bool:
        event = f"event=pullbundle repository={REPOSITORY} "
        return any(event in line for line in journals.lines())

    wait_until("the server logs that it sent pull bundles", is_served, 10)
    clone.hg("verify").ok()
    known = set(clone.hg("log", "-T", "{node}\n").ok().stdout.split())
    assert links
    assert shown.split()
    assert set(shown.split()) <= known


def test_pull_bundles_are_readable_by_those_who_serve_and_nobody_else(
    cluster: Cluster, links: list[dict[str, object]]
) -> None:
    host = cluster.first("bundles")
    folder = f"/var/lib/hgfleet/pullbundles/{cluster.identity(REPOSITORY)}"
    file = f"{folder}/{links[0]['file']}"
    for user, can in (("hg", True), ("hgweb", True), ("nobody", False)):
        done = host.run("runuser", "-u", user, "--", "test", "-r", file)
        assert (done.code == 0) is can, user
