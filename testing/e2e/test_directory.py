"""People change in one place and every login sees it: the provider and the replica of a host."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.directory import publickey
from testing.e2e.command import run, wait_until
from testing.e2e.people import Person

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

SECONDS = 2.0
"""Within which a replica has a change of the provider."""

STALE = "/run/hgfleet/directory-stale"
CHECK = "hgfleet-replica-check.service"


class Directory:
    """The directory as root sees it on one host, through the socket."""

    def __init__(self, cluster: Cluster, host: Host) -> None:
        self.host = host
        self.suffix = cluster.env["HGFLEET_LDAP_BASE"]

    def dn(self, person: str) -> str:
        """Return the entry of a person."""
        return f"uid={person},ou=people,{self.suffix}"

    def modify(self, person: str, *lines: str) -> None:
        """Change a person's entry; lines of LDIF."""
        ldif = "\n".join([f"dn: {self.dn(person)}", "changetype: modify", *lines, ""])
        words = ("ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///")
        self.host.run(*words, stdin=ldif).ok()

    def values(self, base: str, attribute: str) -> list[str]:
        """Return the values of an attribute of one entry."""
        words = ("ldapsearch", "-Q", "-LLL", "-o", "ldif-wrap=no", "-Y", "EXTERNAL")
        told = self.host.run(*words, "-H", "ldapi:///", "-b", base, "-s", "base", attribute).ok()
        name = f"{attribute}: "
        return [line[len(name) :] for line in told.stdout.splitlines() if line.startswith(name)]

    def add_key(self, person: str, key: publickey.PublicKey) -> None:
        """Give a person a further key."""
        self.modify(
            person,
            *("add: sshPublicKey", f"sshPublicKey: {key.type} {key.blob}", "-"),
            *("add: sshPublicKeyId", f"sshPublicKeyId: {key.fingerprint}"),
        )

    def remove_key(self, person: str, key: publickey.PublicKey) -> None:
        """Take it away again."""
        self.modify(
            person,
            *("delete: sshPublicKey", f"sshPublicKey: {key.type} {key.blob}", "-"),
            *("delete: sshPublicKeyId", f"sshPublicKeyId: {key.fingerprint}"),
        )

    def has_key(self, person: str, key: publickey.PublicKey) -> bool:
        """Tell whether this server knows the key."""
        return key.fingerprint in self.values(self.dn(person), "sshPublicKeyId")


@pytest.fixture
def provider(cluster: Cluster) -> Directory:
    """The server on which people are changed."""
    return Directory(cluster, cluster.first("directory"))


@pytest.fixture
def replica(cluster: Cluster) -> Directory:
    """Its copy on the ssh host."""
    return Directory(cluster, cluster.first("ssh"))


@pytest.fixture
def laptop(
    cluster: Cluster, provider: Directory, tmp_path: Path
) -> Iterator[tuple[Person, publickey.PublicKey]]:
    """A key of bob's that the directory does not know; removed again afterwards."""
    private = tmp_path / "laptop"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", str(private)]).ok()
    public = publickey.parse(" ".join(private.with_suffix(".pub").read_text().split()[:2]))
    yield Person("bob", private, cluster), public
    if provider.has_key("bob", public):
        provider.remove_key("bob", public)


def check(host: Host) -> int:
    """Run the check of the replica as its timer would; return how it ended."""
    host.systemctl("start", CHECK)
    shown = host.systemctl("show", "--value", "--property=ExecMainStatus", CHECK).ok()
    return int(shown.stdout)


def sources(host: Host, cursor: str) -> set[str]:
    """Return which servers the key lookup has had its answers from."""
    lines = host.journal_after(cursor, "--identifier=hgfleet-keys")
    words = (word for line in lines for word in line.split())
    return {word.removeprefix("source=") for word in words if word.startswith("source=")}


