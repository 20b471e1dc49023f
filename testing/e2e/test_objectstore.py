"""What people notice while the object store is away, and what they do not."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from testing.e2e.support import changesets_sent, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from testing.e2e.support import Cluster, Person

pytestmark = pytest.mark.disruptive

REPOSITORY = "e2e/clone"
SMALL_BYTES = 20_000


NOTICED_S = 15
"""Seconds after which no client is sent to a store that has gone; the bar of the service."""


def offered(cluster: Cluster) -> list[str]:
    """Return what clients are told of, once the prober has seen that it answers."""
    return wait_until("bundles are offered", lambda: cluster.manifest(REPOSITORY))


@pytest.fixture
def outage(cluster: Cluster, stopped: Callable[[str, str], None]) -> None:
    """Every object store is stopped, and every cache of one, and everybody has noticed."""
    offered(cluster)
    stopped("cdn", "hgfleet-cdn.service")
    stopped("objectstore", "hgfleet-objectstore.service")
    wait_until("nobody is sent there", lambda: not cluster.manifest(REPOSITORY), NOTICED_S)


@pytest.mark.usefixtures("outage")
def test_clones_come_from_the_server_instead(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    """No client needs an option for it."""
    requests = cluster.requests(REPOSITORY)
    for number, source in enumerate((cluster.url(REPOSITORY), alice.ssh_url(REPOSITORY))):
        clone = alice.clone(source, tmp_path / str(number))
        assert "clone bundle" not in clone.made.output
        clone.hg("verify").ok()
        assert clone.heads() == cluster.remote_heads(REPOSITORY)
    assert changesets_sent(requests.wait("getbundle")) > SMALL_BYTES


@pytest.mark.usefixtures("outage")
def test_pushing_goes_on(cluster: Cluster, alice: Person, tmp_path: Path) -> None:
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    node = work.commit("outage.txt", uuid.uuid4().bytes, "push while the object store is away")

    work.hg("push").ok()

    assert node in cluster.remote_heads(REPOSITORY)


@pytest.mark.usefixtures("outage")
def test_a_run_of_the_bundle_job_fails_clearly_and_leaves_the_manifests(cluster: Cluster) -> None:
    host = cluster.first("bundles")
    before = cluster.manifests()
    cursor = host.journal_cursor()
    try:
        failed = cluster.make_bundles()
    finally:
        host.systemctl("reset-failed", "hgfleet-bundles.service")

    assert failed.code != 0
    said = "\n".join(host.journal_after(cursor, "--unit=hgfleet-bundles"))
    assert cluster.env["HGFLEET_BUNDLE_URL"].rpartition("/")[0] in said, said
    assert "Traceback" not in said, said
    assert cluster.manifests() == before


def test_clones_are_offloaded_again_when_it_is_back(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    before = offered(cluster)
    store = cluster.first("objectstore")
    store.systemctl("stop", "hgfleet-objectstore.service").ok()
    store.systemctl("start", "hgfleet-objectstore.service").ok()
    wait_until(
        "clients are told of all of it again",
        lambda: (
            cluster.manifest(REPOSITORY) == before
            and all(cluster.get(url, method="HEAD").status == 200 for url in before)
        ),
    )

    # The same bundles: nothing has to be made again.
    requests = cluster.requests(REPOSITORY)
    clone = alice.clone(cluster.url(REPOSITORY), tmp_path / "clone")
    assert f"applying clone bundle from {before[0]}" in clone.made.output
    assert changesets_sent(requests.wait("getbundle")) < SMALL_BYTES
    assert clone.heads() == cluster.remote_heads(REPOSITORY)

    # And a run makes up for what was pushed meanwhile.
    cluster.make_bundles().ok()
    requests = cluster.requests(REPOSITORY)
    newest = alice.clone(cluster.url(REPOSITORY), tmp_path / "newest")
    assert "applying clone bundle from" in newest.made.output
    assert changesets_sent(requests.wait("getbundle")) == 0
    newest.hg("verify").ok()
