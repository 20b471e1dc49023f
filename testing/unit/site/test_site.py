"""./run-tests site:INVENTORY: the tests of each host, its connection, and tests left out."""

from __future__ import annotations

import ast
import json
import os
import re
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from controller.bootstrap import ROOT, SetupError
from controller.deploy.decide import DeployError
from controller.tests import site
from testing.site import machine, plugin
from testing.site.machine import Entrance, Machine

if TYPE_CHECKING:
    from collections.abc import Iterator

HG1 = Machine(
    name="hg1",
    groups=["mercurial", "ssh", "web"],
    connection="ssh",
    host="192.0.2.40",
    user="admin",
    port="2222",
    key="",
    ssh_args="",
    address="192.0.2.40",
    public_url="https://hg.example.org",
    https_port=443,
    http_port=80,
    ssh_port=22,
    ca="/ca",
    registry="/registry.yml",
    firewall=True,
    rules=[],
    redirect_host=None,
    redirect_port=443,
    brokers=["broker1"],
    admin_accounts=[],
)
PROXY = replace(HG1, name="proxy1", groups=["proxy"], host="192.0.2.30", address="192.0.2.30")


# --- hosts and their tests --------------------------------------------------------------------


def test_a_host_is_checked_for_its_roles_and_from_the_outside() -> None:
    files = [word for word in site.of_host(HG1, Path("/record")).command if word.endswith(".py")]
    assert files == [
        *(f"testing/roles/test_{name}.py" for name in ("base", "mercurial", "ssh", "web")),
        "testing/roles/test_directory_replica.py",
        "testing/site/test_ports.py",
        "testing/site/test_host_keys.py",
    ]
    assert "testing/site/test_host_keys.py" not in site.of_host(PROXY, Path("/record")).command


def test_a_site_without_a_broker_is_not_asked_for_replication() -> None:
    mirrored = replace(HG1, groups=["ssh", "web", "replication"])
    assert "testing/roles/test_replication.py" in site.tests_of(mirrored)
    assert "testing/site/test_no_broker.py" not in site.tests_of(mirrored)

    alone = site.tests_of(replace(mirrored, brokers=[]))
    assert "testing/roles/test_replication.py" not in alone
    assert "testing/site/test_no_broker.py" in alone
    # A host without a part in replication is not tested for replication.
    proxy = site.tests_of(replace(PROXY, brokers=[]))
    assert not {name for name in proxy if "replication" in name or "broker" in name}
    assert all((ROOT / name).exists() for name in [*alone, *proxy])


@pytest.mark.parametrize(
    ("changes", "to"),
    [
        ({}, "https://hg.example.org"),
        ({"public_url": "https://[2001:db8::1]:8443"}, "https://[2001:db8::1]"),
        ({"redirect_port": 8443}, "https://hg.example.org:8443"),
        ({"redirect_host": "other.example.org"}, "https://other.example.org"),
        # Empty means: the host that the request names.
        ({"redirect_host": ""}, "https://localhost"),
        ({"public_url": ""}, "https://localhost"),
        ({"public_url": "", "redirect_port": 8443}, "https://localhost:8443"),
    ],
)
def test_plain_http_leads_to_the_name_that_the_inventory_gives(
    changes: dict[str, Any], to: str
) -> None:
    assert machine.redirect(replace(PROXY, **changes), "localhost") == to


def test_break_glass_accounts_are_those_of_the_inventory() -> None:
    assert machine.accounts_problem([], HG1) == ""
    safe = replace(HG1, admin_accounts=["safe", "office"])
    assert machine.accounts_problem(["office", "safe"], safe) == ""
    # An account is missing, or an account should have gone.
    assert "expected ['office', 'safe']" in machine.accounts_problem(["safe"], safe)
    assert "got the accounts ['safe'], expected []" in machine.accounts_problem(["safe"], HG1)
    # A host of a scenario or of the cluster has an account to be tested.
    assert machine.accounts_problem(["breakglass"], None) == ""
    assert machine.accounts_problem([], None)


