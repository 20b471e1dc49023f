"""The daily work with people: an operator's change counts at the next login.

Each test has a person of its own, who is deleted afterwards.
"""

from __future__ import annotations

import base64
import json
import subprocess
import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import Result, run, wait_until
from testing.e2e.people import Person, basic
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

SECONDS_UNTIL_REVOKED = 2.0
DENIED = "Permission denied (publickey)"


def new_key(folder: Path, name: str) -> Path:
    """Make a key; its comment is its name."""
    key = folder / name
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", name, "-f", str(key)]).ok()
    return key


def fingerprint(key: Path) -> str:
    return run(["ssh-keygen", "-l", "-f", str(key)]).ok().stdout.split()[1]


@dataclass(frozen=True)
class Operator:
    """Root on the directory's host, and the person whose entry root changes."""

    host: Host
    name: str
    dn: str

    def person(self, *words: str, stdin: str = "") -> Result:
        """Run a command of `hgfleet person`."""
        return self.host.run("hgfleet", "person", *words, stdin=stdin)

    def entry(self) -> str:
        """Return everything that the directory has about the person."""
        words = ["ldapsearch", "-Q", "-LLL", "-o", "ldif-wrap=no", "-Y", "EXTERNAL"]
        words += ["-H", "ldapi:///", "-b", self.dn, "-s", "base", "*", "+"]
        return self.host.run(*words).ok().stdout


