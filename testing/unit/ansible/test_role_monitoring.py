"""Which metrics are kept; which hosts send their journals where, and how much disk they take."""

from __future__ import annotations

import re
from functools import partial
from typing import Any

import pytest
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from controller.bootstrap import ROOT
from testing.unit.ansible import role_variables
from testing.unit.ansible.role_variables import of_role, value

HOSTS: dict[str, dict[str, Any]] = {
    "monitor1": {"base_address": "192.0.2.60"},
    "monitor2": {"base_address": "192.0.2.61"},
    "hg1": {"base_address": "192.0.2.40"},
    "ldap1": {"base_address": "192.0.2.10"},
}


def templar(role: str, host: str, port: int = 0, address: str = "", **given: Any) -> Templar:
    """Return a templar of a role on a host of a site whose first monitoring host has a port."""
    hosts = {name: dict(variables) for name, variables in HOSTS.items()}
    if port:
        hosts["monitor1"]["monitoring_journal_port"] = port
    if address:
        hosts["monitor1"]["base_address"] = address
    own = {
        "inventory_hostname": host,
        "group_names": [],
        "groups": {"monitoring": ["monitor1", "monitor2"], "metrics": list(hosts)},
        "hostvars": hosts,
        **hosts[host],
    }
    known = {**of_role(role), **own, **given}
    return Templar(DataLoader(), known)


refused = partial(role_variables.refused, role="monitoring", about="monitoring_journal_")


def test_no_host_sends_its_journal_by_default() -> None:
    for host in HOSTS:
        variables = templar("metrics", host)
        assert value(variables, "_metrics_ships_journal") is False
        assert value(variables, "_metrics_packages") == ["prometheus-node-exporter"]
    assert value(templar("monitoring", "monitor1"), "_monitoring_receives_journals") is False


def test_every_other_host_sends_its_journal_to_the_first_monitoring_host() -> None:
    senders = [
        host for host in HOSTS if value(templar("metrics", host, 19532), "_metrics_ships_journal")
    ]
    assert senders == ["monitor2", "hg1", "ldap1"]
    variables = templar("metrics", "hg1", 19532)
    assert value(variables, "_metrics_journal_url") == "https://192.0.2.60:19532"
    assert "systemd-journal-remote" in value(variables, "_metrics_packages")


def test_an_address_of_ipv6_is_in_brackets() -> None:
    variables = templar("metrics", "hg1", 19532, address="2001:db8::60")
    assert value(variables, "_metrics_journal_url") == "https://[2001:db8::60]:19532"


def test_a_site_without_a_monitoring_host_sends_nothing() -> None:
    variables = templar("metrics", "hg1", groups={"metrics": ["hg1"]})
    assert value(variables, "_metrics_ships_journal") is False


@pytest.mark.parametrize("most", [72, 512, 4096, 100_000])
def test_files_that_grow_and_files_that_are_full_fit_the_disk_space(most: int) -> None:
    variables = templar("monitoring", "monitor1", 19532, monitoring_journal_max_mib=most)
    file = value(variables, "_monitoring_journal_file_mib")
    # Below 8 MiB no file of the journal grows.
    assert 8 <= file <= 128
    assert 3 * file + most * 2 // 3 <= most


def test_right_values_are_taken() -> None:
    assert refused(templar("monitoring", "monitor1")) == ""
    assert refused(templar("monitoring", "monitor1", 19532)) == ""
    assert refused(templar("monitoring", "monitor2", 19532)) == ""


@pytest.mark.parametrize(
    ("host", "given", "sentence"),
    [
        ("monitor1", {"monitoring_journal_port": 9090}, "monitoring_port"),
        ("monitor1", {"monitoring_journal_port": 70000}, "expected 0 or a port"),
        ("monitor2", {"monitoring_journal_port": 19532}, "among the variables of monitor1"),
        ("monitor1", {"monitoring_journal_max_mib": 71}, "expected 72 or more"),
    ],
)
def test_a_wrong_value_is_named(host: str, given: dict[str, Any], sentence: str) -> None:
    assert sentence in refused(templar("monitoring", host, 19532, **given))


def metrics_that_are_read() -> set[str]:
    """Return the names of all metrics of other programs in rules and dashboards."""
    files = (ROOT / "ansible/roles/monitoring/files").rglob("*.yml")
    texts = [file.read_text(encoding="utf-8") for file in files]
    return {
        name
        for text in texts
        for name in re.findall(r"\b(?:node|prometheus|alertmanager)_\w+", text)
    }


def test_every_metric_that_a_rule_or_dashboard_reads_is_kept() -> None:
    variables = templar("monitoring", "monitor1")
    dropped, kept = value(variables, "_monitoring_dropped"), value(variables, "_monitoring_kept")
    read = metrics_that_are_read()
    of_hosts = {name for name in read if name.startswith("node_")}
    assert len(of_hosts) > 10
    assert [name for name in of_hosts if re.fullmatch(dropped, name)] == []
    assert re.fullmatch(dropped, "node_network_receive_fifo_total")
    own = read - of_hosts
    assert {"prometheus_tsdb_head_series", "alertmanager_notifications_failed_total"} <= own
    assert [name for name in own if not re.fullmatch(kept, name)] == []
