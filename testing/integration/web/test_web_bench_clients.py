"""The clients of `testing/bench/hostile.py` against a real web part."""

from __future__ import annotations

from typing import TYPE_CHECKING

from testing.bench import hostile_load, hostile_witness
from testing.bench.hostile_load import Flood, Witness
from testing.bench.hostile_witness import Nodes
from testing.integration.web.support import PROJECT, Site
from testing.integration.web.test_web_clients import gunicorn

if TYPE_CHECKING:
    from testing.conftest import WaitFor

REPOSITORY = PROJECT.removeprefix("/")
OTHER = {"X-Real-IP": "198.51.100.9"}


def nodes_of(site: Site) -> Nodes:
    """Add changesets; return the first, the changeset before the tip, and the tip."""
    for number in range(4):
        site.commit(REPOSITORY, f"{number}.txt", f"{number}\n" * 1000)
    revisions = ("0", "tip~1", "tip")
    return Nodes(
        *(site.hg(REPOSITORY, "log", "-r", revision, "-T", "{node}") for revision in revisions)
    )


def test_a_witness_gets_the_same_bytes_beside_partial_clones(site: Site, wait_for: WaitFor) -> None:
    streams = hostile_witness.asks_for_streams(REPOSITORY, nodes_of(site))
    pull = {**streams[1], "headers": {**streams[1]["headers"], **OTHER}}
    with gunicorn(site, wait_for) as url:
        witness = Witness(url, [*hostile_witness.asks_for_pages(REPOSITORY, OTHER), pull])
        witness.learn()
        flood = Flood(url, streams, 6)
        flood.start()
        witness.run(1.0, pause=0.01)
        told = flood.told()
    assert witness.wrong == []
    assert witness.failed == {"page": {}, "the last": {}}
    assert told["bytes"] > 0


def test_a_partial_clone_has_the_changesets_that_are_not_common(
    site: Site, wait_for: WaitFor
) -> None:
    nodes = nodes_of(site)
    with gunicorn(site, wait_for) as url:
        most, last = (
            hostile_load.ask(url, request, 0)
            for request in hostile_witness.asks_for_streams(REPOSITORY, nodes)
        )
    assert (most[0], last[0]) == ("200", "200")
    assert most[2] > last[2] > 0
    entries = [entry for entry in site.log() if entry.get("command") == "getbundle"]
    assert [(entry["status"], entry["common"], entry["full"]) for entry in entries] == [
        (200, 1, False)
    ] * 2
