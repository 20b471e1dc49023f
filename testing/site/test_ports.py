"""Exactly the ports that the table of ports opens to this machine accept its connections."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from testing.e2e.ports import CLOSED, TCP, listeners, reached
from testing.site import machine

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.site.machine import Machine


def seen_as(host: Host) -> str:
    """Return the address of this machine as the host's sshd sees it; empty without SSH."""
    past_sudo = getattr(host.backend, "run_ssh", None)
    return str(past_sudo("echo $SSH_CONNECTION").stdout).partition(" ")[0] if past_sudo else ""


def own_address(there: str) -> str:
    """Return the address from which this machine reaches a host; no packet is sent."""
    family, kind, protocol, _, at = socket.getaddrinfo(there, 9, type=socket.SOCK_DGRAM)[0]
    with socket.socket(family, kind, protocol) as probe:
        probe.connect(at)
        return str(probe.getsockname()[0])


def test_this_machine_reaches_the_ports_that_are_open_to_it(host: Host, here: Machine) -> None:
    if not here.firewall:
        pytest.skip("the site has a firewall of its own (base_firewall: false)")
    listening = listeners(host.check_output(TCP))
    client = seen_as(host) or own_address(here.address)
    allowed = machine.let_in(here.rules, client) & listening

    connected = reached([(here.address, port) for port in sorted(listening | set(CLOSED))])

    assert {port for _, port in connected} == allowed, f"as {client}"
