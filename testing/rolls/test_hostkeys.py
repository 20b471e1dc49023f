"""SSH clients that connect occasionally do not notice that a host key is replaced."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

import pytest

from controller.bootstrap import ROOT
from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

FOLDER: Final = "/etc/hgfleet/ssh"
PLAYBOOK: Final = str(ROOT / "ansible/playbooks/rotate-hostkeys.yml")
PAUSE_SECONDS: Final = 2.0
SECONDS: Final = 600


@dataclass
class Client:
    """A client with a known_hosts file of its own, which it keeps up to date."""

    cluster: Cluster
    known_hosts: Path
    failed: list[str] = field(default_factory=list)
    number: int = 0

    def ssh(self) -> Result:
        """Connect once; an unknown host key ends the connection."""
        return self.cluster.person("alice").ssh("whoami", options=["-o", "UpdateHostKeys=yes"])

    def known(self) -> set[str]:
        """Return the host keys that the client knows."""
        return {line.split()[2] for line in self.known_hosts.read_text().splitlines()}

    def go_on(self, stop: threading.Event) -> None:
        """Connect again and again."""
        while not stop.wait(PAUSE_SECONDS):
            done = self.ssh()
            if done.code or "WARNING" in done.stderr:
                self.failed.append(str(done))
            self.number += 1


def rotate(cluster: Cluster, *options: str) -> Result:
    """Run the playbook to its end."""
    return cluster.ansible("ansible-playbook", *options, PLAYBOOK, seconds=SECONDS)


def public(host: Host, name: str) -> str:
    """Return a public host key, in base64."""
    return host.shell(f"cat {FOLDER}/{name}.pub").split()[1]


def published(cluster: Cluster) -> set[str]:
    """Return the keys that the web hosts publish for new clients."""
    page = cluster.get(".well-known/ssh-known-hosts")
    assert page.status == 200, page
    return {line.split()[2] for line in page.body.splitlines()}


@pytest.fixture
def host(cluster: Cluster) -> Iterator[Host]:
    """The ssh host; it and its standby have their host keys again afterwards."""
    hosts = cluster.all("ssh")
    before = {host.name: public(host, "host_ed25519") for host in hosts}
    copy = f"cp -p {FOLDER}/host_ed25519"
    for host in hosts:
        host.shell(f"{copy} {FOLDER}/test_ed25519; {copy}.pub {FOLDER}/test_ed25519.pub")
    try:
        yield hosts[0]
    finally:
        # A rotation to the former key, which counts as published in any state that a test leaves.
        move = f"mv -f {FOLDER}/test_ed25519"
        for host in hosts:
            host.shell(
                f"{move} {FOLDER}/next_ed25519; {move}.pub {FOLDER}/next_ed25519.pub;"
                f" touch {FOLDER}/known_hosts"
            )
        rotate(cluster, "--extra-vars=rotate_days=0").ok()
        assert {host.name: public(host, "host_ed25519") for host in hosts} == before


def client_of(cluster: Cluster, file: Path) -> Client:
    """Return a client that knows the keys of the cluster."""
    name = f"[{cluster.env['HGFLEET_SSH_HOST']}]:{cluster.env['HGFLEET_SSH_PORT']}"
    host = cluster.first("ssh")
    keys = [host.shell(f"cat {FOLDER}/host_{kind}.pub") for kind in ("ed25519", "rsa")]
    file.write_text("".join(f"{name} {' '.join(key.split()[:2])}\n" for key in keys))
    return Client(replace(cluster, env={**cluster.env, "HGFLEET_KNOWN_HOSTS": str(file)}), file)


def test_a_client_learns_the_next_key_and_meets_it_without_a_warning(
    cluster: Cluster, host: Host, tmp_path: Path
) -> None:
    client = client_of(cluster, tmp_path / "known_hosts")
    absent = client_of(cluster, tmp_path / "absent")
    before, rsa = public(host, "host_ed25519"), public(host, "host_rsa")
    stop = threading.Event()
    thread = threading.Thread(target=client.go_on, args=[stop])
    thread.start()
    try:
        rotate(cluster).ok()
        following = public(host, "next_ed25519")
        assert public(host, "host_ed25519") == before
        assert {before, following, rsa} <= published(cluster)
        wait_until("the client has learnt it", lambda: following in client.known(), 60)

        early = rotate(cluster)
        early.refused()
        assert "Clients have 14 days left to learn it" in " ".join(early.output.split())
        assert public(host, "host_ed25519") == before

        rotate(cluster, "--extra-vars=rotate_days=0").ok()
        assert public(host, "host_ed25519") == following
        assert {following, rsa} <= published(cluster)
        assert before not in published(cluster)
        wait_until("the client has dropped the former", lambda: before not in client.known(), 60)
        assert client.known() == {following, rsa}
    finally:
        stop.set()
        thread.join()
    assert client.failed == []
    assert client.number > 5
    absent.ssh().refused("REMOTE HOST IDENTIFICATION HAS CHANGED")
