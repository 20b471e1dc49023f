"""Promotion of a mirror of the cluster, for fault tests and benchmarks."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

PLAYBOOK: Final = "ansible/playbooks/promote.yml"
SECONDS_FOR_A_PLAY: Final = 900


def promote(cluster: Cluster, host: Host) -> str:
    """Run the playbook; return its output."""
    words = [PLAYBOOK, "-e", f"promote_to={host.name}"]
    return cluster.ansible("ansible-playbook", *words, seconds=SECONDS_FOR_A_PLAY).ok().stdout


def towards(person: Person, host: Host, folder: Path) -> Person:
    """Return the person with SSH options that lead to a host and trust its key."""
    address = person.cluster.address(host)
    known_hosts = folder / f"known_hosts.{host.name}"
    key = host.shell("cat /etc/hgfleet/ssh/host_ed25519.pub").split()
    known_hosts.write_text(f"{address} {key[0]} {key[1]}\n")
    env = {
        **person.cluster.env,
        "HGFLEET_SSH_HOST": address,
        "HGFLEET_SSH_PORT": "22",
        "HGFLEET_KNOWN_HOSTS": str(known_hosts),
    }
    return replace(person, cluster=replace(person.cluster, env=env))
