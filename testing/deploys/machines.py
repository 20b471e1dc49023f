"""Blank machines: Debian 13 with sshd, sudo and the account `deploy`, on a network of their own."""

from __future__ import annotations

import json
import subprocess
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller import bootstrap
from controller.bootstrap import ROOT, run
from controller.cluster import inotify

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

ACCOUNT: Final = "deploy"
ADMIN_PORTS: Final = (22, 2222)
"""The ports of the administrators' sshd: before the first deploy, and after it."""

# Each machine makes its own host keys, as an installation does.
PREPARE: Final = f"""
rm -f /etc/ssh/ssh_host_*
ssh-keygen -q -A
useradd --create-home --shell /bin/bash {ACCOUNT}
echo '{ACCOUNT} ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/{ACCOUNT}
install -d -m 700 -o {ACCOUNT} -g {ACCOUNT} /home/{ACCOUNT}/.ssh
cat > /home/{ACCOUNT}/.ssh/authorized_keys
chown {ACCOUNT}: /home/{ACCOUNT}/.ssh/authorized_keys
systemctl restart ssh
cat /etc/ssh/ssh_host_ed25519_key.pub
"""


@dataclass(frozen=True)
class Machines:
    """The machines of an inventory: containers on a network of the same name."""

    name: str
    network: str  # the first three numbers of a /24, such as 10.215.7
    inventory: Path

    def container(self, host: str) -> str:
        """Return the container of a host of the inventory."""
        return f"{self.name}-{host}"

    def start(self, image: str, hosts: Sequence[str]) -> None:
        """Replace the machines by new containers of an image, and wait until they have booted."""
        self.remove()
        inotify.ensure(len(hosts))
        extra = {
            "cluster_name": self.name,
            "cluster_network": self.network,
            "cluster_images": {"base": image},
            "ansible_connection": "local",
        }
        command = ["ansible-playbook", "-i", str(self.inventory), "docker/containers.yml"]
        run(
            [*command, "--extra-vars", json.dumps(extra)],
            what="Starting blank machines",
            env=bootstrap.controller_environment(),
            cwd=ROOT,
        )

    def prepare(self, hosts: Iterable[str], public_key: str) -> dict[str, str]:
        """Create the account with a public key; return the public host key of each machine."""
        keys = {}
        for host in hosts:
            said = run(
                ["docker", "exec", "--interactive", self.container(host), "sh", "-ec", PREPARE],
                what=f"Preparing {host}",
                stdin=public_key.encode(),
            )
            keys[host] = " ".join(said.splitlines()[-1].split()[:2])
        return keys

    def started(self) -> list[str]:
        """Return the hosts that have a machine, even if the inventory no longer names them."""
        label = f"label=hgfleet.cluster={self.name}"
        shown = ["--filter", label, "--format", '{{.Label "hgfleet.host"}}']
        return sorted(run(["docker", "ps", *shown], what="Listing machines").split())

    def remove(self) -> None:
        """Remove the machines and their network."""
        label = f"label=hgfleet.cluster={self.name}"
        listed = run(["docker", "ps", "--all", "--quiet", "--filter", label], what="Listing")
        if listed.split():
            run(["docker", "rm", "--force", "--volumes", *listed.split()], what="Removing machines")
        subprocess.run(["docker", "network", "rm", self.name], capture_output=True, check=False)
