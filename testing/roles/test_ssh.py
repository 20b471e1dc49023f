"""The promises of the role ssh, on any host with SSH for Mercurial."""

from __future__ import annotations

import base64
import os
import re
import shlex
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.directory import publickey
from testing.site import machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testinfra.backend.base import CommandResult
    from testinfra.host import Host

    from testing.site.machine import Machine

CONFIG = "/etc/hgfleet/sshd_config"
LOOKUP = "runuser -u hgkeys -- /opt/hgfleet/current/bin/hgfleet-keys"


def effective(host: Host, command: str) -> dict[str, list[str]]:
    """Return the settings in force: lower-case keywords with their values."""
    settings: dict[str, list[str]] = {}
    for line in host.check_output(command).splitlines():
        name, _, value = line.partition(" ")
        settings.setdefault(name, []).append(value)
    return settings


@pytest.fixture(scope="module")
def sshd(host: Host) -> dict[str, list[str]]:
    return effective(host, f"/usr/sbin/sshd -T -f {CONFIG}")


@pytest.fixture(scope="module")
def admin(host: Host) -> dict[str, list[str]]:
    return effective(host, "/usr/sbin/sshd -T")


@pytest.fixture
def stranger(host: Host) -> Iterator[str]:
    """A private key on the host, which is not in the directory."""
    folder = host.check_output("mktemp -d")
    host.check_output("ssh-keygen -q -t ed25519 -N '' -f %s/key", folder)
    yield f"{folder}/key"
    host.check_output("rm -r %s", folder)


def ssh(
    host: Host,
    sshd: dict[str, list[str]],
    key: str,
    *options: str,
    user: str = "hg",
    command: str = "whoami",
) -> CommandResult:
    """Connect to the service of this host from this host."""
    words = [
        *("ssh", "-F", "none", "-T", "-o", "BatchMode=yes", "-o", "IdentitiesOnly=yes"),
        *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
        *("-o", "LogLevel=ERROR", "-o", "ConnectTimeout=10", "-i", key, "-p", sshd["port"][0]),
        *options,
        f"{user}@localhost",
        command,
    ]
    return host.run(shlex.join(words))


def journal(host: Host, identifier: str) -> str:
    host.check_output("journalctl --sync")
    return str(
        host.check_output(
            "journalctl --quiet --no-pager --output cat --lines 200 -t %s", identifier
        )
    )


# --- two servers ----------------------------------------------------------------------------


@pytest.mark.parametrize("unit", ["hgfleet-sshd", "ssh"])
def test_both_servers_run_and_start_with_the_host(host: Host, unit: str) -> None:
    assert host.service(unit).is_running
    assert host.service(unit).is_enabled


def test_each_has_ports_of_its_own(
    host: Host, sshd: dict[str, list[str]], admin: dict[str, list[str]]
) -> None:
    assert not set(sshd["port"]) & set(admin["port"])
    for port in sshd["port"] + admin["port"]:
        assert host.socket(f"tcp://{port}").is_listening


def test_hg_has_no_business_with_the_administrators(admin: dict[str, list[str]]) -> None:
    assert "hg" in admin["denyusers"]


def test_the_unit_is_confined(host: Host) -> None:
    shown = host.check_output("systemd-analyze security --no-pager hgfleet-sshd").splitlines()[-1]
    exposure = re.search(r"service: ([0-9.]+)", shown)
    assert exposure is not None, shown
    # An sshd is root, has a network and becomes other users; the unit gives the reason for each.
    assert float(exposure[1]) <= 2.2, shown


def test_the_administrators_unit_is_confined_as_far_as_their_sessions_bear(host: Host) -> None:
    shown = host.check_output(
        "systemctl show ssh.service -p LockPersonality -p RestrictRealtime -p NoNewPrivileges"
        " -p SystemCallArchitectures"
    )
    for line in ("LockPersonality=yes", "RestrictRealtime=yes", "SystemCallArchitectures=native"):
        assert line in shown, shown
    # sudo has to work in their sessions.
    assert "NoNewPrivileges=no" in shown, shown


def test_sessions_outlive_the_server(host: Host) -> None:
    assert host.check_output("systemctl show -P KillMode hgfleet-sshd") == "process"