def test_tests_know_the_host_of_their_site(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("HGFLEET_SITE", "HGFLEET_SITE_HOST"):
        monkeypatch.delenv(name, raising=False)
    assert machine.this() is None
    machine.save([HG1, PROXY], tmp_path / "site.json")
    monkeypatch.setenv("HGFLEET_SITE", str(tmp_path / "site.json"))
    # Tests of clients are of all hosts.
    assert machine.this() is None
    monkeypatch.setenv("HGFLEET_SITE_HOST", "proxy1")
    assert machine.this() == PROXY


def test_variables_of_the_cluster_do_not_reach_the_steps_of_other_tiers(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(*_: object) -> None:
        assert os.environ["HGFLEET_KEYS"] == "/keys/of/the/cluster"
        raise DeployError("", "")

    monkeypatch.delenv("HGFLEET_KEYS", raising=False)
    monkeypatch.setattr(
        site.hosts, "cluster_environment", lambda: {"HGFLEET_KEYS": "/keys/of/the/cluster"}
    )
    monkeypatch.setattr(site.run, "read_site", refuse)

    with pytest.raises(SetupError):
        site.read("cluster")

    assert "HGFLEET_KEYS" not in os.environ


def test_ssh_is_that_of_the_inventory_and_root_by_sudo() -> None:
    host = replace(HG1, key="/keys/deploy", ssh_args="-o 'UserKnownHostsFile=/a b' -J bastion")
    assert machine.connection(host) == [
        "--hosts=ssh://admin@192.0.2.40:2222",
        "--sudo",
        "--ssh-identity-file=/keys/deploy",
        "--ssh-extra-args=-o BatchMode=yes -o 'UserKnownHostsFile=/a b' -J bastion",
    ]
    root = replace(HG1, user="root", host="2001:db8::40", port="")
    assert machine.connection(root) == [
        "--hosts=ssh://root@[2001:db8::40]",
        "--ssh-extra-args=-o BatchMode=yes",
    ]


def test_another_connection_is_left_out_by_name() -> None:
    docker = replace(HG1, connection="docker", host="c-hg1")
    assert machine.connection(docker) == ["--hosts=docker://c-hg1"]
    step = site.of_host(replace(HG1, connection="community.libvirt.libvirt_qemu"), Path("/record"))
    assert "not by community.libvirt.libvirt_qemu" in step.skip


def test_facts_are_read_with_the_port_that_answers(tmp_path: Path) -> None:
    facts = {name: value for name, value in vars(HG1).items() if name != "name"}
    tasks = [
        {"task": {"name": machine.FACTS}, "hosts": {"hg1": {"msg": facts}, "hg2": {"msg": facts}}},
        {"task": {"name": "Host answers"}, "hosts": {"hg2": {"failed": True, "msg": "away"}}},
        {"task": {"name": machine.PORT}, "hosts": {"hg1": {"msg": "22"}, "hg2": {"skipped": True}}},
    ]
    hosts = machine.read("a warning\n" + json.dumps({"plays": [{"tasks": tasks}]}))
    assert hosts == [replace(HG1, port="22"), replace(HG1, name="hg2")]
    machine.save(hosts, tmp_path / "site/x.json")
    assert machine.load(tmp_path / "site/x.json") == hosts
    assert (tmp_path / "site/x.json").stat().st_mode & 0o077 == 0
    with pytest.raises(ValueError, match="substring"):
        machine.read("no JSON")


def test_clients_enter_at_each_proxy_under_the_public_name() -> None:
    assert machine.entrances([HG1, PROXY]) == [Entrance("192.0.2.30", 443, 80, "hg.example.org")]
    assert machine.entrances([HG1]) == [Entrance("hg.example.org", 443, 0, "hg.example.org")]
    unnamed = replace(PROXY, public_url="", https_port=8443, address="2001:db8::30")
    (entrance,) = machine.entrances([unnamed])
    assert (entrance.name, entrance.url) == ("2001:db8::30", "https://[2001:db8::30]:8443")
    assert machine.entrances([replace(HG1, public_url="")]) == []


def test_ports_are_read_from_the_rules_of_the_firewall() -> None:
    rules = [
        "tcp dport { 80, 443 } accept",
        "ip saddr { 192.0.2.0/24, 198.51.100.7 } tcp dport { 8443 } accept",
        "ip6 saddr { 2001:db8::/32 } tcp dport { 636 } accept",
        "udp dport { 123 } accept",
    ]
    assert machine.let_in(rules, "198.51.100.7") == {80, 443, 8443}
    assert machine.let_in(rules, "2001:db8::1") == {80, 443, 636}
    assert machine.let_in(rules, "203.0.113.1") == {80, 443}


def test_the_password_of_sudo_is_in_a_file_or_printed_by_a_program(tmp_path: Path) -> None:
    file = tmp_path / "password"
    file.write_text("secret\n")
    assert plugin.password_of(file) == b"secret\n"
    file.write_text("#!/bin/sh\necho printed\n")
    file.chmod(0o700)
    assert plugin.password_of(file) == b"printed\n"


# --- what is left out -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ("", "The tier site needs an inventory."),
        ("no-such-site", "There is no inventory no-such-site"),
    ],
)
def test_a_wrong_inventory_is_told_in_a_sentence(words: str, said: str) -> None:
    with pytest.raises(SetupError, match=said):
        site.steps(words)


