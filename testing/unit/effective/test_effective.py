"""Effective configuration: only values that differ by run, time and machine are replaced."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.effective import clean
from testing.effective.reading import members, shared, values

if TYPE_CHECKING:
    from pathlib import Path

LDIF = """\
dn: cn=config
olcSecurity: ssf=128
entryUUID: b862b310-7ccc
entryCSN: 20261125033329.811048Z#000000#000#000000
modifyTimestamp: 20261125033329Z

dn: cn={0}core,cn=schema,cn=config
olcObjectClasses: {0}( 2.5.6.2 NAME 'country' )

dn: cn={4}openssh-lpk,cn=schema,cn=config
olcAttributeTypes: {0}( 1.3 NAME 'sshPublicKey' )

dn: olcDatabase={1}mdb,cn=config
olcRootPW:: e1NTSEF9
olcSyncrepl: {0}rid=001 bindmethod=simple credentials="geheim" tls_reqcert=demand
"""

SCHEMA = """\
dn: cn={4}openssh-lpk,cn=schema,cn=config
olcAttributeTypes: {0}( 1.3 NAME 'sshPublicKey' )"""

DATABASE = """\
dn: olcDatabase={1}mdb,cn=config
olcRootPW:: <secret>
olcSyncrepl: {0}rid=001 bindmethod=simple credentials=<secret> tls_reqcert=demand"""

RULES = """\
table ip nat {
	chain DOCKER_OUTPUT {
		ip daddr 127.0.0.11 accept
	}
}
table inet hgfleet {
	chain input {
		tcp dport { 22, 2222 } accept
	}
}
table inet other {
}
"""


def test_entries_of_the_directory_are_without_their_history_and_secrets() -> None:
    assert clean.ldif(LDIF).split("\n\n") == [
        "dn: cn=config\nolcSecurity: ssf=128",
        "dn: cn={0}core,cn=schema,cn=config",
        SCHEMA,
        DATABASE,
    ]


def test_every_table_but_the_engine_s_is_shown() -> None:
    shown = clean.own_tables(RULES)

    assert "DOCKER" not in shown
    assert [line for line in shown.splitlines() if line.startswith("table")] == [
        "table inet hgfleet {",
        "table inet other {",
    ]
    assert "tcp dport { 22, 2222 } accept" in shown


def test_a_section_for_a_user_has_the_lines_that_differ() -> None:
    text = "port 22\nx11 yes\n\n=== for the user a\nport 22\nx11 no\n"
    assert clean.differing_sections(text) == "port 22\nx11 yes\n\n=== for the user a\nx11 no"


def test_processors_of_the_machine_are_not_told() -> None:
    text = "hgfleet.admission-slots=8\nhgfleet.admission-waiting=50"
    assert clean.of_any_machine(text).splitlines() == [
        "hgfleet.admission-slots=<processors>",
        "hgfleet.admission-waiting=50",
    ]


def test_a_value_is_named_where_it_stands_alone() -> None:
    text = clean.named("10.1.2.30 110.1.2.3 x:2225 22250 s3cret", {"10.1.2": "net", "2225": "port"})
    assert text == "<net>.30 110.1.2.3 x:<port> 22250 s3cret"


def test_ports_networks_and_secrets_of_a_cluster_are_known(tmp_path: Path) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets/root").write_text("geheim salt=1\n")
    env = {
        "HGFLEET_CLUSTER_NETWORK": "10.1.2",
        "HGFLEET_CLUSTER_NAME": "hgfleet-x",
        "HGFLEET_SSH_PORT": "22001",
        "HGFLEET_HTTP_URL": "https://127.0.0.1:22002",
        "HGFLEET_BUNDLE_URL": "https://10.1.2.20:7443/bundles",
    }
    assert values(env, tmp_path) == {
        "10.1.2": "network",
        "hgfleet-x": "cluster",
        "127.0.0.1:22001": "published HGFLEET_SSH_PORT",
        "127.0.0.1:22002": "published HGFLEET_HTTP_URL",
        "10.1.2.20:7443": "published HGFLEET_BUNDLE_URL",
        "geheim": "secret root",
    }


def test_a_section_of_several_hosts_stands_once() -> None:
    unit = "=== a.service\nUser=a\n"
    texts = {
        ("units", "a"): f"{unit}=== b.service\nUser=b",
        ("units", "b"): unit,
        ("firewall", "a"): "from 10.0.0.1\naccept",
        ("firewall", "b"): "from 10.0.0.2\naccept",
        ("replica", "a"): "",
    }

    files = shared(texts, {"a": "10.0.0.1", "b": "10.0.0.2"})

    assert list(files) == ["units.txt", "firewall.txt"]
    assert files["units.txt"].splitlines()[2:] == [
        *("", "=== a.service", "a.service on all", "  User=a"),
        *("", "=== b.service", "b.service on cluster: a", "  User=b"),
    ]
    assert files["firewall.txt"].splitlines()[3:] == [
        *("=== firewall", "firewall on all", "  from 10.0.0.1", "  accept"),
    ]


def test_hosts_of_children_belong_to_a_group() -> None:
    inventory = {"all": {"children": ["web"], "hosts": ["x"]}, "web": {"hosts": ["a", "b"]}}
    assert list(members(inventory, "all")) == ["x", "a", "b"]


def test_limits_that_are_a_share_of_the_machine_differ_by_machine() -> None:
    text = "MemoryMax=134217728\nMemoryMax=20221210624\nMemoryMax=3221222400\nMemoryMax=infinity\n"
    shown = "MemoryMax=<share of the machine>"
    assert clean.without_shares_of_memory(text) == (
        f"MemoryMax=134217728\n{shown}\n{shown}\nMemoryMax=infinity"
    )