# --- settings in force ----------------------------------------------------------------------

EXPECTED = {
    "allowusers": "hg",
    "permitrootlogin": "no",
    "authenticationmethods": "publickey",
    "passwordauthentication": "no",
    "kbdinteractiveauthentication": "no",
    "hostbasedauthentication": "no",
    "usepam": "no",
    "authorizedkeysfile": "none",
    "authorizedkeyscommand": "/opt/hgfleet/current/bin/hgfleet-keys %f %t %k",
    "authorizedkeyscommanduser": "hgkeys",
    "exposeauthinfo": "no",
    "disableforwarding": "yes",
    "allowtcpforwarding": "no",
    "allowagentforwarding": "no",
    "allowstreamlocalforwarding": "no",
    "x11forwarding": "no",
    "permittunnel": "no",
    "permittty": "no",
    "permituserrc": "no",
    "permituserenvironment": "no",
    "loglevel": "VERBOSE",
}


@pytest.mark.parametrize("name", EXPECTED)
def test_setting(sshd: dict[str, list[str]], name: str) -> None:
    assert sshd[name] == [EXPECTED[name]]


@pytest.mark.parametrize("name", ["acceptenv", "subsystem"])
def test_nothing_is_passed_on(sshd: dict[str, list[str]], name: str) -> None:
    assert name not in sshd


def test_crypto_is_of_a_known_profile(sshd: dict[str, list[str]]) -> None:
    strict = {
        "mlkem768x25519-sha256",
        "sntrup761x25519-sha512",
        "sntrup761x25519-sha512@openssh.com",
    }
    offered = set(sshd["kexalgorithms"][0].split(","))
    assert strict <= offered
    assert offered - strict <= {"curve25519-sha256", "curve25519-sha256@libssh.org"}
    assert all(mac.endswith("-etm@openssh.com") for mac in sshd["macs"][0].split(","))
    assert "cbc" not in sshd["ciphers"][0]
    for name in ("hostkeyalgorithms", "pubkeyacceptedalgorithms", "casignaturealgorithms"):
        assert "ssh-rsa" not in sshd[name][0].split(","), "SHA-1"
    assert sshd["hostkeyalgorithms"] == ["ssh-ed25519,rsa-sha2-512,rsa-sha2-256"]


def test_host_keys_are_ours_alone(
    host: Host, sshd: dict[str, list[str]], admin: dict[str, list[str]]
) -> None:
    shown = {}
    for path in sshd["hostkey"]:
        key = host.file(path)
        assert (key.user, key.mode) == ("root", 0o600)
        bits, _, rest = host.check_output("ssh-keygen -l -f %s", f"{path}.pub").partition(" ")
        shown[rest.rpartition(" ")[2]] = int(bits)
    assert shown == {"(ED25519)": 256, "(RSA)": 4096}
    assert not set(sshd["hostkey"]) & set(admin["hostkey"])


def without_post_quantum(host: Host, port: str) -> str:
    """Return the output of a client from before 2022 with an unknown key."""
    command = [
        *("ssh", "-F", "none", "-o", "BatchMode=yes", "-o", "PubkeyAuthentication=no"),
        *("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null"),
        *("-o", "KexAlgorithms=curve25519-sha256", "-p", port),
    ]
    tried = host.run(shlex.join([*command, "hg@localhost"]))
    assert tried.rc == 255
    return str(tried.stderr)


@pytest.mark.parametrize("server", ["sshd", "admin"])
def test_an_old_client_gets_as_far_as_its_profile_says(
    host: Host, server: str, request: pytest.FixtureRequest
) -> None:
    settings = request.getfixturevalue(server)
    offered = settings["kexalgorithms"][0].split(",")

    said = without_post_quantum(host, settings["port"][0])

    if "curve25519-sha256" in offered:  # compatible
        assert "Permission denied (publickey)" in said
    else:
        assert "no matching key exchange method found" in said


def test_strangers_from_the_balancer_and_the_probes_are_not_punished(
    host: Host, sshd: dict[str, list[str]]
) -> None:
    config = host.file(CONFIG).content_string
    assert re.search(r"^PerSourcePenalties .*\bmin:", config, re.MULTILINE)
    exempt = sshd["persourcepenaltyexemptlist"][0].split(",")
    assert all(re.fullmatch(r"[0-9a-f.:]+(/[0-9]+)?", network) for network in exempt), exempt


