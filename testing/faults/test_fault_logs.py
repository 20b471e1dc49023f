"""Pushing does not depend on logs: the disk is full, or journald is stopped or hangs."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until
from testing.faults.support import SECONDS_FOR_A_LOGIN, background, pushes

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person
    from testing.faults.support import Faults

pytestmark = pytest.mark.alone

JOURNAL: Final = "/var/log/journal"
LINES: Final = 90_000
"""Of a flood; with the limit of journald 32,500 of them were kept."""

UNITS: Final = (
    "systemd-journald.socket",
    "systemd-journald-dev-log.socket",
    "systemd-journald.service",
)


def full_disk(_cluster: Cluster, host: Host) -> Iterator[None]:
    """The journal's disk has no room left; lines that are only in memory are dropped too."""
    host.shell(
        f"mount -t tmpfs -o size=1M,mode=2755 tmpfs {JOURNAL}"
        f"; mkdir {JOURNAL}/$(cat /etc/machine-id)"
        f"; cat /dev/zero >{JOURNAL}/ballast 2>/dev/null || true"
        "; systemctl restart systemd-journald; journalctl --flush"
    )
    try:
        yield
    finally:
        host.shell(f"umount {JOURNAL}; systemctl restart systemd-journald; journalctl --flush")


def kept(host: Host, mark: str) -> bool:
    """Tell whether the journal on the disk contains a word."""
    done = host.run("journalctl", "--directory", JOURNAL, "--no-pager", "--grep", mark)
    return done.code == 0 and mark in done.stdout


@pytest.mark.parametrize(
    ("group", "unit"),
    [
        ("ssh", "hgfleet-sshd.service"),
        ("web", "hgfleet-auth.service"),
        ("directory", "slapd.service"),
        ("objectstore", "hgfleet-objectstore.service"),
        ("proxy", "haproxy.service"),
    ],
)
def test_a_flood_of_lines_of_a_unit_is_kept_whole(cluster: Cluster, group: str, unit: str) -> None:
    host = cluster.first(group)
    mark = f"flood-{uuid.uuid4().hex}"
    # journald knows the unit of a line by the group of the process that wrote it.
    members = f"/sys/fs/cgroup{host.shell(f'systemctl show -P ControlGroup {unit}').strip()}"
    logger = f"echo $$ >{members}/cgroup.procs; exec logger -t {mark}"
    host.shell(f"seq {LINES} | sh -c '{logger}'")
    host.shell("journalctl --sync")
    kept_lines = host.shell(f"journalctl -u {unit} -t {mark} --output=cat --no-pager | wc -l")
    assert int(kept_lines) == LINES


def test_a_full_disk_for_logs_stops_nobody(
    cluster: Cluster, alice: Person, bob: Person, faults: Faults, tmp_path: Path
) -> None:
    host = cluster.first("ssh")
    faults.break_(full_disk, host)
    mark = uuid.uuid4().hex
    host.run("logger", mark).ok()
    assert host.shell(f"df --output=avail {JOURNAL}").split()[1] == "0"
    assert not kept(host, mark)

    node = pushes(alice, tmp_path / "work")
    said = bob.ssh("whoami").ok()
    bob.ssh("id").refused("is not a command of this service")

    assert node in cluster.remote_heads("e2e/push")
    assert said.seconds < SECONDS_FOR_A_LOGIN


@pytest.mark.whole
def test_nobody_waits_for_a_log_that_nobody_takes(
    cluster: Cluster, alice: Person, bob: Person, faults: Faults, tmp_path: Path
) -> None:
    host = cluster.first("ssh")
    faults.stop_unit(host, *UNITS)

    node = pushes(alice, tmp_path / "work")
    said = bob.ssh("whoami").ok()
    bob.ssh("id").refused("is not a command of this service")

    assert node in cluster.remote_heads("e2e/push")
    assert said.seconds < SECONDS_FOR_A_LOGIN


@pytest.mark.whole
def test_a_journal_that_hangs_delays_people_and_turns_nobody_away(
    cluster: Cluster, alice: Person, bob: Person, faults: Faults
) -> None:
    """OpenSSH itself waits, as any sshd, until the watchdog ends journald after 3 minutes."""
    host = cluster.first("ssh")
    thaw = faults.freeze_unit(host, "systemd-journald.service")

    def waits() -> bool:
        # The kernel buffers some lines for a reader that does not read. After that, logins wait.
        return background(bob, "whoami").poll(seconds=3) is None

    wait_until("somebody has to wait", waits, 60)
    late = background(alice, "whoami")
    assert late.poll(seconds=3) is None
    thaw()

    assert "alice" in late.result().ok().stdout
