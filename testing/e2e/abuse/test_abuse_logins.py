"""Logins over SSH with hostile names and certificates."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, Final

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import SSHCertificateBuilder, SSHCertificateType

from testing.e2e.abuse.support import NAME_OF_64_KIB
from testing.e2e.command import run
from testing.e2e.people import DENIED, Person

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.abuse.witness import Line, Witness
    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result

pytestmark = pytest.mark.alone

NAMES: Final = {
    "a filter": "bob)(uid=*",
    "a filter of all": "*",
    "another filter": "hg)(|(uid=*",
    "root": "root",
    "a person": "bob",
    "a service": "hgkeys",
    "the break-glass account": "breakglass",
    "nobody": "no-such-user",
    "a line": "hg\nevent=key decision=allow person=alice",
    "colours": "\x1b[31mhg",
    "a blank": "hg ",
    "an option": "-oProxyCommand=id",
    "capitals": "HG",
    "a path": "../hg",
    "a format": "%s%n%u",
    "4 KiB": "x" * 4096,
    "64 KiB": NAME_OF_64_KIB,
}


def test_nobody_enters_by_another_name(cluster: Cluster, bob: Person, witness: Witness) -> None:
    env = cluster.env
    where = ["-o", "LogLevel=ERROR", "-p", env["HGFLEET_SSH_PORT"], env["HGFLEET_SSH_HOST"]]

    def send(name: str) -> Result:
        words = ["ssh", *bob.ssh_options, f"-l{name}", *where, "whoami"]
        return run(words, env=bob.environment).refused()

    def check(said: Result, lines: list[Line]) -> None:
        assert said.stdout == ""
        assert {line.program for line in lines} <= {"sshd", "sshd-session"}, lines
        assert all(line.text.isprintable() for line in lines), lines
        # Some versions of ssh refuse to send some names.
        assert lines or "invalid characters" in said.stderr, said

    programs = ("hgfleet-shell", "hgfleet-keys", "sshd", "sshd-session")
    witness.try_each(NAMES, send, check, programs)


PRINCIPALS: Final = {
    "nobody": "",
    "a filter": "alice)(uid=*",
    "everybody": "*",
    "two people": "alice,bob",
    "a group": "maintainers",
    "the account": "hg",
    "an option": "alice --groups maintainers",
    "a quote": 'alice",command="id',
    "a substitution": "$(id)",
    "capitals": "ALICE",
    "a blank": " alice",
    "a line": "alice\nbob",
    "a NUL": "alice\0bob",
    "a letter that looks like another": "\u0430lice",
    "a disabled person": "mallory",
    "64 KiB": NAME_OF_64_KIB,
}


def certified(key: Path, ca: Path, principals: list[bytes], folder: Path) -> Path:
    """Return a copy of a key with a certificate of a CA, for all names unless it has principals.

    Not made by ssh-keygen, which refuses half of the names.
    """
    public = serialization.load_ssh_public_key(key.with_suffix(".pub").read_bytes())
    signer = serialization.load_ssh_private_key(ca.read_bytes(), None)
    assert isinstance(public, Ed25519PublicKey)
    assert isinstance(signer, Ed25519PrivateKey)
    now = int(time.time())
    everybody: Any = SSHCertificateBuilder().valid_for_all_principals  # has no types
    builder = SSHCertificateBuilder().valid_principals(principals) if principals else everybody()
    certificate = (
        builder.public_key(public)
        .serial(1)
        .type(SSHCertificateType.USER)
        .key_id(b"abuse\nevent=certificate decision=allow")
        .valid_after(now - 60)
        .valid_before(now + 600)
        .sign(signer)
        .public_bytes()
    )
    copy = folder / "certified"
    copy.write_bytes(key.read_bytes())
    copy.chmod(0o600)
    (folder / "certified-cert.pub").write_bytes(certificate + b"\n")
    return copy


def comes_with(cluster: Cluster, key: Path) -> Person:
    """Return a person who is in no directory, with a certified key."""
    return Person("stranger", key, cluster)


def test_a_certificate_for_no_single_person_opens_nothing(
    cluster: Cluster, witness: Witness, made_key: Path, tmp_path: Path
) -> None:
    ca = cluster.person("user-ca").key

    def send(principal: str) -> None:
        names = [part.encode() for part in principal.split(",")] if principal else []
        stranger = comes_with(cluster, certified(made_key, ca, names, tmp_path))
        stranger.ssh("whoami").refused()

    def check(_: None, lines: list[Line]) -> None:
        assert {line.program for line in lines} <= {"hgfleet-keys"}, lines
        assert all("decision=deny" in line.text for line in lines), lines
        assert all(line.text.isprintable() for line in lines), lines

    witness.try_each(PRINCIPALS, send, check, ("hgfleet-shell", "hgfleet-keys"))


def test_a_certificate_of_another_authority_opens_nothing(
    cluster: Cluster, witness: Witness, made_key: Path, tmp_path: Path
) -> None:
    stranger = comes_with(cluster, certified(made_key, made_key, [b"alice"], tmp_path))

    stranger.ssh("whoami").refused(DENIED)

    assert witness.lines("hgfleet-shell") == []


def test_the_same_certificate_with_one_honest_name_opens(
    cluster: Cluster, made_key: Path, tmp_path: Path
) -> None:
    """Show that the refusals above are because of the name, and of nothing else."""
    ca = cluster.person("user-ca").key
    friend = comes_with(cluster, certified(made_key, ca, [b"alice"], tmp_path))

    assert "alice" in friend.ssh("whoami").ok().stdout
