"""Debian 13's SSH clients and hg instead of ours, on a host in the cluster's network.

All three have a post-quantum key exchange, so the profile `strict` accepts them. The oldest that
do: OpenSSH 9.0 (sntrup761, April 2022), PuTTY 0.78 (sntrup761, October 2022), Dropbear 2025.87
(sntrup761 and ML-KEM, March 2025). Anything older needs the profile `compatible`.
"""

from __future__ import annotations

import shlex
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.host import Host
    from testing.e2e.people import Person

REPOSITORY: Final = "e2e/push"

# KEY is the person's key in the program's format, HOSTKEY the host key to trust.
CLIENTS: Final = {
    "openssh": "ssh -F none -o BatchMode=yes -i KEY",
    "dropbear": "dbclient -i KEY.dropbear",
    "putty": "plink -batch -i KEY.ppk -hostkey HOSTKEY",
}


@dataclass(frozen=True)
class Stranger:
    """A person at the client host, with one of the SSH programs."""

    host: Host
    name: str
    ssh: str

    def hg(self, *words: str) -> Result:
        """Run Debian's hg."""
        given = ["--config", f"ui.ssh={self.ssh}", "--config", f"ui.username={self.name}"]
        return self.host.run("hg", *given, *words)

    def say(self, command: str, server: str) -> Result:
        """Run a command of the service."""
        return self.host.run(
            "sh", "-c", f"{self.ssh} hg@{server} {shlex.quote(command)} </dev/null"
        )


@pytest.fixture(scope="module")
def server(cluster: Cluster, client_host: Host) -> str:
    """Name of the SSH host in the cluster's network; the client host knows its keys."""
    name = cluster.first("ssh").name
    keys = cluster.first("ssh").shell("cat /etc/hgfleet/ssh/*.pub").splitlines()
    known = "".join(f"{name} {' '.join(key.split()[:2])}\n" for key in keys)
    client_host.run("sh", "-ec", "mkdir -p ~/.ssh; cat >~/.ssh/known_hosts", stdin=known).ok()
    return name


def stranger(cluster: Cluster, host: Host, person: str, program: str) -> Stranger:
    """Copy a person's key to the client host, in the format of each program."""
    key = f"/root/{person}"
    private = cluster.person(person).key.read_text()
    host.run("sh", "-ec", f"umask 077; cat >{key}", stdin=private).ok()
    host.shell(f"dropbearconvert openssh dropbear {key} {key}.dropbear 2>&1")
    host.shell(f"puttygen {key} -O private -o {key}.ppk")
    host_key = host.shell(
        "ssh-keygen -l -f ~/.ssh/known_hosts | awk '/ED25519/ {print $2}'"
    ).strip()
    return Stranger(host, person, CLIENTS[program].replace("HOSTKEY", host_key).replace("KEY", key))


@pytest.mark.parametrize("program", CLIENTS)
def test_clone_and_push_work_with_another_client_and_another_hg(
    cluster: Cluster, client_host: Host, server: str, program: str
) -> None:
    alice = stranger(cluster, client_host, "alice", program)
    place = f"/root/{program}-{uuid.uuid4().hex}"

    alice.hg("clone", f"ssh://hg@{server}/{REPOSITORY}", place).ok()
    client_host.shell(f"date +%N >{place}/{program}.txt")
    alice.hg("-R", place, "commit", "--addremove", "-m", f"with {program}").ok()
    node = alice.hg("-R", place, "log", "-r", ".", "-T", "{node}").ok().stdout
    alice.hg("-R", place, "push", "--force").ok()

    assert node in cluster.remote_heads(REPOSITORY)


@pytest.mark.parametrize("program", CLIENTS)
def test_another_client_shows_who_may_push(
    cluster: Cluster, client_host: Host, server: str, program: str
) -> None:
    bob = stranger(cluster, client_host, "bob", program)
    place = f"/root/{program}-{uuid.uuid4().hex}"
    before = cluster.remote_heads(REPOSITORY)

    bob.hg("clone", f"ssh://hg@{server}/{REPOSITORY}", place).ok()
    client_host.shell(f"date +%N >{place}/bob.txt")
    bob.hg("-R", place, "commit", "--addremove", "-m", "try it").ok()

    bob.hg("-R", place, "push", "--force").refused(f"bob may not push to {REPOSITORY}")
    assert cluster.remote_heads(REPOSITORY) == before


@pytest.mark.parametrize("program", CLIENTS)
def test_another_client_gets_words_and_no_shell(
    cluster: Cluster, client_host: Host, server: str, program: str
) -> None:
    bob = stranger(cluster, client_host, "bob", program)

    assert "bob" in bob.say("whoami", server).ok().stdout.splitlines()[0]
    bob.say("id", server).refused("is not a command of this service")


def test_a_client_without_post_quantum_key_exchange_is_told_so(bob: Person) -> None:
    bob.ssh("whoami", options=["-o", "KexAlgorithms=curve25519-sha256"]).refused(
        "no matching key exchange method found"
    )
