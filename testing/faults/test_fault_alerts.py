"""Every alert fires when its fault is there, names its host, and ends after the fault.

The faults are in `alert_table.py`. A second Prometheus watches them, whose rules wait for seconds
only (`alert_watch.py`). This file is the tier `alerts`; the gate has two of the alerts, in
`test_fault_alert_smoke.py`.
"""

from __future__ import annotations

import time
import uuid
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from testing.e2e.command import wait_until
from testing.e2e.mirrors import mirrors_of, wait_for_use
from testing.e2e.status import probe
from testing.faults import alert_config
from testing.faults.alert_faults import (
    CHANGED,
    CLOSED,
    DISK,
    DISK_DEVICE,
    DISK_MIB,
    UNREADABLE,
    Scene,
    push_log,
    small_disk,
)
from testing.faults.alert_scene import SECONDS, sees, write_metrics
from testing.faults.alert_table import BACKUP, INTEGRITY, TABLE, Place, host_of
from testing.faults.alert_watch import CONFIG, watch

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = [pytest.mark.disruptive, pytest.mark.slow, pytest.mark.whole]

PASS_SECONDS: Final = 15
"""Between two deletions of old values, so that a fault that continues would be seen."""

RECORDS: Final = (
    (Place.PRIMARY, "/var/lib/hgfleet-bundles/last-run.json", "hgfleet-bundles.service"),
    (Place.PRIMARY, INTEGRITY, "hgfleet-integrity.service"),
    (Place.MIRROR, INTEGRITY, "hgfleet-integrity.service"),
    (Place.PRIMARY, f"{BACKUP}/runs.json", "hgfleet-backup.service"),
    (Place.STANDBY, f"{BACKUP}/runs.json", "hgfleet-backup.service"),
    (Place.STANDBY, f"{BACKUP}/drills.json", "hgfleet-backup-drill.service"),
    (Place.DIRECTORY, f"{BACKUP}/runs.json", "hgfleet-backup.service"),
)
"""Records that provocations change or jobs of `AGAIN` read, and the job that writes each."""

AGAIN: Final = (
    (Place.PRIMARY, "hgfleet-bundles.service"),
    (Place.SECOND_STORE, "hgfleet-backup-prune.service"),
)
"""Jobs whose last run may have met a missing store, or a host without a backup."""


@pytest.fixture(scope="module")
def scene(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Begin to watch a cluster on which each job has run."""
    for place, file, unit in RECORDS:
        host = host_of(cluster, place)
        if host.run("test", "-s", file).code != 0:
            host.systemctl("start", unit).ok()
    with_push_logs(cluster, tmp_path_factory.mktemp("pushes"))
    for place, unit in AGAIN:
        host = host_of(cluster, place)
        # A run that is already under way may have met the state of an earlier test.
        wait_until(f"{unit} ends well", partial(ends_well, host, unit), SECONDS, 1)
    monitor, broker = cluster.first("monitoring"), cluster.first("broker")
    with small_disk(broker), watch(monitor, history_of_disk(monitor, broker)) as watching:
        yield Scene(cluster, watching)


def ends_well(host: Host, unit: str) -> bool:
    """Run a job to its end; an error contains its output."""
    done = host.systemctl("start", unit)
    said = ("journalctl", f"--unit={unit}", "--lines=12", "--output=cat")
    assert done.code == 0, f"{host.name}: {host.run(*said).stdout}"
    return True


def with_push_logs(cluster: Cluster, folder: Path) -> None:
    """Push to repositories whose push log is still empty."""
    primary, alice = cluster.first("ssh"), cluster.person("alice")
    for repository in (UNREADABLE, CHANGED, *CLOSED):
        if primary.run("test", "-s", push_log(repository)).code != 0:
            work = alice.clone(alice.ssh_url(repository), folder / repository.replace("/", "-"))
            work.commit("alerts.txt", uuid.uuid4().bytes, "the first push")
            work.hg("push").ok()


def history_of_disk(monitor: Host, host: Host) -> Iterator[str]:
    config = yaml.safe_load(monitor.shell(f"cat {CONFIG}"))
    labels = {
        "device": DISK_DEVICE,
        "fstype": "overlay",
        "host": host.name,
        "instance": alert_config.instance(config, host.name),
        "job": "hosts",
        "mountpoint": DISK,
    }
    return alert_config.disk_history(labels, DISK_MIB * 1024 * 1024, time.time())


@pytest.mark.parametrize("wave", sorted({provocation.wave for provocation in TABLE}))
def test_every_alert_fires_with_its_fault_and_ends_after_it(scene: Scene, wave: int) -> None:
    cluster = scene.cluster
    chosen = [provocation for provocation in TABLE if provocation.wave == wave]
    wanted = [shown.wanted(cluster) for provocation in chosen for shown in provocation.shown]

    next_pass = time.monotonic()

    def have_ended() -> bool:
        nonlocal next_pass
        if time.monotonic() >= next_pass:
            next_pass = time.monotonic() + PASS_SECONDS
            for series in filter(None, (provocation.passes for provocation in chosen)):
                scene.watch.forget(series)
        return sees(scene, wanted, firing=False)

    wait_until("the alerts are quiet", lambda: sees(scene, wanted, firing=False), SECONDS)
    with ExitStack() as stack:
        for provocation in chosen:
            stack.enter_context(provocation.fault(scene, host_of(cluster, provocation.place)))
        write_metrics(cluster, chosen)
        wait_until("the alerts fire", lambda: sees(scene, wanted, firing=True), SECONDS, 1)
    # The next clone of the probes brings the status page up to date.
    probe(cluster.first("monitoring"))
    write_metrics(cluster, chosen)
    wait_until("the alerts end", have_ended, SECONDS, 1)
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
