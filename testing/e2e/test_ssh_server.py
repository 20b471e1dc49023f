"""The two SSH servers seen from outside: cryptography, the way in for emergencies, host keys."""

from __future__ import annotations

import json
import re
import uuid
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from controller.bootstrap import ROOT, VENV
from testing.e2e.command import run

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.people import Person

POLICY = "Hardened Debian 13 (version 1)"
PORTS = ("HGFLEET_SSH_PORT", "HGFLEET_ADMIN_SSH_PORT")


# --- cryptography -----------------------------------------------------------------------------


def audit(cluster: Cluster, port: str, *options: str) -> dict[str, Any]:
    """Return ssh-audit's report on a server."""
    # Without its test of the rate, which opens connections for a second: profiles set no limits.
    words = [str(VENV / "bin/ssh-audit"), "--json", "--skip-rate-test", *options]
    said = run([*words, "--port", cluster.env[port], cluster.env["HGFLEET_SSH_HOST"]])
    return dict(json.loads(said.stdout))


@pytest.mark.parametrize("port", PORTS)
def test_profile_strict_passes_the_hardened_policy(cluster: Cluster, port: str) -> None:
    told = audit(cluster, port, "--policy", POLICY)

    assert told["policy"] == POLICY
    assert told["errors"] == []
    assert told["warnings"] == []
    assert told["passed"] is True


@pytest.mark.parametrize("port", PORTS)
def test_a_scan_of_profile_strict_finds_nothing(cluster: Cluster, port: str) -> None:
    told = audit(cluster, port)

    algorithms = [algorithm for kind in ("kex", "key", "enc", "mac") for algorithm in told[kind]]
    assert len(algorithms) > 10
    findings = {
        algorithm["algorithm"]: algorithm["notes"]
        for algorithm in algorithms
        if algorithm["notes"].get("fail") or algorithm["notes"].get("warn")
    }
    assert findings == {}
    assert told["cves"] == []


# --- break-glass ------------------------------------------------------------------------------


def enter(cluster: Cluster, key: str, account: str, *command: str) -> Result:
    """Use the administrators' server."""
    person = cluster.person(key)
    target = ["-p", cluster.env["HGFLEET_ADMIN_SSH_PORT"], f"{account}@127.0.0.1"]
    words = ["ssh", *person.ssh_options, *target, *command]
    return replace(run(words), command=f"ssh {account}@ with the key {key}: {' '.join(command)}")


def test_the_key_in_the_safe_opens_and_leads_to_root(cluster: Cluster) -> None:
    host = cluster.first("ssh")
    before = host.journal_cursor()

    said = enter(cluster, "admin", "breakglass", "sudo", "-n", "id", "-u").ok()

    assert said.stdout.strip() == "0"
    lines = "\n".join(host.journal_after(before))
    fingerprint = run(["ssh-keygen", "-lf", f"{cluster.person('admin').key}.pub"]).stdout.split()[1]
    assert re.search(rf"Accepted publickey for breakglass .*{re.escape(fingerprint)}", lines)
    assert re.search(r"breakglass : .*COMMAND=.*id -u", lines)


@pytest.mark.parametrize(
    ("key", "account"),
    [("alice", "breakglass"), ("admin", "root"), ("admin", "hg"), ("user-ca", "breakglass")],
)
def test_no_other_key_and_no_other_account_opens(cluster: Cluster, key: str, account: str) -> None:
    said = enter(cluster, key, account, "id").refused("Permission denied (publickey)")

    assert "uid=" not in said.output


def certified(cluster: Cluster, folder: Path, principal: str) -> Path:
    """Return a new key with a certificate for people that names this principal."""
    key = folder / "key"
    signer = str(cluster.person("user-ca").key)
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(key)]).ok()
    words = ["ssh-keygen", "-q", "-s", signer, "-I", "test", "-n", principal, "-V", "+5m"]
    run([*words, f"{key}.pub"]).ok()
    return key


