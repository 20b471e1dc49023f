"""A site without a broker runs no replication program, and its pushes wait for no mirror."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from testinfra.host import Host

UNITS: Final = "hgfleet-{broker,relay,source,webhooks,events,applier,verify}.service"
SHOW: Final = "HGRCPATH=/etc/hgfleet/hgrc /opt/hgfleet/current/bin/hg config %s"


def test_no_program_of_replication_is_on_the_host(host: Host) -> None:
    units = host.run(f"bash -c 'ls -d /etc/systemd/system/{UNITS} 2>/dev/null'").stdout.split()
    assert units == []


def test_a_host_is_no_mirror_without_a_broker(host: Host) -> None:
    assert host.run(SHOW, "hgfleet.pushlog").stdout.strip() == "yes"
    assert host.run(SHOW, "hgfleet.replica-of").rc == 1