def test_a_ca_and_its_lookup_come_together(host: Host, sshd: dict[str, list[str]]) -> None:
    listed = host.file("/etc/hgfleet/ssh/user_ca_keys").content_string.splitlines()
    cas = [publickey.parse(line) for line in listed if not line.startswith("#")]
    lookup = "/opt/hgfleet/current/bin/hgfleet-keys --principals %t %k"
    assert sshd["trustedusercakeys"] == (["/etc/hgfleet/ssh/user_ca_keys"] if cas else ["none"])
    assert sshd["authorizedprincipalscommand"] == ([lookup] if cas else ["none"])
    assert sshd["authorizedprincipalscommanduser"] == (["hgkeys"] if cas else ["none"])
    accepted = sshd["pubkeyacceptedalgorithms"][0].split(",")
    assert ("ssh-ed25519-cert-v01@openssh.com" in accepted) == bool(cas)


def test_host_keys_are_published_as_they_are(host: Host, sshd: dict[str, list[str]]) -> None:
    published = host.file("/etc/hgfleet/ssh/known_hosts").content_string.splitlines()
    records = host.file("/etc/hgfleet/ssh/sshfp").content_string.splitlines()
    keys = [host.file(f"{path}.pub").content_string.split()[:2] for path in sshd["hostkey"]]

    assert [line.split(" ", 1)[1].split() for line in published] == keys
    made = host.check_output(
        "for key in %s %s; do ssh-keygen -r name -f $key; done",
        *(f"{path}.pub" for path in sshd["hostkey"]),
    )
    wanted = [line.split()[3:] for line in made.splitlines() if line.split()[4] == "2"]
    assert wanted == [line.split()[3:] for line in records]


# --- the administrators' server -------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("passwordauthentication", "no"),
        ("kbdinteractiveauthentication", "no"),
        ("permitemptypasswords", "no"),
        ("permitrootlogin", "without-password"),
        ("loglevel", "VERBOSE"),
        ("x11forwarding", "no"),
    ],
)
def test_setting_for_administrators(admin: dict[str, list[str]], name: str, value: str) -> None:
    assert admin[name] == [value]


@pytest.fixture(scope="module")
def accounts(host: Host, of_site: Machine | None) -> list[str]:
    """The break-glass accounts of this host, which must be its inventory's."""
    names = host.check_output("ls /etc/hgfleet/ssh/admin_keys").split()
    problem = machine.accounts_problem(names, of_site)
    assert not problem, problem
    if not names:
        pytest.skip("the inventory has no break-glass account (ssh_admin_accounts)")
    return names


def test_break_glass_needs_nothing_but_files_of_root(host: Host, accounts: list[str]) -> None:
    for account in accounts:
        settings = effective(host, f"/usr/sbin/sshd -T -C user={account},host=x,addr=192.0.2.1")
        assert settings["authorizedkeysfile"] == ["/etc/hgfleet/ssh/admin_keys/%u"]
        assert settings["authorizedkeyscommand"] == ["none"]
        assert settings["trustedusercakeys"] == ["none"]
        keys = host.file(f"/etc/hgfleet/ssh/admin_keys/{account}")
        assert (keys.user, keys.group, keys.mode) == ("root", "root", 0o644)
        lines = keys.content_string.splitlines()
        assert [publickey.parse(line) for line in lines if not line.startswith("#")]
        # In the local files, so that the account exists without a network.
        assert host.run("grep -q '^%s:' /etc/passwd", account).rc == 0
        assert host.run("runuser -u %s -- sudo -n true", account).rc == 0


def test_break_glass_has_no_password(host: Host, accounts: list[str]) -> None:
    for account in accounts:
        assert host.user(account).password == "*"


