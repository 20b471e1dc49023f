"""Clones, pushes and bundle jobs while the object store is away, and after it is back."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import wait_until
from testing.e2e.host import changesets_sent

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Person

pytestmark = [pytest.mark.disruptive("stores"), pytest.mark.without("monitoring")]

REPOSITORY = "e2e/clone"
SMALL_BYTES = 20_000


NOTICED_S = 15
"""Seconds after which no client is sent to a lost store; the bar of the service."""


def offered(cluster: Cluster) -> list[str]:
    """Wait until the prober sees that the stores answer; return the URLs that clients get."""
    return wait_until("bundles are offered", lambda: cluster.manifest_of_all(REPOSITORY))


@pytest.fixture(scope="class")
def outage(cluster: Cluster) -> Iterator[None]:
    """Every object store and every cache is stopped, and no client is sent there."""
    offered(cluster)
    units = [(host, "hgfleet-cdn.service") for host in cluster.all("cdn")]
    units += [(host, "hgfleet-objectstore.service") for host in cluster.all("objectstore")]
    for host, unit in units:
        host.systemctl("stop", unit).ok()
    try:
        wait_until(
            "nobody is sent there", lambda: not cluster.manifest_of_all(REPOSITORY), NOTICED_S
        )
        yield
    finally:
        for host, unit in units:
            host.systemctl("start", unit).ok()


@pytest.mark.usefixtures("outage")
class TestWithoutAnyStore:
    """All these tests share an outage: the prober needs seconds to notice its begin and its end."""

    def test_clones_come_from_the_server_instead(
        self, cluster: Cluster, alice: Person, tmp_path: Path
    ) -> None:
        """No client needs an option to clone from the server."""
        requests = cluster.requests(REPOSITORY)
        for number, source in enumerate((cluster.url(REPOSITORY), alice.ssh_url(REPOSITORY))):
            clone = alice.clone(source, tmp_path / str(number))
            assert "clone bundle" not in clone.made.output
            clone.hg("verify").ok()
            assert clone.heads() == cluster.remote_heads(REPOSITORY)
        assert changesets_sent(requests.wait("getbundle")) > SMALL_BYTES

    def test_pushing_goes_on(self, cluster: Cluster, alice: Person, tmp_path: Path) -> None:
        work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
        node = work.commit("outage.txt", uuid.uuid4().bytes, "push while the object store is away")

        work.hg("push").ok()

        assert node in cluster.remote_heads(REPOSITORY)

    def test_a_run_of_the_bundle_job_fails_clearly_and_leaves_the_manifests(
        self, cluster: Cluster
    ) -> None:
        host = cluster.first("bundles")
        before = cluster.manifests()
        cursor = host.journal_cursor()
        try:
            failed = cluster.make_bundles(REPOSITORY)
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
            cluster.manifest_of_all(REPOSITORY) == before
            and all(cluster.get(url, method="HEAD").status == 200 for url in before)
        ),
    )

    # The bundles are the same: nothing had to be made again.
    requests = cluster.requests(REPOSITORY)
    clone = alice.clone(cluster.url(REPOSITORY), tmp_path / "clone")
    assert f"applying clone bundle from {before[0]}" in clone.made.output
    assert changesets_sent(requests.wait("getbundle")) < SMALL_BYTES
    assert clone.heads() == cluster.remote_heads(REPOSITORY)

    # A run of the job makes bundles of the changesets that were pushed during the outage.
    cluster.make_bundles(REPOSITORY).ok()
    requests = cluster.requests(REPOSITORY)
    newest = alice.clone(cluster.url(REPOSITORY), tmp_path / "newest")
    assert "applying clone bundle from" in newest.made.output
    assert changesets_sent(requests.wait("getbundle")) == 0
    newest.hg("verify").ok()
