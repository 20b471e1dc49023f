"""A program that removes the rules of others leaves no port of a host open for long.

Such programs flush the whole ruleset. Here only the table of hgfleet goes: the engine's rules for
the names of containers are in the same network namespace, and nothing would bring these back.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster

pytestmark = [pytest.mark.disruptive, pytest.mark.whole]

IN_FORCE: Final = "nft --stateless --terse list table inet hgfleet"
STATE: Final = "/run/hgfleet-firewall-watch/state.json"
SECONDS: Final = 30
"""Three looks, and a busy machine."""


@pytest.mark.parametrize("flush", ["nft delete table inet hgfleet", "nft flush table inet hgfleet"])
def test_rules_that_were_flushed_are_back_within_seconds(cluster: Cluster, flush: str) -> None:
    host = cluster.first("directory")
    kept = host.shell(IN_FORCE)
    before = json.loads(host.shell(f"cat {STATE}"))["restored"]
    try:
        host.shell(flush)
        wait_until("the rules are back", lambda: host.shell(f"{IN_FORCE} || :") == kept, SECONDS)
    finally:
        host.shell("systemctl reload hgfleet-firewall.service")
    assert json.loads(host.shell(f"cat {STATE}"))["restored"] > before
    shown = host.shell("/opt/hgfleet/current/bin/hgfleet metrics show")
    assert "hgfleet_firewall_in_force 1.0" in shown


def test_a_firewall_that_an_operator_stopped_stays_away(cluster: Cluster) -> None:
    host = cluster.first("directory")
    kept = host.shell(IN_FORCE)
    try:
        host.systemctl("stop", "hgfleet-firewall.service").ok()
        assert host.systemctl("is-active", "hgfleet-firewall-watch.service").code != 0
        assert host.run(*IN_FORCE.split()).code != 0
    finally:
        host.systemctl("start", "hgfleet-firewall.service").ok()
    assert host.shell(IN_FORCE) == kept
    assert host.systemctl("is-active", "hgfleet-firewall-watch.service").code == 0