@pytest.mark.changes
def test_keys_that_the_account_brings_itself_do_not_count(
    host: Host, admin: dict[str, list[str]], accounts: list[str], stranger: str
) -> None:
    home = host.user(accounts[0]).home
    host.check_output("runuser -u %s -- mkdir -m 700 -p %s/.ssh", accounts[0], home)
    host.check_output(
        "install -m 600 -o %s %s.pub %s/.ssh/authorized_keys", accounts[0], stranger, home
    )
    try:
        tried = ssh(host, admin, stranger, user=accounts[0], command="id")
    finally:
        host.check_output("rm -r %s/.ssh", home)
    assert tried.rc == 255
    assert "Permission denied (publickey)" in tried.stderr


# --- key lookup -----------------------------------------------------------------------------


def test_only_the_lookup_reads_its_password(host: Host) -> None:
    secret = host.file("/etc/hgfleet/secrets/keys-bind")
    assert (secret.user, secret.group, secret.mode) == ("root", "hgkeys", 0o640)
    for user in ("hg", "nobody", "sshd"):
        assert host.run("runuser -u %s -- cat /etc/hgfleet/secrets/keys-bind", user).rc != 0, user
    assert host.run("runuser -u hgkeys -- cat /etc/hgfleet/secrets/keys-bind").rc == 0
    members = host.check_output("getent group hgkeys").rpartition(":")[2]
    assert members == ""


def test_password_is_nowhere_else(host: Host) -> None:
    password = host.file("/etc/hgfleet/secrets/keys-bind").content_string.strip()
    done = host.run(
        "grep -r -l -F -f /etc/hgfleet/secrets/keys-bind --exclude-dir secrets /etc/hgfleet;"
        " journalctl --quiet --no-pager | grep -F -f /etc/hgfleet/secrets/keys-bind"
    )
    assert done.stdout == ""
    assert password not in host.check_output("ps -eo args")


def test_a_login_does_not_wait_for_python(host: Host) -> None:
    """No `site`, and every module compiled, because sshd runs the command twice for each login."""
    script = "/opt/hgfleet/current/bin/hgfleet-keys"
    first = host.file(script).content_string.splitlines()[0]
    assert re.fullmatch(r"#!/opt/hgfleet/releases/[^/]+/bin/python -IS", first)
    traced = f"runuser -u hgkeys -- {first[2:]} -v {script} --check /etc/hgfleet/keys.toml 2>&1"
    lines = host.check_output(traced).splitlines()
    assert any(re.search(r"/authorized_keys\.[^/]+\.pyc matches ", line) for line in lines), lines
    compiled = [line for line in lines if re.match(r"# code object from [^']", line)]
    assert compiled == [], "compiled at every login, because the compiled file is missing or older"
    assert not any(line.startswith(("import 're'", "import 'tomllib'")) for line in lines)


def test_the_directory_answers_within_its_time(host: Host) -> None:
    probed = host.run(f"{LOOKUP} --probe")
    assert probed.rc == 0, probed.stdout + probed.stderr
    assert " answers after 0." in probed.stdout


def test_an_unknown_key_is_nobodys_and_in_the_log(host: Host, tmp_path: Path) -> None:
    make = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(tmp_path / "key")]
    subprocess.run(make, check=True)
    key = publickey.parse((tmp_path / "key.pub").read_text().strip())
    told = host.run(f"{LOOKUP} %s %s %s", key.fingerprint, key.type, key.blob)
    assert (told.rc, told.stdout) == (0, "")
    lines = [line for line in journal(host, "hgfleet-keys").splitlines() if key.fingerprint in line]
    assert lines, "no line in the journal"
    assert "decision=deny reason=unknown" in lines[-1]
    assert "seconds=" in lines[-1]


@pytest.mark.parametrize(
    "arguments",
    ["''", "'*' ssh-ed25519 AAAA", "'SHA256:*' ssh-ed25519 AAAA", "')(uid=*' x y", "a b c d", "x"],
)
def test_a_strange_question_is_answered_with_silence(host: Host, arguments: str) -> None:
    told = host.run(f"{LOOKUP} {arguments}")
    assert (told.rc, told.stdout, told.stderr) == (0, "", "")


# --- from outside ---------------------------------------------------------------------------


@pytest.mark.changes
def test_an_unknown_key_does_not_get_in(
    host: Host, sshd: dict[str, list[str]], stranger: str
) -> None:
    tried = ssh(host, sshd, stranger)
    assert tried.rc == 255
    assert "Permission denied (publickey)" in tried.stderr