def test_tests_of_people_and_faults_are_counted() -> None:
    steps = [site.left_out(folder) for folder in site.LEFT_OUT]
    for step in steps:
        assert step.skip
        assert int(re.findall(r", (\d+) tests in", step.name)[0]) > 10


WRITES = re.compile(
    r"\b(?:touch|mkdir|mktemp|ldapmodify|ldappasswd|put_object|delete_object) |\brm -|logrotate --f"
    r"|\bsystemctl (?:start|stop|restart|reload|kill)\b|\bnft (?:add|insert|delete)|(?<!\w)kill -"
    r"|\bchange\(|\binstall -|\bchmod |\bchown |apt-get|systemd-run|ssh-keygen -q .*%s"
)
"""Commands that change a host."""

SAYS = {
    "test_without_credentials_a_run_says_how_to_start_one": "the command is in the answer",
    "bundle": "on a site it reads what is published",
}


def functions(file: Path) -> dict[str, ast.FunctionDef | ast.ClassDef]:
    body = ast.parse(file.read_text()).body
    return {node.name: node for node in body if isinstance(node, ast.FunctionDef | ast.ClassDef)}


def reached(name: str, known: dict[str, ast.FunctionDef | ast.ClassDef]) -> Iterator[str]:
    """Yield the names that a test uses in its file: fixtures, helpers, classes."""
    waiting, seen = [name], {name}
    while waiting:
        function = waiting.pop()
        yield function
        words = {node.id for node in ast.walk(known[function]) if isinstance(node, ast.Name)}
        words |= {node.arg for node in ast.walk(known[function]) if isinstance(node, ast.arg)}
        new = (words & set(known)) - seen
        seen |= new
        waiting += sorted(new)


@pytest.mark.parametrize(
    "file",
    [
        file
        for file in sorted((ROOT / "testing/roles").glob("test_*.py"))
        if "fire" not in file.name
    ],
    ids=lambda file: file.name,
)
def test_a_test_that_changes_a_host_is_marked(file: Path) -> None:
    known = functions(file)
    lines = file.read_text().splitlines()
    wrong = []
    for name in (name for name in known if name.startswith("test_")):
        marks = " ".join(ast.unparse(decorator) for decorator in known[name].decorator_list)
        if any(f"pytest.mark.{marker}" in marks for marker in plugin.LEFT_OUT):
            continue
        used = [
            "\n".join(lines[known[function].lineno - 1 : known[function].end_lineno])
            for function in reached(name, known)
            if function not in SAYS
        ]
        writes = [match[0] for source in used for match in WRITES.finditer(source)]
        wrong += [f"{name}: {', '.join(writes)}"] if writes else []
    assert wrong == [], "mark it @pytest.mark.changes: a run on a site passes it over"
