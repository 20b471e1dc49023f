"""Every host comes back by itself after a reboot, with all it had."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import run, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

REPOSITORY = "e2e/clone"
SECONDS_FOR_BOOT = 60


def boot_id(host: Host) -> str:
    """Return when PID 1 began: a reboot that did not happen shows."""
    return host.shell("systemctl show --property=UserspaceTimestampMonotonic --value")


def objects(cluster: Cluster) -> dict[str, tuple[int, str]]:
    """Return status and size of everything that clients are sent to."""
    found = {}
    for repository in ("hgfleet", REPOSITORY):
        for url in cluster.manifest(repository):
            page = cluster.get(url, method="HEAD")
            found[url] = (page.status, page.headers.get("content-length", ""))
    return found


def test_a_host_comes_back_by_itself_with_all_it_had(
    cluster: Cluster, alice: Person, each_host: str, tmp_path: Path
) -> None:
    host = cluster.host(each_host)
    heads = {name: cluster.remote_heads(name) for name in ("hgfleet", REPOSITORY, "e2e/shared")}
    whoami = alice.ssh("whoami").ok().stdout
    # A test before this one may have stopped the store.
    stored = wait_until("bundles are offered", lambda: objects(cluster))
    assert {status for status, _ in stored.values()} == {200}
    before = boot_id(host)

    run(["docker", "restart", host.container]).ok()

    def booted() -> bool:
        state = host.systemctl("is-system-running").stdout.strip()
        assert state in ("running", "degraded"), state
        return True

    wait_until(f"{each_host} has booted", booted, SECONDS_FOR_BOOT)
    failed = host.systemctl("--failed", "--plain", "--no-legend").stdout
    assert failed == "", failed
    assert boot_id(host) != before
    wait_until("the proxy has a healthy server", lambda: cluster.get("").status == 200)
    wait_until("SSH answers", lambda: alice.ssh("whoami").ok())

    assert alice.ssh("whoami").ok().stdout == whoami
    assert {name: cluster.remote_heads(name) for name in heads} == heads
    wait_until("all bundles answer as before", lambda: objects(cluster) == stored)
    for number, source in enumerate((cluster.url(REPOSITORY), alice.ssh_url(REPOSITORY))):
        clone = alice.clone(source, tmp_path / str(number))
        assert "applying clone bundle from" in clone.made.output
        assert clone.heads() == heads[REPOSITORY]
        clone.hg("verify").ok()
    # Anything that a reboot could have torn shows on the server's own disk.
    if "ssh" in groups(cluster, each_host):
        for name in heads:
            words = ["runuser", "-u", "hg", "--", "env", "HGRCPATH=/etc/hgfleet/hgrc"]
            words += ["/opt/hgfleet/current/bin/hg", "-R", f"/srv/hg/repos/{name}", "verify", "-q"]
            host.run(*words).ok()


def groups(cluster: Cluster, name: str) -> set[str]:
    """Return the groups a host is in."""
    return {
        group
        for group, content in cluster.inventory.items()
        if group != "_meta" and name in content.get("hosts", [])
    }
