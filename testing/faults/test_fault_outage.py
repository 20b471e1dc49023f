"""An outage is visible while it lasts: in alerts, in `./cluster status`, on the status page.

The alerts come from the real Prometheus, with the waits of its rules. The gate has two alerts in a
second Prometheus (`test_fault_alert_smoke.py`).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from controller.bootstrap import ROOT
from testing.e2e.command import run, wait_until
from testing.e2e.prometheus import IN_TIME
from testing.e2e.status import last, page, probe

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.prometheus import Prometheus

IN_A_ROW: Final = 3
"""Failures in a row that the page calls an outage (hgfleet/probes/page.py)."""


def delivered(monitor: Host) -> set[str]:
    """Return the names of the alerts that Prometheus has sent to the Alertmanager of its host."""
    ask = ("amtool", "--alertmanager.url", "http://127.0.0.1:9093", "alert", "-o", "json")
    return {alert["labels"]["alertname"] for alert in json.loads(monitor.run(*ask).ok().stdout)}


@pytest.mark.disruptive
@pytest.mark.whole
def test_servers_that_stop_are_told_within_a_minute_until_they_run(
    cluster: Cluster, prometheus: Prometheus
) -> None:
    """The page is in the object store: clients that reach nothing else can read it."""
    proxy, ssh, monitor = (cluster.first(part) for part in ("proxy", "ssh", "monitoring"))
    stopped = [(proxy, "haproxy.service"), (ssh, "hgfleet-sshd.service")]
    wanted = {("HttpsDown", proxy.name), ("SshDown", ssh.name)}
    wanted |= {("UnitDown", host.name) for host, _ in stopped}

    def shows(words: str) -> bool:
        probe(monitor)
        return f"<strong>{words}</strong>" in page(cluster)

    wait_until("the alerts are quiet", lambda: not wanted & prometheus.firing(), 90)
    wait_until("clones and pushes work", lambda: shows("Clones work") and shows("Pushes work"), 120)
    try:
        for host, unit in stopped:
            host.systemctl("stop", unit).ok()
        for _ in range(IN_A_ROW):
            probe(monitor)
        wait_until("the alerts fire", lambda: wanted <= prometheus.firing(), IN_TIME)
        names = {name for name, _ in wanted}
        wait_until("Alertmanager has them", lambda: names <= delivered(monitor), 30)
        shown = run([str(ROOT / "cluster"), "status"])
        assert f"HTTPS of {proxy.name} does not answer clients" in shown.stdout, shown
        assert f"hgfleet-sshd.service on {ssh.name} is not active" in shown.stdout, shown
        assert shows("Clones fail")
        assert shows("Pushes fail")
        assert last("clone", page(cluster))[1] == last("push", page(cluster))[1] == "failed"
    finally:
        for host, unit in stopped:
            host.systemctl("start", unit).ok()
    wait_until("the alerts end", lambda: not wanted & prometheus.firing(), IN_TIME)
    wait_until(
        "the page tells of the end", lambda: shows("Clones work") and shows("Pushes work"), 120
    )
