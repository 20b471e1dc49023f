"""Every store is away: no bundle is left, everybody clones from the server, and it bears that."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING

from testing.e2e.support import Cluster, Person, Result, wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from testing.faults.support import Faults

REPOSITORY = "hgfleet"
CLONES = 8
SLOTS = 2


def test_without_any_store_all_clones_succeed_in_turn(
    cluster: Cluster, faults: Faults, alice: Person, tmp_path: Path
) -> None:
    wait_until("there are bundles", lambda: cluster.manifest(REPOSITORY))
    host = cluster.first("ssh")
    for group, unit in (("cdn", "hgfleet-cdn"), ("objectstore", "hgfleet-objectstore")):
        for store in cluster.all(group):
            faults.stop_unit(store, f"{unit}.service")
    wait_until("clients are told of nothing", lambda: not cluster.manifest(REPOSITORY), 15)
    cursor = host.journal_cursor()

    def clone(number: int) -> Result:
        url = cluster.url(REPOSITORY) if number % 2 else alice.ssh_url(REPOSITORY)
        return alice.hg("clone", "--noupdate", url, str(tmp_path / str(number)))

    with ThreadPoolExecutor(CLONES) as pool:
        results = list(pool.map(clone, range(CLONES)))

    heads = cluster.remote_heads(REPOSITORY)
    for number, result in enumerate(results):
        assert "clone bundle" not in result.ok().output
        place = tmp_path / str(number)
        found = alice.hg("-R", str(place), "log", "-r", "head()", "-T", "{node}\n").ok()
        assert set(found.stdout.split()) == heads
    lines = host.journal_after(cursor)
    served = most = 0
    for line in (line for line in lines if "event=admission" in line):
        served += "decision=serve" in line
        served -= "decision=end" in line
        most = max(most, served)
    assert 1 <= most <= SLOTS
    assert any("waiting for a turn" in result.output for result in results)
