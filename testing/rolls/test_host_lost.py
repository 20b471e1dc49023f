"""The primary loses its disk: one command brings it back on a blank machine, with every push."""

from __future__ import annotations

import time
import uuid
from typing import TYPE_CHECKING, Final

import pytest
from localcluster import cluster as life
from localcluster import images, release, settings

from testing.e2e.command import wait_until
from testing.e2e.mirrors import REPOSITORY, SECONDS, log_of, mirrors_of, wait_for_use
from testing.faults.mirrors import number_of, pushed, wait_for_equality

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

PLAYBOOK: Final = "ansible/playbooks/restore-primary.yml"
SECONDS_TO_RESTORE: Final = 600
LAST: Final = 5
"""Pushes after the backup."""

PURPOSE: Final = "lives-longer-than-a-disk"
KEYS: Final = "cat /etc/hgfleet/ssh/host_*_key /etc/hgfleet/ssh/host_*.pub | sha256sum"


def replace_by_a_blank_machine(host: Host) -> None:
    """Remove a host's container with its volumes, and start one of the base image in its place."""
    site = settings.load()
    assert site is not None
    hosts = life.read_inventory(site)
    life.remove(site, only=host.name)
    others = [name for name in hosts if name != host.name]
    chosen = {**life.current_images(site, others), "base": images.ensure_base()}
    life.start_containers(site, release.ensure(), hosts, chosen)


def test_the_primary_comes_back_from_backup_and_mirrors_without_the_loss_of_a_push(
    cluster: Cluster, alice: Person, tmp_path: Path
) -> None:
    primary, *standbys = cluster.all("ssh")
    keys = primary.shell(KEYS)
    alice.ssh("token", "create", PURPOSE).ok()
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    pushed(work, uuid.uuid4().bytes)
    primary.systemctl("start", "hgfleet-backup.service").ok()
    # Acknowledged: each is told that mirrors show it.
    acknowledged = {}
    for _ in range(LAST):
        node, said = pushed(work, uuid.uuid4().bytes)
        acknowledged[number_of(said)] = node
    log = log_of(standbys[0])
    assert all(node in log for node in acknowledged.values())
    replace_by_a_blank_machine(primary)
    assert primary.run("test", "-e", "/srv/hg").code == 1
    assert primary.run("test", "-e", "/opt/hgfleet").code == 1

    begun = time.time()
    words = [PLAYBOOK, "-e", f"restore_host={primary.name}"]
    told = cluster.ansible("ansible-playbook", *words, seconds=3 * SECONDS_TO_RESTORE).ok()
    took = time.time() - begun

    print(told.stdout[-2000:])
    back = float(primary.shell("stat -c %.Y /var/lib/hgfleet-replication/epoch.json")) - begun
    print(
        f"{primary.name} was the primary again after {back:.0f} s, the site done after {took:.0f} s"
    )
    assert primary.shell(KEYS) == keys, "clients are alarmed by other host keys"
    # By the known hosts of before.
    after, said = pushed(work, uuid.uuid4().bytes)
    assert number_of(said) == max(acknowledged) + 1
    lines = log_of(primary).splitlines()
    assert all(node in lines[number - 1] for number, node in acknowledged.items())
    assert lines[: max(acknowledged)] == log.splitlines()
    wait_until("readers see the push", lambda: after in cluster.remote_heads(REPOSITORY), SECONDS)
    tokens = alice.ssh("token", "list").ok().stdout.splitlines()
    (token,) = [line.split()[0] for line in tokens if PURPOSE in line]
    alice.ssh("token", "revoke", token).ok()
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
    wait_for_equality(cluster)
    primary.run("hgfleet", "integrity", "run", "--days", "1").ok()
    assert back <= SECONDS_TO_RESTORE
