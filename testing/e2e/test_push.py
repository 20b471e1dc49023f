"""A push over SSH is on the web at once; there is no other way to push."""

from __future__ import annotations

import json
import re
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

REPOSITORY = "e2e/push"


@pytest.fixture
def work(alice: Person, tmp_path: Path) -> Clone:
    """Alice's clone of the repository."""
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


def test_what_alice_pushes_over_ssh_is_seen_over_https(cluster: Cluster, work: Clone) -> None:
    # A page is read before, so that caches have a reason to store every answer.
    assert cluster.get(f"{REPOSITORY}/json-log").status == 200
    assert cluster.get(f"{REPOSITORY}/log").status == 200
    word = uuid.uuid4().hex
    node = work.commit("greeting.txt", f"hello {word}\n".encode(), f"greet {word}")

    work.hg("push").ok()

    assert node in cluster.remote_heads(REPOSITORY)
    newest = json.loads(cluster.get(f"{REPOSITORY}/json-log").body)["changesets"][0]
    assert (newest["node"], newest["desc"]) == (node, f"greet {word}")
    assert newest["user"] == "alice <alice@hgfleet.test>"
    assert newest["phase"] == "public"
    page = cluster.get(f"{REPOSITORY}/log")
    assert page.headers["content-type"].startswith("text/html")
    assert f"greet {word}" in page.body
    assert node[:12] in page.body
    changeset = cluster.get(f"{REPOSITORY}/rev/{node}")
    assert f"hello {word}" in changeset.body
    assert cluster.get(f"{REPOSITORY}/raw-file/{node}/greeting.txt").body == f"hello {word}\n"


def test_a_pull_over_https_gets_what_was_pushed_since(
    cluster: Cluster, work: Clone, bob: Person, tmp_path: Path
) -> None:
    old = bob.clone(cluster.url(REPOSITORY), tmp_path / "old")
    node = work.commit("more.txt", uuid.uuid4().bytes, "add more")
    work.hg("push").ok()

    old.hg("pull").ok()

    assert old.hg("log", "-r", node, "-T", "{desc}").ok().stdout == "add more"


def test_a_push_over_https_is_refused_and_says_where_to_push(cluster: Cluster, work: Clone) -> None:
    before = cluster.remote_heads(REPOSITORY)
    node = work.commit("wrong-way.txt", uuid.uuid4().bytes, "go the wrong way")

    refused = work.hg("push", cluster.url(REPOSITORY)).refused("over SSH")

    right = re.search(r"hg push (ssh://\S+)", refused.output)
    assert right, f"the refusal does not name the right address:\n{refused}"
    assert cluster.remote_heads(REPOSITORY) == before
    # Nothing is lost either: the same changeset can be pushed over SSH.
    work.hg("push", "-r", node, right[1]).ok()
    assert node in cluster.remote_heads(REPOSITORY)


@pytest.mark.parametrize("command", ["unbundle", "pushkey"])
def test_a_hand_made_push_over_https_changes_nothing(cluster: Cluster, command: str) -> None:
    before = cluster.remote_heads(REPOSITORY)
    question = f"{REPOSITORY}?cmd={command}&heads=666f726365&namespace=bookmarks&key=x&old=&new=y"

    page = cluster.get(question, data=b"HG10GZ")

    assert page.status != 200 or "over SSH" in page.body, page
    assert cluster.remote_heads(REPOSITORY) == before
    assert "y" not in json.loads(cluster.get(f"{REPOSITORY}/json-bookmarks").body)["bookmarks"]