@pytest.fixture
def operator(cluster: Cluster) -> Iterator[Operator]:
    """An operator with a new person."""
    name = f"e2e-{uuid.uuid4().hex[:12]}"
    host = cluster.first("directory")
    dn = f"uid={name},ou=people,{cluster.env['HGFLEET_LDAP_BASE']}"
    worker = Operator(host, name, dn)
    worker.person("add", name, "--full-name", "End To End").ok()
    yield worker
    worker.person("group", "remove", name, "sandbox").ok()
    host.run("ldapdelete", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", dn).ok()


@pytest.fixture
def somebody(cluster: Cluster, operator: Operator, tmp_path: Path) -> Person:
    """The operator's person, with a key."""
    key = new_key(tmp_path, "laptop")
    public = key.with_suffix(".pub").read_text()
    operator.person("key", "add", operator.name, "-", stdin=public).ok()
    somebody = Person(operator.name, key, cluster)
    gets_in(somebody)
    return somebody


def gets_in(person: Person) -> None:
    """Wait until the person gets in: a change reaches a replica a moment after the provider."""
    until(person, expected=True)


def is_shut_out(person: Person) -> None:
    """Check that a login that begins 2 s or more after the change is refused."""
    until(person, expected=False)


def until(person: Person, *, expected: bool) -> None:
    begin = time.monotonic()
    while True:
        began = time.monotonic() - begin
        tried = person.ssh("whoami")
        if (tried.code == 0) == expected:
            break
        assert began < SECONDS_UNTIL_REVOKED, f"still not so after {began:.1f} s:\n{tried}"
    if expected:
        assert f"name:      {person.name}" in tried.stdout
    else:
        tried.refused(DENIED)


# --- keys and state ---------------------------------------------------------------------------


def test_a_key_that_is_added_gets_in_and_one_that_is_removed_does_not(
    operator: Operator, somebody: Person, cluster: Cluster, tmp_path: Path
) -> None:
    second = Person(operator.name, new_key(tmp_path, "desktop"), cluster)
    public = second.key.with_suffix(".pub").read_text().strip()
    operator.person("key", "add", operator.name, public).ok()
    gets_in(second)

    operator.person("key", "remove", operator.name, "desktop").ok()

    is_shut_out(second)
    gets_in(somebody)


def test_a_disabled_person_is_shut_out_and_an_enabled_one_gets_in_again(
    operator: Operator, somebody: Person
) -> None:
    operator.person("disable", operator.name).ok()
    is_shut_out(somebody)

    operator.person("enable", operator.name).ok()
    gets_in(somebody)


# --- sessions and tokens from before ----------------------------------------------------------

SHELL = "/opt/hgfleet/current/bin/hgfleet-shell"
TOKENS = "/var/lib/hgfleet/dynamic/tokens/tokens.json"
SECONDS_UNTIL_ASKED = 15
"""The daemon repeats an answer for 10 s, and a replica is a moment behind the provider."""


def test_a_connection_from_before_gets_a_disabled_person_no_command(
    cluster: Cluster, operator: Operator, somebody: Person
) -> None:
    host = cluster.first("ssh")

    def over_an_old_connection() -> Result:
        words = ["--user", somebody.name, "--login", str(int(time.time()) - 3600)]
        words += ["--fingerprint", fingerprint(somebody.key)]
        environment = ["env", "-i", "SSH_ORIGINAL_COMMAND=whoami"]
        return host.run("runuser", "-u", "hg", "--", *environment, SHELL, *words)

    def is_refused() -> bool:
        tried = over_an_old_connection()
        assert tried.code == 0 or "may not use this service any more" in tried.stderr, tried
        return tried.code != 0

    assert not is_refused()
    operator.person("disable", operator.name).ok()
    wait_until("the command is refused", is_refused, SECONDS_UNTIL_ASKED)


@pytest.mark.whole
def test_an_open_session_ends_within_a_minute_after_its_person_is_disabled(
    operator: Operator, somebody: Person
) -> None:
    command = ["ssh", *somebody.ssh_options, *somebody.ssh_target]
    session = subprocess.Popen(
        [*command, "hg -R hgfleet serve --stdio"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )
    try:
        assert session.stdin is not None
        assert session.stdout is not None
        stdin, stdout = session.stdin, session.stdout

        def is_answered() -> bool:
            try:
                stdin.write(b"heads\n")
                stdin.flush()
            except BrokenPipeError:
                return False
            length = stdout.readline()
            return bool(length) and len(stdout.read(int(length))) == int(length)

        assert is_answered()
        operator.person("disable", operator.name).ok()
        wait_until("the session ends", lambda: not is_answered(), 65, every=1)
        _, said = pace.communicate(session, 30)
        assert f"{somebody.name} may not use this service any more" in said.decode()
    finally:
        session.kill()
        session.communicate()


def test_tokens_of_a_disabled_person_are_gone_on_every_host_and_stay_gone(
    cluster: Cluster, operator: Operator, somebody: Person
) -> None:
    made = somebody.ssh("token", "create", "--days", "1", "end-to-end", "test").ok().stdout
    secret, _, rest = made.partition("\n")
    identity = rest.split("This is token ")[1][:8]
    hosts = [cluster.first("ssh"), *cluster.all("web")]

    def have_it() -> list[str]:
        return [host.name for host in hosts if identity in host.run("cat", TOKENS).ok().stdout]

    wait_until("every host has the token", lambda: len(have_it()) == len(hosts))
    operator.person("disable", operator.name).ok()
    is_shut_out(somebody)

    # The next regular sweep is a minute away; a reload sweeps now.
    def sweep() -> bool:
        cluster.first("ssh").systemctl("reload", "hgfleet-token-sweep").ok()
        return not have_it()

    wait_until("no host has the token", sweep, SECONDS_UNTIL_ASKED, every=1)
    operator.person("enable", operator.name).ok()
    gets_in(somebody)

    assert "You have no tokens" in somebody.ssh("token", "list").ok().stdout
    signed_in = cluster.get("api/repositories", headers=basic(somebody.name, secret))
    assert signed_in.status == 401


def test_a_group_counts_at_the_next_login(operator: Operator, somebody: Person) -> None:
    assert "groups:    sandbox" not in somebody.ssh("whoami").ok().stdout
    operator.person("group", "add", operator.name, "sandbox").ok()

    begin = time.monotonic()
    while "groups:    sandbox" not in somebody.ssh("whoami").ok().stdout:
        assert time.monotonic() - begin < SECONDS_UNTIL_REVOKED + 2

    assert "sandbox" in operator.person("show", operator.name).ok().stdout


def test_a_password_does_not_enable_a_disabled_person(operator: Operator) -> None:
    operator.person("disable", operator.name).ok()
    operator.person("password", operator.name, stdin="correct horse battery\n").ok()

    entry = operator.entry()
    assert "pwdAccountLockedTime: 000001010000Z" in entry
    stored = next(line for line in entry.splitlines() if line.startswith("userPassword:: "))
    assert base64.b64decode(stored.split()[1]).startswith(b"{ARGON2}")


def test_a_dry_run_changes_nothing(operator: Operator, somebody: Person) -> None:
    before = operator.entry()
    key = fingerprint(somebody.key)
    for words in (("disable", operator.name), ("key", "remove", operator.name, key)):
        said = operator.person(*words, "--check").ok().stdout
        assert "--check changes nothing" in said
    assert operator.entry() == before


def test_a_key_of_somebody_else_is_refused_with_their_name(
    operator: Operator, cluster: Cluster
) -> None:
    public = cluster.person("bob").key.with_suffix(".pub").read_text()
    operator.person("key", "add", operator.name, "-", stdin=public).refused("is a key of bob")


def test_show_and_list_know_the_person(operator: Operator, somebody: Person) -> None:
    shown = operator.person("show", operator.name).ok().stdout
    assert fingerprint(somebody.key) in shown
    listed = json.loads(operator.person("list", "--json").ok().stdout)
    states = {person["name"]: person["state"] for person in listed}
    assert states[operator.name] == "enabled"
    assert states["mallory"] == "disabled"


def test_what_was_done_is_in_the_log_with_who_did_it(operator: Operator) -> None:
    cursor = operator.host.journal_cursor()
    operator.person("disable", operator.name).ok()
    lines = operator.host.journal_after(cursor, "--identifier=hgfleet-person")
    expected = f"event=person action=disable person={operator.name} by=root changed=yes"
    assert expected in lines


def test_the_index_of_keys_is_repaired(operator: Operator, somebody: Person) -> None:
    ldif = f"dn: {operator.dn}\nchangetype: modify\ndelete: sshPublicKeyId\n"
    words = ["ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///"]
    operator.host.run(*words, stdin=ldif).ok()
    is_shut_out(somebody)

    operator.host.run("hgfleet", "keys", "index", "--base", operator.dn).ok()

    gets_in(somebody)


def test_a_security_key_is_found(operator: Operator, cluster: Cluster) -> None:
    fields = (b"sk-ssh-ed25519@openssh.com", uuid.uuid4().bytes * 2, b"ssh:")
    blob = base64.b64encode(b"".join(len(f).to_bytes(4, "big") + f for f in fields)).decode()
    line = f"sk-ssh-ed25519@openssh.com {blob}"
    identity = run(["ssh-keygen", "-l", "-f", "-"], stdin=line + "\n").ok().stdout.split()[1]
    operator.person("key", "add", operator.name, f"{line} token").ok()

    host = cluster.first("ssh")
    lookup = ["runuser", "-u", "hgkeys", "--", "/opt/hgfleet/current/bin/hgfleet-keys"]
    begin = time.monotonic()
    while line not in (said := host.run(*lookup, identity, *line.split()).ok().stdout):
        assert time.monotonic() - begin < SECONDS_UNTIL_REVOKED

    assert said.startswith("restrict,command=")
    assert f"--user {operator.name}" in said


# --- certificates -----------------------------------------------------------------------------


@dataclass(frozen=True)
class Authority:
    """A CA that signs keys of people."""

    key: Path

    def sign(
        self, person: Person, *options: str, principals: str = "", valid: str = "-5m:+1h"
    ) -> None:
        """Put a certificate next to the person's key, where ssh looks for it."""
        words = ["ssh-keygen", "-q", "-s", str(self.key), "-I", f"{person.name} in a test"]
        words += ["-V", valid, *options]
        words += ["-n", principals] if principals else []
        run([*words, f"{person.key}.pub"]).ok()


@pytest.fixture
def authority(cluster: Cluster) -> Authority:
    """The CA that the cluster trusts."""
    return Authority(cluster.person("user-ca").key)


@pytest.fixture
def guest(cluster: Cluster, operator: Operator, tmp_path: Path) -> Person:
    """The operator's person with a key that the directory does not know."""
    return Person(operator.name, new_key(tmp_path, "certified"), cluster)


def test_a_certificate_gets_in_the_person_it_names(
    cluster: Cluster, authority: Authority, guest: Person
) -> None:
    guest.ssh("whoami").refused(DENIED)
    host = cluster.first("ssh")
    cursor = host.journal_cursor()

    authority.sign(guest, principals=guest.name)

    gets_in(guest)
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    known = [line for line in lines if "event=certificate decision=allow" in line]
    assert known
    assert all(f"person={guest.name}" in line for line in known)
    assert all(f"fingerprint={fingerprint(guest.key)}" in line for line in known)


def test_a_certificate_of_a_disabled_person_is_refused(
    operator: Operator, authority: Authority, guest: Person
) -> None:
    authority.sign(guest, principals=guest.name)
    gets_in(guest)

    operator.person("disable", operator.name).ok()

    is_shut_out(guest)


def test_a_certificate_runs_nothing_but_the_shell(authority: Authority, guest: Person) -> None:
    authority.sign(guest, principals=guest.name)
    gets_in(guest)
    guest.ssh("sh").refused("is not a command of this service")
    guest.ssh(options=("-W", "127.0.0.1:2222")).refused("administratively prohibited")
    guest.ssh("whoami", options=("-o", "RequestTTY=force")).refused("PTY allocation request failed")


@pytest.mark.parametrize(
    ("options", "reason"),
    [
        (("-n", "{name},alice"), "principals"),
        (("-n", "e2e-nobody"), "unknown"),
        (("-n", "root@{name}"), "name"),
        (("-n", "{name}", "-O", "force-command=id"), "critical-option"),
    ],
)
def test_other_certificates_are_refused_with_a_reason(
    cluster: Cluster, authority: Authority, guest: Person, options: tuple[str, ...], reason: str
) -> None:
    host = cluster.first("ssh")
    cursor = host.journal_cursor()
    authority.sign(guest, *(word.format(name=guest.name) for word in options))

    guest.ssh("whoami").refused(DENIED)

    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    assert any(f"event=certificate decision=deny reason={reason} " in line for line in lines), lines


@pytest.mark.parametrize(
    ("options", "valid"),
    [(("-h",), "-5m:+1h"), ((), "-2h:-1h"), ((), "+1h:+2h")],
    ids=["for a host", "expired", "not yet valid"],
)
def test_certificates_that_sshd_itself_refuses(
    authority: Authority, guest: Person, options: tuple[str, ...], valid: str
) -> None:
    authority.sign(guest, *options, principals=guest.name, valid=valid)
    guest.ssh("whoami").refused(DENIED)


def test_a_certificate_of_an_unknown_ca_is_refused(
    cluster: Cluster, guest: Person, tmp_path: Path
) -> None:
    Authority(new_key(tmp_path, "other-ca")).sign(guest, principals=guest.name)
    host = cluster.first("ssh")
    cursor = host.journal_cursor()

    guest.ssh("whoami").refused(DENIED)

    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    assert not any("event=certificate" in line for line in lines), "nobody was asked about it"
