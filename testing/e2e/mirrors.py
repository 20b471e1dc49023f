"""The mirrors of the cluster, as the proxy and the primary see them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

REPOSITORY: Final = "e2e/replication"
SECONDS: Final = 90
"""For a state that arrives by itself, on a machine under load."""


def mirrors_of(cluster: Cluster) -> list[Host]:
    """Return the web hosts that take no pushes."""
    primary = cluster.first("ssh")
    mirrors = [host for host in cluster.all("web") if host != primary]
    assert len(mirrors) > 1, f"expected two mirrors: {mirrors}"
    return mirrors


def log_of(host: Host, repository: str = REPOSITORY) -> str:
    """Return the push log of a repository on a host, empty before its first push."""
    return host.shell(f"cat /srv/hg/repos/{repository}/.hg/store/pushlog 2>/dev/null || :")


def is_equal(host: Host) -> bool:
    """Tell whether every repository of a mirror equals the primary's."""
    return bool(host.run("hgfleet", "replication", "verify").ok())


def requests_after(cluster: Cluster, cursor: str) -> list[dict[str, Any]]:
    """Return the requests that the proxy has logged since a place in its journal."""
    lines = cluster.first("proxy").journal_after(cursor, "--unit=haproxy")
    events = [json.loads(line) for line in lines if line.startswith("{")]
    return [event for event in events if event["event"] == "request"]


def is_used(cluster: Cluster, host: Host) -> bool:
    """Tell whether the proxy sends readers to a web host."""
    shown = cluster.first("proxy").shell("echo 'show stat' | socat - /run/haproxy/admin.sock")
    rows = [line.split(",") for line in shown.splitlines() if line.startswith("web,")]
    return next(row[17] for row in rows if row[1] == host.name).startswith("UP")


def wait_for_use(cluster: Cluster, host: Host) -> None:
    """Wait until a mirror has caught up and serves readers."""
    wait_until(f"the proxy uses {host.name}", lambda: is_used(cluster, host), SECONDS)


def wait_for_absence(cluster: Cluster, host: Host) -> None:
    """Wait until the proxy sends no readers to a mirror."""
    wait_until(f"the proxy leaves {host.name} out", lambda: not is_used(cluster, host), SECONDS)
