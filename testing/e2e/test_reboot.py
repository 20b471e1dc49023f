"""Hosts come back by themselves after a power outage, with all their data."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import run, wait_until
from testing.e2e.mirrors import SECONDS, is_equal, mirrors_of, wait_for_use

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

REPOSITORY = "hgfleet"
"""A repository that has bundles on every cluster."""
SECONDS_FOR_BOOT = 60


def boot_id(host: Host) -> str:
    """Return the start time of PID 1, which shows whether the host has rebooted."""
    return host.shell("systemctl show --property=UserspaceTimestampMonotonic --value")


def objects(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Return status and size of every object that clients are sent to."""
    answers = {}
    for url in cluster.manifest(REPOSITORY):
        page = cluster.get(url, method="HEAD")
        answers[url] = (page.status, page.headers.get("content-length", ""))
    return answers


def test_all_hosts_come_back_by_themselves_after_an_outage_of_power(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    """All hosts boot at once, so none finds another host that already serves."""
    comes_back(cluster, alice, cluster.hosts, tmp_path)
    for mirror in mirrors_of(cluster):
        wait_for_use(cluster, mirror)
        wait_until(f"{mirror.name} is equal to the primary", partial(is_equal, mirror), SECONDS)


@pytest.mark.whole
def test_a_host_comes_back_by_itself_with_all_it_had(
    cluster: Cluster, alice: Person, each_host: str, tmp_path: Path
) -> None:
    comes_back(cluster, alice, [cluster.host(each_host)], tmp_path)


def comes_back(cluster: Cluster, alice: Person, hosts: Sequence[Host], folder: Path) -> None:
    """Switch hosts off and on; check that the service recovers without help."""
    heads = {name: cluster.remote_heads(name) for name in (REPOSITORY, "e2e/clone", "e2e/shared")}
    whoami = alice.ssh("whoami").ok().stdout
    cluster.wait_for_bundles(REPOSITORY)
    # An earlier test may have stopped the store.
    stored = wait_until("bundles are offered", lambda: objects(cluster))
    assert {status for status, _ in stored.values()} == {200}
    before = {host.name: boot_id(host) for host in hosts}

    run(["docker", "stop", *(host.container for host in hosts)]).ok()
    run(["docker", "start", *(host.container for host in hosts)]).ok()

    for host in hosts:
        wait_until(f"{host.name} has booted", partial(has_booted, host), SECONDS_FOR_BOOT)
        failed = host.systemctl("--failed", "--plain", "--no-legend").stdout
        assert failed == "", f"{host.name}: {failed}"
        assert boot_id(host) != before[host.name]
    wait_until("the proxy has a healthy server", lambda: cluster.get("").status == 200)
    wait_until("SSH answers", lambda: alice.ssh("whoami").ok())

    assert alice.ssh("whoami").ok().stdout == whoami
    assert {name: cluster.remote_heads(name) for name in heads} == heads
    wait_until("all bundles answer as before", lambda: objects(cluster) == stored)
    for number, source in enumerate((cluster.url(REPOSITORY), alice.ssh_url(REPOSITORY))):
        clone = alice.clone(source, folder / str(number))
        assert "applying clone bundle from" in clone.made.output
        assert clone.heads() == heads[REPOSITORY]
        clone.hg("verify").ok()
    # If the reboot has damaged anything, it shows on the server's own disk.
    for host in (host for host in hosts if "ssh" in groups(cluster, host.name)):
        for name in heads:
            words = ["runuser", "-u", "hg", "--", "env", "HGRCPATH=/etc/hgfleet/hgrc"]
            words += ["/opt/hgfleet/current/bin/hg", "-R", f"/srv/hg/repos/{name}", "verify", "-q"]
            host.run(*words).ok()


def has_booted(host: Host) -> bool:
    """Tell whether a host has booted; raise an error while it has not."""
    state = host.systemctl("is-system-running").stdout.strip()
    assert state in ("running", "degraded"), state
    return True


def groups(cluster: Cluster, name: str) -> set[str]:
    """Return the groups of a host."""
    return {
        group
        for group, content in cluster.inventory.items()
        if group != "_meta" and name in content.get("hosts", [])
    }