@pytest.mark.changes
@pytest.mark.parametrize("user", ["root", "nobody", "hgkeys"])
def test_nobody_but_hg_is_let_in(
    host: Host, sshd: dict[str, list[str]], stranger: str, user: str
) -> None:
    tried = ssh(host, sshd, stranger, user=user)
    assert tried.rc == 255
    assert "Permission denied (publickey)" in tried.stderr


def people_keys() -> Path | None:
    """Return the folder with private keys of people, if this site has them."""
    return Path(os.environ["HGFLEET_KEYS"]) if "HGFLEET_KEYS" in os.environ else None


def ask_for(host: Host, name: str) -> str:
    folder = people_keys()
    if folder is None:
        pytest.skip("no HGFLEET_KEYS: the keys of people stay with them")
    key = publickey.parse((folder / f"{name}.pub").read_text().strip())
    told = host.run(f"{LOOKUP} %s %s %s", key.fingerprint, key.type, key.blob)
    assert told.rc == 0
    return str(told.stdout)


@pytest.mark.person
@pytest.mark.parametrize(
    ("key", "person", "groups"),
    [
        ("alice", "alice", "maintainers,sandbox"),
        ("bob", "bob", "sandbox"),
        ("carol", "carol", "sandbox"),
        ("carol-second", "carol", "sandbox"),
    ],
)
def test_people_get_the_forced_shell_and_nothing_else(
    host: Host, key: str, person: str, groups: str
) -> None:
    line = ask_for(host, key)
    assert re.fullmatch(
        'restrict,command="/opt/hgfleet/current/bin/hgfleet-shell'
        rf" --user {person} --person-id [0-9a-f-]{{36}} --groups {groups} --login [0-9]{{10}}"
        r' --fingerprint SHA256:[A-Za-z0-9+/]+" ssh-.+\n',
        line,
    )


@pytest.mark.person
@pytest.mark.parametrize("name", ["carol", "carol-second"])
def test_a_revoked_key_is_refused_whatever_the_directory_says(
    host: Host, sshd: dict[str, list[str]], stranger: str, name: str
) -> None:
    assert ask_for(host, name) != "", "the directory does not know this key"
    folder = people_keys()
    assert folder is not None
    key = publickey.parse((folder / f"{name}.pub").read_text().strip())
    secret = base64.b64encode((folder / name).read_bytes()).decode()
    host.check_output("rm %s.pub; echo %s | base64 -d > %s", stranger, secret, stranger)

    tried = ssh(host, sshd, stranger)

    listed = host.file("/etc/hgfleet/ssh/revoked_keys").content_string
    assert sshd["revokedkeys"] == ["/etc/hgfleet/ssh/revoked_keys" if "ssh-" in listed else "none"]
    if key.blob in listed:
        assert (tried.rc, tried.stdout) == (255, "")
        assert "Permission denied (publickey)" in tried.stderr
    else:
        assert "carol" in tried.stdout


@pytest.mark.person
def test_a_disabled_person_is_nobody(host: Host) -> None:
    assert ask_for(host, "mallory") == ""


# --- the shell ------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "sh",
        "hg -R ../../../etc serve --stdio",
        "hg -R /etc serve --stdio",
        "hg -R no/such serve --stdio",
        "hg -R hgfleet serve --stdio --config ui.debugger=1",
        "hg version",
        "$(id)",
    ],
)
def test_the_shell_runs_nothing_else(host: Host, command: str) -> None:
    tried = host.run(
        "runuser -u hg -- env -i SSH_ORIGINAL_COMMAND=%s"
        " /opt/hgfleet/current/bin/hgfleet-shell --user dora",
        command,
    )
    assert tried.rc not in (0, 255)
    assert tried.stdout == ""
    assert tried.stderr.count("\n") == 1, tried.stderr
    lines = journal(host, "hgfleet-shell").splitlines()
    assert "decision=refuse" in [line for line in lines if " user=dora " in line][-1]


