"""Entries of the directory that are more than a key, a name or a group."""

from __future__ import annotations

import base64
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.abuse.support import NAME_OF_64_KIB
from testing.e2e.command import wait_until
from testing.e2e.people import DENIED, Person, fingerprint

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.abuse.support import Witness
    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
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
    """Entries of the directory that a test makes as its administrator; they go afterwards."""

    host: Host
    base: str

    def add(self, dn: str, attributes: list[tuple[str, str]]) -> Result:
        """Add an entry below the base."""
        lines = [("dn", f"{dn},{self.base}"), *attributes]
        # In base64, as LDIF has values that are not plain text.
        ldif = "".join(
            f"{name}:: {base64.b64encode(value.encode('utf-8', 'surrogateescape')).decode()}\n"
            for name, value in lines
        )
        return self.host.run("ldapadd", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", stdin=ldif)

    def remove(self, dn: str) -> None:
        """Remove an entry, if it is there."""
        words = ["ldapdelete", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", f"{dn},{self.base}"]
        done = self.host.run(*words)
        assert done.code in (0, 32), done  # 32: no such object


@pytest.fixture
def entries(cluster: Cluster) -> Iterator[Entries]:
    """The directory; the entries of the test are removed afterwards."""
    found = Entries(cluster.first("directory"), cluster.env["HGFLEET_LDAP_BASE"])
    yield found
    found.remove("cn=Abuse,ou=people")
    found.remove("ou=Abuse,ou=groups")


def person_entry(uid: str, key: str, identity: str) -> list[tuple[str, str]]:
    """Return a person with a key; the name of the entry is another, so that any `uid` fits."""
    return [
        ("objectClass", "inetOrgPerson"),
        ("objectClass", "ldapPublicKey"),
        ("cn", "Abuse"),
        ("sn", "Abuse"),
        ("uid", uid),
        ("sshPublicKey", key),
        ("sshPublicKeyId", identity),
    ]


def denials(witness: Witness, identity: str) -> list[str]:
    """Return the reasons of the lookups of a key."""
    lines = [line.text for line in witness.lines("hgfleet-keys") if identity in line.text]
    assert all(line.isprintable() for line in lines), lines
    return [found[1] for line in lines if (found := re.search(r" reason=(\S+)", line))]


def wait_for_reason(stranger: Person, witness: Witness, reason: str) -> None:
    """Try until the replica has the entry; every try has to be refused."""
    identity = fingerprint(stranger.key)

    def tried() -> bool:
        stranger.ssh("whoami").refused(DENIED)
        return denials(witness, identity)[-1] == reason

    wait_until(f"the lookup says {reason}", tried, 20)


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_a_stored_key_that_is_more_than_a_key_opens_nothing(
    cluster: Cluster, entries: Entries, witness: Witness, made_key: Path, stored: str
) -> None:
    kind, blob = made_key.with_suffix(".pub").read_text().split()[:2]
    value = stored.format(key=f"{kind} {blob}", blob=blob, half=blob[:40])
    entry = person_entry("abuse", value, fingerprint(made_key))
    entries.add("cn=Abuse,ou=people", entry).ok()

    wait_for_reason(Person("stranger", made_key, cluster), witness, "directory-key")

    assert witness.lines("hgfleet-shell") == []


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


@pytest.mark.parametrize("uid", UIDS.values(), ids=UIDS)
def test_a_stored_name_that_is_none_opens_nothing(
    cluster: Cluster, entries: Entries, witness: Witness, made_key: Path, uid: str
) -> None:
    key = " ".join(made_key.with_suffix(".pub").read_text().split()[:2])
    entries.add("cn=Abuse,ou=people", person_entry(uid, key, fingerprint(made_key))).ok()

    wait_for_reason(Person("stranger", made_key, cluster), witness, "name")

    assert witness.lines("hgfleet-shell") == []


@pytest.mark.parametrize(
    "name",
    ["maintainers,sandbox", "x --user alice", 'x" --user alice "', "$(id)", "x\ny", "public"],
)
def test_a_stored_group_with_a_hostile_name_gives_nothing(
    cluster: Cluster, entries: Entries, bob: Person, witness: Witness, name: str
) -> None:
    before = bob.ssh("whoami").ok().stdout
    member = f"uid=bob,ou=people,{entries.base}"
    group = [("objectClass", "groupOfNames"), ("ou", "Abuse"), ("cn", name), ("member", member)]
    entries.add("ou=Abuse,ou=groups", group).ok()
    status = ["hgfleet", "replica", "status"]
    wait_until("the replica has it", lambda: cluster.first("ssh").run(*status).ok(), 20)

    assert bob.ssh("whoami").ok().stdout == before
    assert all(line.text.isprintable() for line in witness.lines("hgfleet-keys"))
