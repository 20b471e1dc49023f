"""A private repository answers users without permission as if it did not exist."""

from __future__ import annotations

import re
import uuid
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone, Person

PRIVATE = "e2e/private"
# Only a letter differs, so that the answers can be compared, and no other name is nearer.
MISSING = "e2e/pryvate"


@pytest.fixture(scope="module")
def secret(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Clone:
    """Alice's clone, from which a changeset has been pushed."""
    alice = cluster.person("alice")
    work = alice.clone(alice.ssh_url(PRIVATE), tmp_path_factory.mktemp("secret") / "work")
    work.commit("plan.txt", uuid.uuid4().bytes, "make plans")
    work.hg("push").ok()
    return work


def test_a_maintainer_pushes_and_clones(secret: Clone, alice: Person, tmp_path: Path) -> None:
    copy = alice.clone(alice.ssh_url(PRIVATE), tmp_path / "copy")

    assert copy.heads() == secret.heads()
    assert "make plans" in copy.hg("log", "-T", "{desc}\n").ok().stdout


@pytest.mark.usefixtures("secret")
def test_bob_gets_the_answer_of_a_missing_one(bob: Person, tmp_path: Path) -> None:
    said = {
        path: bob.hg("clone", bob.ssh_url(path), str(tmp_path / "clone"))
        .refused(f"There is no repository '{path}' here for bob")
        .output.replace(path, "PATH")
        for path in (PRIVATE, MISSING)
    }
    # The hint names a repository that bob may read, never the private one.
    said = {path: re.sub(r"Did you mean [^?]+\?", "HINT", text) for path, text in said.items()}

    assert said[PRIVATE] == said[MISSING]
    assert PRIVATE not in bob.ssh("whoami").ok().stdout
    assert not (tmp_path / "clone").exists()


def test_bob_cannot_push_to_it(secret: Clone, bob: Person) -> None:
    push = bob.hg("-R", str(secret.path), "push", "--force", bob.ssh_url(PRIVATE))

    push.refused(f"There is no repository '{PRIVATE}' here for bob")


@pytest.mark.parametrize(
    "rest",
    ["", "/", "/log", "/json-log", "/rev/tip", "/raw-file/tip/plan.txt", "?cmd=capabilities",
     "?cmd=heads", "?cmd=clonebundles", "/archive/tip.zip"],
)  # fmt: skip
@pytest.mark.usefixtures("secret")
def test_over_https_it_is_a_missing_one(cluster: Cluster, rest: str) -> None:
    private, missing = (cluster.get(path + rest) for path in (PRIVATE, MISSING))

    # hg sends credentials only when asked, so the server asks even for a missing repository.
    assert private.status == missing.status == (401 if "cmd=" in rest else 404)
    assert private.body.replace(PRIVATE, "PATH") == missing.body.replace(MISSING, "PATH")


@pytest.mark.usefixtures("secret")
def test_no_list_names_it(cluster: Cluster) -> None:
    for page in ("", "e2e/", "e2e", "api/repositories", "api/repositories/e2e"):
        answer = cluster.get(page)
        assert answer.status == 200, page
        assert "e2e/push" in answer.body, f"{page} lists nothing"
        assert PRIVATE not in answer.body, page


def test_over_https_nobody_clones_it_unnamed(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    alice.hg("clone", cluster.url(PRIVATE), str(tmp_path / "clone")).refused(
        "http authorization required"
    )


@pytest.mark.usefixtures("secret")
def test_its_content_is_never_put_where_everybody_downloads(cluster: Cluster) -> None:
    cluster.make_bundles(PRIVATE).ok()

    host = cluster.first("bundles")
    status = host.run("/opt/hgfleet/current/bin/hgfleet", "bundles", "status", PRIVATE).ok()
    assert "no bundles published" in status.stdout
    objects = cluster.first("objectstore").run("find", "/srv/objectstore", "-path", f"*{PRIVATE}*")
    assert objects.ok().stdout == ""