def test_a_session_of_the_unit_can_write_repositories_only(host: Host) -> None:
    writable = host.check_output("systemctl show -P ReadWritePaths hgfleet-sshd").split()
    spools = ["-/var/lib/hgfleet/dynamic", "-/var/lib/hgfleet/pushed", "-/run/hgfleet-admission"]
    logs = ["-/var/log/hgfleet/ssh", "-/run/hgfleet-counters", "-/run/hgfleet-lookups"]
    assert writable == ["/srv/hg/repos", *spools, *logs]
    assert host.check_output("systemctl show -P ProtectSystem hgfleet-sshd") == "strict"


def test_key_lookup_counts_its_answers_and_writes_nothing_else(host: Host) -> None:
    folder = host.file("/run/hgfleet-lookups")
    assert (folder.user, folder.group, folder.mode) == ("hgkeys", "hgkeys", 0o755)
    declared = host.check_output("systemd-tmpfiles --cat-config | grep hgfleet-lookups")
    assert declared.splitlines()[-1] == "d /run/hgfleet-lookups 0755 hgkeys hgkeys -"
    host.run_test("runuser -u hgkeys -- /opt/hgfleet/current/bin/hgfleet-keys x ssh-ed25519 y")
    counts = host.file("/run/hgfleet-lookups/lookups")
    assert (counts.user, counts.mode) == ("hgkeys", 0o644)
    assert "question " in counts.content_string
    others = "/run/hgfleet-counters /srv/hg/repos /var/lib/hgfleet /etc/hgfleet"
    search = f"find {others} -writable -not -type l -print -quit 2>/dev/null"
    assert host.check_output(f"runuser -u hgkeys -- sh -c '{search}; true'") == ""


def test_what_pulls_cost_is_logged_for_the_bundle_jobs_alone(host: Host) -> None:
    folder = host.file("/var/log/hgfleet/ssh")
    assert (folder.user, folder.group, folder.mode) == ("hg", "hg", 0o750)
    session = "HGRCPATH=/etc/hgfleet/hgrc /opt/hgfleet/current/bin/hg config hgfleet.demand-log"
    assert host.check_output(session) == "/var/log/hgfleet/ssh/changesets.log"
    host.run_test("logrotate --debug /etc/logrotate.d/hgfleet-ssh")


# --- the person of an open session ----------------------------------------------------------

ASK = """
import sys
from hgfleet.directory import person_state
found = person_state.ask(sys.argv[1])
print(found.state, ",".join(sorted(found.groups)), len(found.keys))
print(found.person_id or "-")
"""


def ask_about(host: Host, user: str, person: str) -> CommandResult:
    """Ask the daemon about a person, as a user of the host."""
    return host.run("runuser -u %s -- /opt/hgfleet/current/bin/python -c %s %s", user, ASK, person)


@pytest.mark.parametrize("name", ["hgfleet-people", "hgfleet-token-sweep"])
def test_the_daemon_for_people_and_the_sweep_of_tokens_are_confined(host: Host, name: str) -> None:
    assert host.service(name).is_running
    assert host.service(name).is_enabled
    shown = host.check_output("systemd-analyze security --no-pager %s", name).splitlines()[-1]
    exposure = re.search(r"service: ([0-9.]+)", shown)
    assert exposure is not None, shown
    assert float(exposure[1]) <= 2.0, shown


def test_the_state_of_a_person_is_told_to_hg_and_to_nobody_else(host: Host) -> None:
    socket = host.file("/run/hgfleet-people/socket")
    assert (socket.user, oct(socket.mode & 0o777)) == ("hg", "0o600")
    assert ask_about(host, "hg", "nobody-has-this-name").stdout == "missing  0\n-\n"
    for user in ("hgkeys", "nobody"):
        asked = ask_about(host, user, "nobody-has-this-name")
        assert asked.rc != 0
        assert "Permission denied" in asked.stderr


@pytest.mark.person
@pytest.mark.parametrize(
    ("person", "answer"),
    [("alice", "enabled maintainers,sandbox "), ("mallory", "disabled  0\n")],
)
def test_the_state_of_a_person_is_that_of_the_directory(
    host: Host, person: str, answer: str
) -> None:
    said = ask_about(host, "hg", person).stdout
    assert said.startswith(answer)
    # The lookup can read the entryUUID of each person in the directory.
    assert re.fullmatch(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", said.splitlines()[1])
