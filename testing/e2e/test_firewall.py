"""Every host lets in the connections that the table of ports allows, and nothing else.

Each host lists its listeners (`ss`). Each other host, a client in the cluster's network and this
machine then connect to all of these ports, and to some on which nothing should listen.
"""

from __future__ import annotations

import ipaddress
import json
from typing import TYPE_CHECKING, Any

import pytest

from controller.tests.hosts import members
from testing.e2e.command import run
from testing.e2e.ports import CLOSED, TCP, UDP, listeners, reached
from testing.support import loading

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = pytest.mark.alone

firewall = loading.module("ansible/plugins/filter/firewall.py")


def openings(cluster: Cluster, name: str) -> list[Any]:
    """Return the openings that the table of ports gives a host of the inventory."""
    # The listing of the inventory does not fill in variables.
    text = json.dumps(cluster.inventory["_meta"]["hostvars"])
    network = cluster.env["HGFLEET_CLUSTER_NETWORK"]
    hostvars = json.loads(text.replace("{{ cluster_network }}", network))
    own = {
        "base_firewall_administrators": ["0.0.0.0/0", "::/0"],
        "base_firewall_administrators_ports": [22],
        "base_firewall_open": hostvars[name]["base_firewall_open"],
    }
    return list(firewall.openings(own, name, groups(cluster), hostvars))


def groups(cluster: Cluster) -> dict[str, list[str]]:
    """Return the hosts of each group, including the hosts of its child groups."""
    return {group: sorted(members(cluster.inventory, group)) for group in cluster.inventory}


def declared(cluster: Cluster, name: str) -> set[int]:
    """Return the ports in the table for a host's parts, also ports for the host itself."""
    ports = {port for opening in openings(cluster, name) for port in opening.ports}
    variables = cluster.inventory["_meta"]["hostvars"][name]
    for row in firewall.table():
        if firewall.listens(row, name, groups(cluster)):
            ports.update(firewall.ports_of(row, variables))
    return ports


def allowed(cluster: Cluster, name: str, source: str) -> set[int]:
    """Return the ports of a host that the table opens to an address."""
    address = ipaddress.ip_address(source)
    return {
        port
        for opening in openings(cluster, name)
        for port in opening.ports
        if any(address in network for network in opening.networks)
    }


def test_every_host_is_open_as_the_table_says_and_no_further(
    cluster: Cluster, client_host: Host
) -> None:
    hosts = {host.name: cluster.address(host) for host in cluster.hosts}
    listening = {name: listeners(cluster.host(name).shell(TCP)) for name in hosts}
    ports = sorted({port for own in listening.values() for port in own} | set(CLOSED))
    assert len(ports) > len(CLOSED) + 5

    places = {name: (cluster.host(name), address) for name, address in hosts.items()}
    places["client"] = (client_host, cluster.address(client_host))
    wrong = []
    for place, (source, address) in places.items():
        others = {name: at for name, at in hosts.items() if name != place}
        command = ["docker", "exec", "--interactive", source.container, "python3"]
        connected = reached([(at, port) for at in others.values() for port in ports], command)
        for name, at in others.items():
            expected = {(at, port) for port in allowed(cluster, name, address) & listening[name]}
            seen = {pair for pair in connected if pair[0] == at}
            wrong += [f"{place} reaches {name}:{port}" for _, port in sorted(seen - expected)]
            wrong += [f"{place} misses {name}:{port}" for _, port in sorted(expected - seen)]
    assert wrong == []


def test_no_program_listens_that_the_table_does_not_have(cluster: Cluster) -> None:
    wrong = []
    for host in cluster.hosts:
        unknown = listeners(host.shell(TCP)) - declared(cluster, host.name)
        wrong += [f"{host.name} listens on {port}" for port in sorted(unknown)]
        wrong += [
            f"{host.name} listens on udp {port}" for port in sorted(listeners(host.shell(UDP)))
        ]
    assert wrong == []


def test_an_answer_of_a_refused_port_comes_at_once(cluster: Cluster, client_host: Host) -> None:
    """A client with a wrong port gets the reason at once, and waits for no timeout."""
    address = cluster.address(cluster.first("web"))
    script = f"import socket; socket.create_connection(({address!r}, 8443), 30)"
    done = run(["docker", "exec", client_host.container, "python3", "-c", script])
    assert "Connection refused" in done.output
