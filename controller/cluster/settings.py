"""Name, network and ports of this checkout's cluster: from its path, in .cluster/settings.json."""

from __future__ import annotations

import hashlib
import json
import secrets
import socket
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import ROOT, STATE

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

# Order of the ports in a cluster's block. Append only: people's bookmarks hold the numbers.
PORT_NAMES = ("https", "http", "ssh", "ldap", "s3", "metrics", "admin_ssh", "s3_2", "cdn")
BLOCK_SIZE = 10
FIRST_PORT = 21000
BLOCKS = 900
NETWORKS = 200
FIRST_NETWORK = 20


@dataclass(frozen=True)
class Settings:
    """Name, network, ports and identity, which differ between checkouts."""

    name: str
    network: str  # the first three numbers of a /24, such as 10.213.7
    first_port: int
    # Random: a label of containers, and in the key of snapshots. Snapshots of a deleted checkout at
    # the same path have other secrets and must not be used.
    identity: str

    def port(self, name: str) -> int:
        """Return the port on 127.0.0.1 under which `name` is published."""
        return self.first_port + PORT_NAMES.index(name)


def name_of(checkout: str) -> str:
    """Return the name of the cluster of the checkout at a path."""
    return f"hgfleet-{hashlib.sha256(checkout.encode()).hexdigest()[:6]}"


def is_container_of(cluster: Settings, container: str) -> bool:
    """Tell whether a container is a host of a cluster, and not of its tests of roles."""
    name = cluster.name
    return container.startswith(f"{name}-") and not container.startswith(f"{name}-roles-")


def foreign_hosts(identities: Mapping[str, str], known: Settings | None) -> list[str]:
    """Return the hosts that another checkout at this path made, before it was deleted.

    `identities` has the identity of each container under this cluster's name, "" for a container
    from before there were identities; `known` are the settings of this checkout, None before its
    first `up`.
    """
    mine = ("", known.identity) if known else ()
    return sorted(host for host, identity in identities.items() if identity not in mine)


def candidate_order(seed: str, count: int) -> list[int]:
    """Return 0 .. count-1, beginning where `seed` says, so that checkouts seldom collide."""
    start = int.from_bytes(hashlib.sha256(seed.encode()).digest()[:4], "big") % count
    return [(start + i) % count for i in range(count)]


def choose(
    checkout: str, taken_networks: frozenset[str], block_free: Callable[[int], bool]
) -> Settings:
    """Choose name, network and ports, given the engine's networks and a test of a block's port."""
    networks = (f"10.213.{FIRST_NETWORK + i}" for i in candidate_order(checkout, NETWORKS))
    network = next((n for n in networks if n not in taken_networks), None)
    blocks = (FIRST_PORT + i * BLOCK_SIZE for i in candidate_order(checkout, BLOCKS))
    first_port = next((p for p in blocks if block_free(p)), None)
    if network is None or first_port is None:
        bootstrap.fail(
            "Every network or port block of local clusters is taken.",
            "Take clusters down: ./cluster down in each.",
        )
    return Settings(name_of(checkout), network, first_port, "")


def is_free(port: int) -> bool:
    """Tell whether a TCP port on 127.0.0.1 can be bound now."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
    return True


def block_is_free(first_port: int) -> bool:
    """Tell whether every port of the block that begins at `first_port` can be bound now."""
    return all(is_free(first_port + i) for i in range(len(PORT_NAMES)))


def _networks_in_use() -> frozenset[str]:
    listed = bootstrap.run(["docker", "network", "ls", "--quiet"], what="Listing networks").split()
    template = "{{range .IPAM.Config}}{{.Subnet}} {{end}}"
    subnets: set[str] = set()
    if listed:
        shown = bootstrap.run(
            ["docker", "network", "inspect", "--format", template, *listed],
            what="Reading the networks",
        )
        subnets = {subnet.rpartition(".")[0] for subnet in shown.split()}
    return frozenset(subnets)


def load() -> Settings | None:
    """Return the settings of this checkout's cluster, or None before the first `up`."""
    try:
        return Settings(**json.loads((STATE / "settings.json").read_text()))
    except FileNotFoundError:
        return None
    except (ValueError, TypeError) as error:
        bootstrap.fail(
            f"{STATE / 'settings.json'} is damaged ({error}).",
            "Remove that file, then: ./cluster up --fresh",
        )


def _save(settings: Settings) -> None:
    STATE.mkdir(exist_ok=True)
    new = STATE / "settings.json.new"
    new.write_text(json.dumps(asdict(settings), indent=2) + "\n")
    new.replace(STATE / "settings.json")


def ensure(running: bool) -> Settings:
    """Return the settings, made on first use; unless `running`, ports taken by others change."""
    known = load()
    if known is not None and (running or block_is_free(known.first_port)):
        return known
    chosen = choose(str(ROOT), frozenset() if known else _networks_in_use(), block_is_free)
    if known is not None:
        bootstrap.Step.say(
            "ports",
            f"{known.first_port} and up are in use; taking {chosen.first_port} and up instead",
        )
        chosen = Settings(known.name, known.network, chosen.first_port, known.identity)
    else:
        chosen = Settings(chosen.name, chosen.network, chosen.first_port, secrets.token_hex(8))
    _save(chosen)
    return chosen


def state_folder(name: str) -> Path:
    """Return a private folder of the cluster's state, made on first use."""
    folder = STATE / name
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder
