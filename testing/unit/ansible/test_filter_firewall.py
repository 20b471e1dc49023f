"""The filters of the firewall: from the table of ports and an inventory to the rules of a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.support import loading

ROLES = Path(__file__).resolve().parents[3] / "ansible/roles"
firewall = loading.module("ansible/plugins/filter/firewall.py")

GROUPS = {
    "all": ["ldap1", "s3-1", "proxy1", "hg1", "hgweb1", "broker1", "broker2"],
    "directory": ["ldap1"],
    "objectstore": ["s3-1"],
    "proxy": ["proxy1"],
    "ssh": ["hg1"],
    "web": ["hg1", "hgweb1"],
    "broker": ["broker1", "broker2"],
}
HOSTVARS: dict[str, dict[str, Any]] = {
    name: {"base_address": f"192.0.2.{number}"} for number, name in enumerate(GROUPS["all"], 1)
}
OWN: dict[str, Any] = {
    "base_firewall_administrators": ["0.0.0.0/0", "::/0"],
    "base_firewall_administrators_ports": [22],
    "base_firewall_open": [],
}
OFFICE = {**OWN, "base_firewall_administrators": ["198.51.100.0/24"]}


def rules(host: str, own: dict[str, Any] = OWN, **variables: Any) -> list[str]:
    hostvars = {**HOSTVARS, host: {**HOSTVARS[host], **variables}}
    return list(firewall.firewall_rules(own, host, GROUPS, hostvars))


def problems(host: str, own: dict[str, Any] = OWN, **variables: dict[str, Any]) -> list[str]:
    return list(firewall.firewall_problems(own, host, GROUPS, {**HOSTVARS, **variables}))


def lockout(host: str, connection: str, own: dict[str, Any]) -> str:
    return str(firewall.firewall_lockout(own, host, GROUPS, HOSTVARS, connection))


# --- rules ------------------------------------------------------------------------------------


def test_a_part_is_open_to_the_hosts_that_need_it() -> None:
    assert rules("ldap1") == [
        "tcp dport { 22 } accept",
        "ip saddr { 192.0.2.4/31 } tcp dport { 636 } accept",
    ]


def test_a_part_for_clients_is_open_to_everyone() -> None:
    assert rules("proxy1") == ["tcp dport { 22, 80, 443 } accept"]


def test_ports_come_from_the_variables_of_the_host() -> None:
    assert rules("proxy1", proxy_https_port=8443, proxy_http_port=0) == [
        "tcp dport { 22, 8443 } accept"
    ]


def test_a_host_needs_no_rule_for_itself() -> None:
    assert rules("broker1", OFFICE) == [
        "ip saddr { 192.0.2.4/31 } tcp dport { 4222 } accept",
        "ip saddr { 192.0.2.7 } tcp dport { 6222 } accept",
        "ip saddr { 198.51.100.0/24 } tcp dport { 22 } accept",
    ]


def test_the_source_of_mirrors_is_closed_without_brokers() -> None:
    alone = {name: hosts for name, hosts in GROUPS.items() if name != "broker"}
    with_brokers = " ".join(rules("hg1"))
    without = " ".join(firewall.firewall_rules(OWN, "hg1", alone, HOSTVARS))
    assert "7460" in with_brokers
    assert "7460" not in without


def test_journals_are_received_where_the_inventory_names_a_port() -> None:
    hosts = {"monitor1": ["192.0.2.60"], "hg1": ["192.0.2.40"], "proxy1": ["192.0.2.30"]}
    hostvars = {name: {"base_firewall_addresses": addresses} for name, addresses in hosts.items()}
    groups = {"monitoring": ["monitor1"], "metrics": list(hosts)}
    closed = firewall.firewall_rules(OFFICE, "monitor1", groups, hostvars)
    assert not any("192.0.2.40" in rule for rule in closed)
    hostvars["monitor1"]["monitoring_journal_port"] = 19532  # type: ignore[assignment]
    opened = firewall.firewall_rules(OFFICE, "monitor1", groups, hostvars)
    rule = "ip saddr { 192.0.2.30, 192.0.2.40 } tcp dport { 19532 } accept"
    assert set(opened) - set(closed) == {rule}


def test_a_port_for_everyone_has_no_narrower_rule() -> None:
    """Ansible comes through 22 in the first run, and through 2222 in the second: same rules."""
    first = rules("hg1", OFFICE)
    second = rules("hg1", {**OFFICE, "base_firewall_administrators_ports": [2222]})
    assert first == second
    assert first[0] == "tcp dport { 22 } accept"
    assert "ip saddr { 198.51.100.0/24 } tcp dport { 2222 } accept" in first


def test_each_address_family_has_a_rule() -> None:
    own = {**OWN, "base_firewall_administrators": ["198.51.100.0/24", "2001:db8::/32"]}
    assert rules("s3-1", own) == [
        "tcp dport { 7443 } accept",
        "ip saddr { 198.51.100.0/24 } tcp dport { 22 } accept",
        "ip6 saddr { 2001:db8::/32 } tcp dport { 22 } accept",
    ]


def test_a_host_with_several_addresses_may_come_from_each() -> None:
    ruleset = firewall.firewall_rules(
        OWN,
        "hgweb1",
        GROUPS,
        {**HOSTVARS, "proxy1": {"base_firewall_addresses": ["192.0.2.3", "2001:db8::3"]}},
    )
    assert "ip saddr { 192.0.2.3 } tcp dport { 8443 } accept" in ruleset
    assert "ip6 saddr { 2001:db8::3 } tcp dport { 8443 } accept" in ruleset


def test_clients_that_a_role_lets_in_pass_the_firewall() -> None:
    assert "192.0.2.4/31, 203.0.113.0/24" in rules("ldap1", directory_clients=["203.0.113.0/24"])[1]


def test_the_site_opens_further_ports() -> None:
    entry = {"ports": [9100, 161], "protocol": "udp", "from": ["203.0.113.9"]}
    assert rules("s3-1", {**OWN, "base_firewall_open": [entry]})[-1] == (
        "ip saddr { 203.0.113.9 } udp dport { 161, 9100 } accept"
    )


# --- refusals ---------------------------------------------------------------------------------


def test_a_port_that_is_none_is_told_by_its_variable() -> None:
    (problem,) = problems("proxy1", proxy1={**HOSTVARS["proxy1"], "proxy_https_port": "https"})
    assert problem == "proxy_https_port is 'https', expected a port such as 443."


def test_the_inventory_of_addresses_has_no_problem() -> None:
    assert [problems(host) for host in GROUPS["all"]] == [[]] * len(GROUPS["all"])


def test_a_host_without_an_ip_address_is_named_where_a_rule_needs_it() -> None:
    names = {"proxy1": {"base_address": "proxy1.example.org"}}
    assert problems("ldap1", **names) == []
    (sentence,) = problems("hgweb1", **names)
    assert sentence.startswith("base_address of proxy1 is proxy1.example.org, and hgweb1 has to")


@pytest.mark.parametrize(
    "own",
    [
        {**OWN, "base_firewall_administrators": ["office"]},
        {**OWN, "base_firewall_open": [{"ports": [9100], "from": ["192.0.2.9/24"]}]},
        {**OWN, "base_firewall_open": [{"ports": [0], "from": ["192.0.2.9"]}]},
    ],
)
def test_a_wrong_value_is_named(own: dict[str, Any]) -> None:
    (sentence,) = problems("s3-1", own)
    assert "expected" in sentence


# --- the way in -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "connection",
    [
        "198.51.100.7 51234 192.0.2.2 22",
        "::ffff:198.51.100.7 51234 ::ffff:192.0.2.2 22",
        "",
    ],
)
def test_a_connection_from_an_administrators_network_passes(connection: str) -> None:
    assert lockout("s3-1", connection, OFFICE) == ""


@pytest.mark.parametrize(
    "connection",
    [
        "203.0.113.7 51234 192.0.2.2 22",
        "198.51.100.7 51234 192.0.2.2 2200",
        "fe80::1%eth0 51234 fe80::2%eth0 22",
    ],
)
def test_rules_that_would_close_the_connection_are_refused(connection: str) -> None:
    assert "which the firewall would close" in lockout("s3-1", connection, OFFICE)


def test_the_default_lets_every_connection_pass() -> None:
    for connection in ("203.0.113.7 1 192.0.2.2 22", "fe80::1%eth0 1 fe80::2%eth0 22"):
        assert lockout("s3-1", connection, OWN) == ""


# --- the table --------------------------------------------------------------------------------


def test_defaults_of_the_table_are_those_of_the_roles() -> None:
    named = {name: port for row in firewall.table() for name, port in row["ports"].items()}
    for name, default in named.items():
        role = name.partition("_")[0]
        # The port of base is filled in from ansible_port.
        if "_" in name and role != "base":
            assert yaml.safe_load((ROLES / role / "defaults/main.yml").read_text())[name] == default


def test_fixed_ports_of_the_table_are_those_of_the_programs() -> None:
    from hgfleet.replication.protocol.settings import SOURCE_PORT

    fixed = {
        name: port
        for row in firewall.table()
        for name, port in row["ports"].items()
        if "_" not in name
    }
    assert fixed == {"ldaps": 636, "source": SOURCE_PORT}


# --- limits -----------------------------------------------------------------------------------


def limits(host: str, **variables: Any) -> dict[str, list[str]]:
    hostvars = {**HOSTVARS, host: {**HOSTVARS[host], **variables}}
    made: dict[str, list[str]] = firewall.firewall_limits(OWN, host, GROUPS, hostvars)
    return made


SSH = "tcp dport { 22 } ct state new"


def test_an_address_opens_so_many_ssh_connections_a_second() -> None:
    made = limits("hg1")
    rate = "limit rate over 10/second burst 10 packets } counter name refused drop"
    assert made["rules"] == [
        f"{SSH} ip saddr != {{ 192.0.2.3 }} update @opening_ssh_4 {{ ip saddr {rate}",
        f"{SSH} update @opening_ssh_6 {{ ip6 saddr and ffff:ffff:ffff:ffff:: {rate}",
    ]
    assert made["sets"] == [
        f"set opening_ssh_{version} {{ type ipv{version}_addr; size 65535; "
        "flags dynamic, timeout; timeout 1m; }"
        for version in (4, 6)
    ]
    exempt = limits("hg1", ssh_penalty_exempt=["198.51.100.0/24"], ssh_penalty_exempt_hosts=[])
    assert "ip saddr != { 198.51.100.0/24 } update" in exempt["rules"][0]


def test_an_address_has_so_many_connections_to_a_store() -> None:
    made = limits("s3-1", objectstore_port=443, objectstore_connections_per_address=7)
    assert made["rules"][0] == (
        "tcp dport { 443 } ct state new add @open_objectstore_4 "
        "{ ip saddr ct count over 7 } counter name refused reject with tcp reset"
    )
    assert (
        made["sets"][0] == "set open_objectstore_4 { type ipv4_addr; size 65535; flags dynamic; }"
    )


def test_a_host_without_a_limit_has_no_set() -> None:
    assert limits("ldap1") == {"sets": [], "rules": []}
    assert limits("s3-1", objectstore_connections_per_address=0) == {"sets": [], "rules": []}
    assert limits("hg1", ssh_connections_per_second=0) == {"sets": [], "rules": []}