def test_a_certificate_for_people_opens_nothing_for_administrators(
    cluster: Cluster, tmp_path: Path
) -> None:
    key = certified(cluster, tmp_path, "breakglass")
    person = replace(cluster.person("alice"), key=key)
    target = ["-p", cluster.env["HGFLEET_ADMIN_SSH_PORT"], "breakglass@127.0.0.1", "id"]

    run(["ssh", *person.ssh_options, *target]).refused("Permission denied (publickey)")


def test_the_key_in_the_safe_is_nobodys_in_mercurial(cluster: Cluster) -> None:
    cluster.person("admin").ssh("whoami").refused("Permission denied (publickey)")


# --- host keys --------------------------------------------------------------------------------


def test_who_trusts_the_web_can_trust_ssh(cluster: Cluster, alice: Person, tmp_path: Path) -> None:
    page = cluster.get(".well-known/ssh-known-hosts")
    assert (page.status, page.headers["content-type"]) == (200, "text/plain")
    learnt = tmp_path / "known_hosts"
    learnt.write_text(page.body)
    # The site's name leads to the published port here.
    options = ["-o", f"HostKeyAlias={cluster.first('ssh').name}"]
    words = ["ssh", *options, "-o", f"UserKnownHostsFile={learnt}", *alice.ssh_options]

    for algorithm in ("ssh-ed25519", "rsa-sha2-512"):
        said = run([*words, "-o", f"HostKeyAlgorithms={algorithm}", *alice.ssh_target, "whoami"])
        assert "name:      alice" in said.ok().stdout


def test_records_for_dns_are_those_of_the_keys_that_clients_meet(cluster: Cluster) -> None:
    page = cluster.get(".well-known/sshfp")
    env = cluster.env
    words = ["ssh-keyscan", "-D", "-t", "ed25519,rsa", "-p", env["HGFLEET_SSH_PORT"]]
    met = run([*words, env["HGFLEET_SSH_HOST"]]).ok().stdout.splitlines()

    # A standby has keys and records of its own.
    own = re.compile(rf"{re.escape(cluster.first('ssh').name)}\.? ")
    records = [line.split()[1:] for line in page.body.splitlines() if own.match(line)]

    assert page.status == 200
    # IN, SSHFP, algorithm, type of fingerprint (2 is SHA-256), fingerprint
    assert sorted(records) == sorted(line.split()[1:] for line in met if line.split()[4] == "2")
    assert len(records) == 2


def test_an_operator_gets_them_from_a_playbook(cluster: Cluster, tmp_path: Path) -> None:
    book = str(ROOT / "ansible/playbooks/hostkeys.yml")
    cluster.ansible("ansible-playbook", book, "-e", f"hostkeys_folder={tmp_path}").ok()

    for name, path in (("known_hosts", "ssh-known-hosts"), ("sshfp", "sshfp")):
        saved = (tmp_path / name).read_text()
        assert saved.count("\n") >= 2
        assert saved == cluster.get(f".well-known/{path}").body


# --- the secret -------------------------------------------------------------------------------


@pytest.mark.whole
@pytest.mark.slow
def test_a_plan_that_changes_the_secret_does_not_show_it(cluster: Cluster) -> None:
    host = cluster.first("ssh")
    old = host.shell("cat /etc/hgfleet/secrets/keys-bind").strip()
    new = uuid.uuid4().hex
    words = [str(ROOT / "ansible/site.yml"), "--check", "--diff", "-v", "--limit", host.name]
    words += ["--tags", "ssh"]
    before = host.journal_cursor()

    done = cluster.ansible("ansible-playbook", *words, "-e", f"ssh_directory_password={new}").ok()

    task = done.stdout.partition("Key lookup has its password]")[2].partition("\nTASK")[0]
    assert "changed: " in task, "the play does not plan to change the secret"
    for secret in (old, new):
        assert secret not in done.output
        assert secret not in "\n".join(host.journal_after(before))
