"""Bundles follow pushes: no operator starts the job, and its timer is an hour away."""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Clone

REPOSITORY: Final = "e2e/pushed"
SPOOL: Final = "/var/lib/hgfleet/pushed"
UNIT: Final = "hgfleet-bundles-pushed.service"
SECONDS_TO_FOLLOW: Final = 60


@pytest.fixture
def work(cluster: Cluster, tmp_path: Path) -> Clone:
    """A clone to push from, made when no bundle run is under way."""
    cluster.wait_for_bundles(REPOSITORY)
    alice = cluster.person("alice")
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


def push(work: Clone) -> str:
    """Push something new; return its hash."""
    node = work.commit("new.txt", uuid.uuid4().bytes, "something new in this run")
    work.hg("push", "--force").ok()
    return node


def follows(cluster: Cluster, node: str) -> None:
    """Wait until clients are offered bundles with a changeset."""
    wait_until(
        f"bundles have {node}",
        lambda: all(f"/{node}." in url for url in cluster.manifest_of_all(REPOSITORY) or ["none"]),
        SECONDS_TO_FOLLOW,
    )


def test_bundles_follow_a_push(cluster: Cluster, work: Clone, tmp_path: Path) -> None:
    timer = cluster.first("bundles").shell("systemctl show -P LastTriggerUSec *-bundles.timer")
    node = push(work)

    follows(cluster, node)

    clone = work.owner.clone(cluster.url(REPOSITORY), tmp_path / "clone")
    assert "applying clone bundle" in clone.made.output
    assert "searching for changes" in clone.made.output
    assert "no changes found" in clone.made.output
    assert node in clone.heads()
    host = cluster.first("bundles")
    assert timer == host.shell("systemctl show -P LastTriggerUSec *-bundles.timer")


@pytest.mark.alone
def test_a_killed_run_is_made_up_for(cluster: Cluster, work: Clone) -> None:
    host = cluster.first("bundles")
    cursor = host.journal_cursor()
    node = push(work)
    taken = f"{SPOOL}/{REPOSITORY.replace('/', '+')}+"
    wait_until("a run has begun", lambda: host.run("test", "-e", taken).code == 0, every=0.05)

    host.systemctl("kill", "--signal=KILL", UNIT).ok()

    follows(cluster, node)
    killed = [line for line in host.journal_after(cursor) if "status=9/KILL" in line]
    assert killed
    cluster.wait_for_bundles(REPOSITORY)
    assert host.systemctl("is-failed", UNIT).code != 0