def test_both_have_the_same_newest_change_and_people_are_looked_up_on_their_host(
    provider: Directory, replica: Directory, alice: Person
) -> None:
    newest = provider.values(provider.suffix, "contextCSN")
    assert newest
    wait_until(
        "the replica is as new",
        lambda: replica.values(replica.suffix, "contextCSN") == newest,
        SECONDS,
    )
    cursor = replica.host.journal_cursor()
    alice.ssh("whoami").ok()
    (source,) = sources(replica.host, cursor)
    assert source.startswith("ldapi://")


def test_without_the_provider_people_get_in_and_nothing_is_called_stale(
    provider: Directory,
    replica: Directory,
    alice: Person,
    cluster: Cluster,
    stopped: Callable[[str, str], None],
) -> None:
    assert check(replica.host) == 0
    stopped("directory", "slapd.service")
    assert check(replica.host) == 75
    told = replica.host.run("hgfleet", "replica", "status")
    assert told.code == 75
    assert "provider-unreachable: " in told.stdout
    assert replica.host.run("test", "-e", STALE).code != 0
    failed = replica.host.systemctl("is-failed", CHECK).stdout.strip()
    assert failed != "failed", "the provider's absence is not this host's alarm"
    cursor = replica.host.journal_cursor()
    alice.ssh("whoami").ok()
    cluster.person("mallory").ssh("whoami").refused("Permission denied")
    assert all(source.startswith("ldapi://") for source in sources(replica.host, cursor))
    provider.host.systemctl("start", "slapd.service").ok()
    wait_until("both agree again", lambda: check(replica.host) == 0)


def test_without_its_replica_a_host_asks_the_provider(
    replica: Directory, alice: Person, stopped: Callable[[str, str], None]
) -> None:
    stopped("ssh", "slapd.service")
    cursor = replica.host.journal_cursor()
    alice.ssh("whoami").ok()
    (source,) = sources(replica.host, cursor)
    assert source.startswith("ldaps://")
    assert check(replica.host) == 69
    replica.host.systemctl("start", "slapd.service").ok()
    wait_until("the replica is back", lambda: check(replica.host) == 0)
    assert replica.host.run("test", "-e", STALE).code != 0


@pytest.fixture
def shut_out(provider: Directory, replica: Directory) -> Iterator[None]:
    """The provider refuses the replica's account, and the replica has to connect anew."""
    account = f"cn=replica,ou=services,{provider.suffix}"
    words = ("ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///")
    found = provider.host.run(
        *("slapcat", "-n", "1", "-o", "ldif-wrap=no", "-a", "(cn=replica)")
    ).ok()
    (kept,) = (line for line in found.stdout.splitlines() if line.startswith("userPassword::"))

    def set_password(line: str) -> None:
        ldif = f"dn: {account}\nchangetype: modify\nreplace: userPassword\n{line}\n"
        provider.host.run(*words, stdin=ldif).ok()

    set_password("userPassword: another-password-of-today")
    try:
        replica.host.systemctl("restart", "slapd.service").ok()
        yield
    finally:
        set_password(kept)
        replica.host.systemctl("restart", "slapd.service").ok()
        wait_until("the replica follows again", lambda: check(replica.host) == 0)


@pytest.mark.usefixtures("shut_out")
def test_a_replica_that_cannot_follow_is_an_alarm_and_is_not_believed(
    provider: Directory, replica: Directory, laptop: tuple[Person, publickey.PublicKey]
) -> None:
    assert check(replica.host) == 77
    assert replica.host.systemctl("is-failed", CHECK).stdout.strip() == "failed"
    assert replica.host.run("test", "-e", STALE).code == 0
    person, key = laptop
    provider.add_key("bob", key)
    cursor = replica.host.journal_cursor()
    assert not replica.has_key("bob", key)
    person.ssh("whoami").ok()
    provider.remove_key("bob", key)
    person.ssh("whoami").refused("Permission denied")
    assert all(source.startswith("ldaps://") for source in sources(replica.host, cursor))
