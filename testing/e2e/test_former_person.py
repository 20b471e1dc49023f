"""A person is deleted, and another person gets the name, but nothing of the former person."""

from __future__ import annotations

import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import run, wait_until
from testing.e2e.people import Person, basic

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

HGFLEET: Final = "/opt/hgfleet/current/bin/hgfleet"
PASSWORDS: Final = ("of-the-former-person", "of-the-later-person")
LATER_KEY: Final = "later"
SECONDS_UNTIL_KNOWN: Final = 10
"""A change reaches a replica in milliseconds, and hgfleet-auth remembers a person for a second."""


@dataclass(frozen=True)
class Name:
    """A name that two people have in turn, and the host of their directory."""

    text: str
    cluster: Cluster
    folder: Path

    @property
    def directory(self) -> Host:
        return self.cluster.first("directory")

    def add(self, key: str, password: str) -> Person:
        """Make an entry of the name with a new key; return the person, who can log in."""
        place = self.folder / key
        run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", key, "-f", str(place)]).ok()
        public = place.with_suffix(".pub").read_text()
        words = ("person", "add", self.text, "--key", "-", "--group", "sandbox")
        self.directory.run(HGFLEET, *words, stdin=public).ok()
        self.directory.run(HGFLEET, "person", "password", self.text, stdin=f"{password}\n").ok()
        person = Person(self.text, place, self.cluster)
        wait_until("the person gets in", lambda: person.ssh("whoami").code == 0, 20)
        return person

    def delete(self) -> None:
        """Delete the entry, as a play does for a person who is no longer declared."""
        self.directory.run(HGFLEET, "person", "group", "remove", self.text, "sandbox").ok()
        dn = f"uid={self.text},ou=people,{self.cluster.env['HGFLEET_LDAP_BASE']}"
        words = ("ldapdelete", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", dn)
        self.directory.run(*words).ok()


@pytest.fixture
def name(cluster: Cluster, tmp_path: Path) -> Iterator[Name]:
    """A name of this test; its person and repositories are deleted afterwards."""
    made = Name(f"e2e-{uuid.uuid4().hex[:12]}", cluster, tmp_path)
    yield made
    host = cluster.first("ssh")
    listed = host.run(HGFLEET, "repo", "list", f"people/{made.text}/*").ok().stdout.splitlines()
    for path in [line.split()[0] for line in listed[1:]]:
        host.run(HGFLEET, "repo", "archive", path)
        host.run(HGFLEET, "repo", "purge", "--now", path, path).ok()
    made.delete()


def test_a_person_who_gets_a_former_name_owns_nothing_of_the_former_person(
    cluster: Cluster, name: Name, tmp_path: Path
) -> None:
    host = cluster.first("ssh")
    secret_path, tool_path = f"people/{name.text}/secret", f"people/{name.text}/tool"
    file = f"{secret_path}/raw-file/tip/plan.txt"

    def status(secret: str, path: str = file) -> int:
        return cluster.get(path, headers=basic(name.text, secret)).status

    former = name.add("former", PASSWORDS[0])
    former.ssh("repo", "create", "--read", "private", secret_path).ok()
    former.ssh("repo", "create", tool_path).ok()
    work = former.clone(former.ssh_url(secret_path), tmp_path / "work")
    work.commit("plan.txt", b"of the former person", "make plans")
    work.hg("push").ok()
    made = former.ssh("token", "create", "--days", "1", "end-to-end", "test").ok().stdout
    token = made.partition("\n")[0]
    wait_until("the former person reads", lambda: status(token) == status(PASSWORDS[0]) == 200)

    name.delete()
    later = name.add(LATER_KEY, PASSWORDS[1])

    # Over SSH, the repository is missing like any other name, and neither listed nor counted.
    later.hg("clone", later.ssh_url(secret_path), str(tmp_path / "x")).refused("no repository")
    assert later.ssh("repo", "list", "--mine").ok().stdout == "No repositories.\n"
    assert secret_path not in later.ssh("repo", "list").ok().stdout
    assert "(0 of 5 used)" in later.ssh("whoami").ok().stdout
    assert "You have no tokens" in later.ssh("token", "list").ok().stdout
    later.ssh("repo", "create", secret_path).refused("still belongs to another person")
    # The public repository can be read, not written.
    public = later.clone(later.ssh_url(tool_path), tmp_path / "public")
    public.commit("x", b"x", "not mine")
    public.hg("push").refused(f"another person of the name {name.text}")
    # Over HTTPS, the former token and password are refused, and the new password reads nothing.
    wait_until(
        "the later person signs in and reads nothing",
        lambda: status(PASSWORDS[1]) == 404,
        SECONDS_UNTIL_KNOWN,
    )
    assert status(token) == status(PASSWORDS[0]) == 401
    assert status(PASSWORDS[1], "api/repositories") == 200

    # Operators see the former owner, and give the repository away.
    shown = host.run(HGFLEET, "repo", "info", secret_path).ok().stdout
    assert f"{name.text} (another person than today's {name.text})" in shown
    assert f"{name.text}: 2 repositories, 1 tokens; another person" in (
        host.run(HGFLEET, "owners").ok().stdout
    )
    host.run(HGFLEET, "repo", "give", secret_path, name.text).ok()
    given = later.clone(later.ssh_url(secret_path), tmp_path / "given")
    assert (given.path / "plan.txt").read_bytes() == b"of the former person"
    wait_until("mirrors know the owner", lambda: status(PASSWORDS[1]) == 200)
    assert status(token) == 401

    # An operator binds everything of a name, tokens too: the same person has a new entry.
    host.run(HGFLEET, "owners", "bind", name.text).ok()
    wait_until("the token works again", lambda: status(token) == 200)
    later.ssh("repo", "describe", tool_path, "mine").ok()
