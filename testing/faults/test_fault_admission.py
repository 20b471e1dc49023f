"""Every store is away: no bundle is left, and the server bears the clones of all clients.

The gate leaves these tests out: it has clones, a push and a bundle run without any store in
`testing/e2e/test_objectstore.py`, and waits for slots in `testing/e2e/test_admission.py`.
"""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import Result, wait_until
from testing.e2e.host import most_clones_at_once
from testing.faults.support import Faults

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.people import Person
    from testing.e2e.turns import Turns

pytestmark = pytest.mark.whole

COSTLY: Final = "e2e/outage"
ON_DISK: Final = "hgfleet"
"""A repository with pull bundles, which cost the server nothing."""
CLONES: Final = 8
SLOTS: Final = 2
# More than the buffers between a session and its client, so that a clone takes a while.
CONTENT_BYTES: Final = 12_000_000


@pytest.fixture(scope="module")
def costly(cluster: Cluster, logins: Turns, tmp_path_factory: pytest.TempPathFactory) -> str:
    """A repository with a large file, and with bundles."""
    alice = cluster.person("alice")
    with logins.turn(alone=False):
        work = alice.clone(alice.ssh_url(COSTLY), tmp_path_factory.mktemp("source") / "work")
        if not work.heads():
            work.commit("large.bin", os.urandom(CONTENT_BYTES), "something of size")
            work.hg("push").ok()
        cluster.wait_for_bundles(COSTLY)
    return COSTLY


@pytest.fixture(scope="module")
def no_store(cluster: Cluster, costly: str) -> Iterator[None]:
    """Neither stores nor their caches serve anything, and clients are offered no bundles."""
    both = (costly, ON_DISK)
    wait_until(
        "there are bundles", lambda: all(cluster.manifest_of_all(repository) for repository in both)
    )
    with ExitStack() as stack:
        faults = Faults(cluster, stack)
        for group, unit in (("cdn", "hgfleet-cdn"), ("objectstore", "hgfleet-objectstore")):
            for store in cluster.all(group):
                faults.stop_unit(store, f"{unit}.service")
        wait_until(
            "clients are told of nothing",
            lambda: not any(cluster.manifest_of_all(repository) for repository in both),
            15,
        )
        yield


def clone_at_once(
    cluster: Cluster, person: Person, repository: str, place: Path
) -> list[tuple[Path, Result]]:
    """Clone several times at the same time, over HTTPS and SSH; return places and results."""

    def clone(number: int) -> tuple[Path, Result]:
        url = cluster.primary_url(repository) if number % 2 else person.ssh_url(repository)
        target = place / str(number)
        return target, person.hg("clone", "--noupdate", url, str(target))

    with ThreadPoolExecutor(CLONES) as pool:
        return list(pool.map(clone, range(CLONES)))


@pytest.mark.usefixtures("no_store")
def test_without_any_store_all_clones_succeed_in_turn(
    cluster: Cluster, alice: Person, logins: Turns, costly: str, tmp_path: Path
) -> None:
    host = cluster.first("ssh")

    with logins.turn(alone=False):
        cursor = host.journal_cursor()
        results = clone_at_once(cluster, alice, costly, tmp_path)

    heads = cluster.remote_heads(costly)
    for place, result in results:
        assert "clone bundle" not in result.ok().output
        shown = alice.hg("-R", str(place), "log", "-r", "head()", "-T", "{node}\n").ok()
        assert set(shown.stdout.split()) == heads
    lines = host.journal_after(cursor)
    assert 1 <= most_clones_at_once(lines) <= SLOTS, "\n".join(lines)
    assert any("waiting for a slot" in result.output for _, result in results)


@pytest.mark.usefixtures("no_store")
def test_without_any_store_pull_bundles_serve_clones_and_nobody_waits(
    cluster: Cluster, alice: Person, logins: Turns, tmp_path: Path
) -> None:
    host = cluster.first("ssh")

    with logins.turn(alone=False):
        cursor = host.journal_cursor()
        results = clone_at_once(cluster, alice, ON_DISK, tmp_path)

    for place, result in results:
        assert "waiting" not in result.ok().output
        alice.hg("-R", str(place), "verify", "--quiet").ok()

    def from_disk() -> bool:
        event = f"event=pullbundle repository={ON_DISK} "
        return sum(event in line for line in host.journal_after(cursor)) == CLONES

    wait_until("each clone came from disk", from_disk, 10)
