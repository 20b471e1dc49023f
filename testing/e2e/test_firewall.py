"""Every host lets in what the table of ports says, from those it names, and nothing else.

Each host tells its listeners (`ss`). Each other host, a client in the cluster's network and this
machine then connect to all of these ports, and to some on which nothing should listen.
"""

from __future__ import annotations

import importlib.util
import ipaddress
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import pytest
from bootstrap import ROOT

from testing.e2e.command import run

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = pytest.mark.alone

CLOSED: Final = (21, 23, 25, 111, 389, 873, 2375, 3306, 5432, 6379, 8000, 8080, 8222, 9100, 50000)
"""Ports of other programs, LDAP without TLS and the monitoring of NATS among them."""

# Connects to all at the same time; prints those that were accepted.
PROBE: Final = """
import asyncio, json, sys
async def is_open(address, port):
    try:
        _, writer = await asyncio.wait_for(asyncio.open_connection(address, port), 5)
    except (OSError, asyncio.TimeoutError):
        return False
    writer.close()
    return True
async def main():
    pairs = json.load(sys.stdin)
    found = await asyncio.gather(*(is_open(*pair) for pair in pairs))
    print(json.dumps([pair for pair, is_in in zip(pairs, found) if is_in]))
asyncio.run(main())
"""

_path = ROOT / "ansible/plugins/filter/firewall.py"
_spec = importlib.util.spec_from_file_location("firewall_of_e2e", _path)
assert _spec is not None
assert _spec.loader is not None
firewall = importlib.util.module_from_spec(_spec)
sys.modules["firewall_of_e2e"] = firewall
_spec.loader.exec_module(firewall)


def listeners(host: Host, option: str) -> set[int]:
    """Return the ports that a host listens on, but for the loopback addresses."""
    found = set()
    for line in host.shell(f"ss -H -n {option}").splitlines():
        address, _, port = line.split()[3].rpartition(":")
        if not address.strip("[]").startswith(("127.", "::1")):
            found.add(int(port))
    return found


def openings(cluster: Cluster, name: str) -> list[Any]:
    """Return what the table lets in on a host of the inventory."""
    # The listing has variables as they are written.
    text = json.dumps(cluster.inventory["_meta"]["hostvars"])
    network = cluster.env["HGFLEET_CLUSTER_NETWORK"]
    hostvars = json.loads(text.replace("{{ cluster_network }}", network))
    own = {
        "base_firewall_administrators": ["0.0.0.0/0", "::/0"],
        "base_firewall_administrators_ports": [22],
        "base_firewall_open": hostvars[name]["base_firewall_open"],
    }
    groups = {group: _members(cluster.inventory, group) for group in cluster.inventory}
    return list(firewall.openings(own, name, groups, hostvars))


def _members(inventory: Mapping[str, Any], group: str) -> list[str]:
    if group in ("all", "_meta"):
        return list(inventory["_meta"]["hostvars"])
    content = inventory[group]
    inner = [name for child in content.get("children", ()) for name in _members(inventory, child)]
    return [*content.get("hosts", ()), *inner]


def allowed(cluster: Cluster, name: str, source: str) -> set[int]:
    """Return the ports of a host that the table opens to an address."""
    address = ipaddress.ip_address(source)
    return {
        port
        for one in openings(cluster, name)
        for port in one.ports
        if any(address in network for network in one.networks)
    }


def reached(prober: list[str], wanted: list[tuple[str, int]]) -> set[tuple[str, int]]:
    """Return the addresses and ports that accept a connection from where `prober` runs Python."""
    command = [*prober, "-c", PROBE]
    done = subprocess.run(
        command, input=json.dumps(wanted), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, f"{command}: {done.stderr}"
    return {(address, port) for address, port in json.loads(done.stdout)}


def test_every_host_is_open_as_the_table_says_and_no_further(
    cluster: Cluster, client_host: Host
) -> None:
    hosts = {host.name: cluster.address(host) for host in cluster.hosts}
    listening = {name: listeners(cluster.host(name), "-lt") for name in hosts}
    ports = sorted({port for found in listening.values() for port in found} | set(CLOSED))
    assert len(ports) > len(CLOSED) + 5

    places = {name: (cluster.host(name), address) for name, address in hosts.items()}
    places["client"] = (client_host, cluster.address(client_host))
    wrong = []
    for place, (source, address) in places.items():
        others = {name: at for name, at in hosts.items() if name != place}
        command = ["docker", "exec", "--interactive", source.container, "python3"]
        found = reached(command, [(at, port) for at in others.values() for port in ports])
        for name, at in others.items():
            expected = {(at, port) for port in allowed(cluster, name, address) & listening[name]}
            seen = {pair for pair in found if pair[0] == at}
            wrong += [f"{place} reaches {name}:{port}" for _, port in sorted(seen - expected)]
            wrong += [f"{place} misses {name}:{port}" for _, port in sorted(expected - seen)]
    assert wrong == []


def test_no_program_listens_that_the_table_does_not_have(cluster: Cluster) -> None:
    wrong = []
    for host in cluster.hosts:
        known = {port for one in openings(cluster, host.name) for port in one.ports}
        unknown = listeners(host, "-lt") - known
        wrong += [f"{host.name} listens on {port}" for port in sorted(unknown)]
        wrong += [f"{host.name} listens on udp {port}" for port in sorted(listeners(host, "-lu"))]
    assert wrong == []


def test_an_answer_of_a_refused_port_comes_at_once(cluster: Cluster, client_host: Host) -> None:
    """A client that has a wrong port reads why, and waits for no timeout."""
    address = cluster.address(cluster.first("web"))
    script = f"import socket; socket.create_connection(({address!r}, 8443), 30)"
    done = run(["docker", "exec", client_host.container, "python3", "-c", script])
    assert "Connection refused" in done.output
