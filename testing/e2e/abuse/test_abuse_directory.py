"""Entries of the directory that contain more than a key, a name or a group."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.abuse.support import NAME_OF_64_KIB
from testing.e2e.command import run, wait_until
from testing.e2e.people import DENIED, Person, fingerprint

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from testing.e2e.abuse.witness import Line, Witness
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = pytest.mark.alone

STORED: Final = {
    "options": 'command="id",no-pty {key}',
    "an environment": 'environment="HGFLEET_USER=alice" {key}',
    "a principal": 'cert-authority,principals="alice" {key}',
    "two lines": "{key}\n{key}",
    "another key's line": "{key}\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAA alice",
    "a line behind": "{key}\n",
    "a carriage return": "{key}\r",
    "NUL": "{key}\0",
    "a tab": "\t{key}",
    "a comment character": "#{key}",
    "another type": "ssh-dss {blob}",
    "a type that lies": "ssh-rsa {blob}",
    "a certificate's type": "ssh-ed25519-cert-v01@openssh.com {blob}",
    "half a key": "ssh-ed25519 {half}",
    "no key": "ssh-ed25519",
    "text": "alice",
    "no text": "{key} \udcff\udcfe",
    "64 KiB of a comment's lines": "{key} " + "x\n" * 32768,
}


@dataclass(frozen=True)
class Entries:
    """Entries that a test makes as the directory's administrator, and removes at its end."""

    host: Host
    replica: Host
    base: str
    made: list[str] = field(default_factory=list)

    def add(self, dn: str, attributes: list[tuple[str, str]]) -> None:
        """Add an entry below the base."""
        lines = [("dn", f"{dn},{self.base}"), *attributes]
        # In base64, since some values are not plain text.
        ldif = "".join(
            f"{name}:: {base64.b64encode(value.encode('utf-8', 'surrogateescape')).decode()}\n"
            for name, value in lines
        )
        self.made.append(dn)
        words = ["ldapadd", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///"]
        self.host.run(*words, stdin=ldif).ok()

    def wait(self) -> None:
        """Wait until the replica of the SSH host has everything that the directory has."""
        status = ["hgfleet", "replica", "status"]
        wait_until("the replica has it", lambda: self.replica.run(*status).ok(), 20)

    def remove(self) -> None:
        """Remove the entries that were made."""
        names = [f"{dn},{self.base}" for dn in self.made]
        words = ["ldapdelete", "-c", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", *names]
        done = self.host.run(*words)
        assert done.code in (0, 32), done  # 32: no such object
        self.made.clear()


@pytest.fixture
def entries(cluster: Cluster) -> Iterator[Entries]:
    """The directory; the entries of the test are removed afterwards."""
    base = cluster.env["HGFLEET_LDAP_BASE"]
    made = Entries(cluster.first("directory"), cluster.first("ssh"), base)
    yield made
    made.remove()
    made.wait()


def person_entry(uid: str, key: str, identity: str) -> list[tuple[str, str]]:
    """Return an entry of a person with a key, which is not named by `uid`, so any `uid` fits."""
    return [
        ("objectClass", "inetOrgPerson"),
        ("objectClass", "ldapPublicKey"),
        ("cn", "Abuse"),
        ("sn", "Abuse"),
        ("uid", uid),
        ("sshPublicKey", key),
        ("sshPublicKeyId", identity),
    ]


@dataclass(frozen=True)
class Stranger:
    """A person whose entry a test has made, and the fingerprint of the key."""

    person: Person
    identity: str


def strangers(
    cluster: Cluster,
    entries: Entries,
    folder: Path,
    stored: Mapping[str, Callable[[str, str], tuple[str, str]]],
) -> dict[str, Stranger]:
    """Make an entry and a key for each input; return the people with the keys.

    An input is a function from the type and the base64 of the public key to the name and the stored
    key.
    """
    made = {}
    for number, (name, values) in enumerate(stored.items()):
        key = folder / f"key-{number}"
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "made", "-f", str(key)]).ok()
        kind, blob = key.with_suffix(".pub").read_text().split()[:2]
        identity = fingerprint(key)
        uid, value = values(kind, blob)
        entries.add(f"cn=Abuse {number},ou=people", person_entry(uid, value, identity))
        made[name] = Stranger(Person("stranger", key, cluster), identity)
    entries.wait()
    return made


def are_refused(witness: Witness, people: Mapping[str, Stranger], reason: str) -> None:
    """Check that each stranger's login is refused for the same reason, before the shell."""

    def send(stranger: Stranger) -> Stranger:
        stranger.person.ssh("whoami").refused(DENIED)
        return stranger

    def check(stranger: Stranger, lines: list[Line]) -> None:
        assert {line.program for line in lines} == {"hgfleet-keys"}, lines
        assert all(line.text.isprintable() for line in lines), lines
        own = [line.text for line in lines if stranger.identity in line.text]
        reasons = {said[1] for line in own if (said := re.search(r" reason=(\S+)", line))}
        assert reasons == {reason}, lines

    witness.try_each(people, send, check, ("hgfleet-keys", "hgfleet-shell"))


def test_a_stored_key_that_is_more_than_a_key_opens_nothing(
    cluster: Cluster, entries: Entries, witness: Witness, tmp_path: Path
) -> None:
    def values(stored: str) -> Callable[[str, str], tuple[str, str]]:
        return lambda kind, blob: (
            "abuse",
            stored.format(key=f"{kind} {blob}", blob=blob, half=blob[:40]),
        )

    inputs = {name: values(stored) for name, stored in witness.chosen(STORED).items()}
    people = strangers(cluster, entries, tmp_path, inputs)

    are_refused(witness, people, "directory-key")


UIDS: Final = {
    "an option": "bob --groups maintainers",
    "a quote": 'bob",command="id" ',
    "a substitution": "$(id)",
    "a command": "bob;id",
    "a line": "bob\nalice",
    "a filter": "bob)(uid=*",
    "a path": "../bob",
    "an operator": "operator:bob",
    "capitals": "Bob",
    "a letter that looks like another": "b\u043eb",
    "a hyphen first": "-bob",
    "64 KiB": NAME_OF_64_KIB,
}


def test_a_stored_name_that_is_none_opens_nothing(
    cluster: Cluster, entries: Entries, witness: Witness, tmp_path: Path
) -> None:
    def values(uid: str) -> Callable[[str, str], tuple[str, str]]:
        return lambda kind, blob: (uid, f"{kind} {blob}")

    inputs = {name: values(uid) for name, uid in witness.chosen(UIDS).items()}
    people = strangers(cluster, entries, tmp_path, inputs)

    are_refused(witness, people, "name")


GROUPS: Final = {
    "two groups": "maintainers,sandbox",
    "an option": "x --user alice",
    "a quote": 'x" --user alice "',
    "a substitution": "$(id)",
    "a line": "x\ny",
    "everybody": "public",
}


def test_a_stored_group_with_a_hostile_name_gives_nothing(
    entries: Entries, bob: Person, witness: Witness
) -> None:
    before = bob.ssh("whoami").ok().stdout
    member = f"uid=bob,ou=people,{entries.base}"

    def send(name: str) -> None:
        group = [("objectClass", "groupOfNames"), ("ou", "Abuse"), ("cn", name), ("member", member)]
        entries.add("ou=Abuse,ou=groups", group)
        try:
            entries.wait()
            assert bob.ssh("whoami").ok().stdout == before
        finally:
            entries.remove()

    def check(_: None, lines: list[Line]) -> None:
        assert lines
        assert all(line.text.isprintable() for line in lines), lines

    witness.try_each(GROUPS, send, check, ("hgfleet-keys",))
