"""A broker that is connected and refuses messages: mirrors get pushes, and operators hear of it."""

from __future__ import annotations

import json
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import pytest

from testing.e2e.command import wait_until
from testing.e2e.mirrors import mirrors_of, wait_for_use

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

pytestmark = [pytest.mark.disruptive, pytest.mark.whole]

PYTHON: Final = "/opt/hgfleet/current/bin/python"
REPOSITORY: Final = "e2e/replication"
SECONDS: Final = 60

# Run on the primary, which may change its streams: the stream of pushes takes no message.
FULL: Final = """
import asyncio
from hgfleet.replication.protocol import connection, messages, settings

async def story():
    found = settings.load()
    async with connection.asking(found, "fault", connection.tls(found)) as client:
        api = client.jetstream()
        config = (await api.stream_info(messages.PUSHES)).config
        await api.update_stream(config.evolve(max_msgs=1, discard="new"))

asyncio.run(story())
"""


@pytest.fixture
def refusing(cluster: Cluster) -> Iterator[Host]:
    """The primary, whose broker refuses pushes."""
    primary = cluster.first("ssh")
    primary.run(PYTHON, "-c", FULL).ok()
    yield primary
    # A relay that connects sets the configuration of the streams again.
    primary.systemctl("restart", "hgfleet-relay.service").ok()
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)


def shows(mirror: Host, node: str) -> bool:
    """Whether the repository of a mirror has a changeset."""
    hg = "runuser -u hg -- env HGRCPATH=/etc/hgfleet/hgrc /opt/hgfleet/current/bin/hg"
    return mirror.run(*hg.split(), "-R", f"/srv/hg/repos/{REPOSITORY}", "id", "-r", node).code == 0


def state(host: Host) -> dict[str, Any]:
    return dict(json.loads(host.shell("cat /run/hgfleet-replication/state.json")))


def test_a_push_that_the_broker_refuses_reaches_the_mirrors_and_is_told(
    cluster: Cluster, alice: Person, refusing: Host, tmp_path: Path
) -> None:
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    node = work.commit("refused.txt", b"refused", "a push that the broker refuses")
    work.hg("push").ok()
    for mirror in mirrors_of(cluster):
        wait_until(f"{mirror.name} shows it", partial(shows, mirror, node), SECONDS)
    told = state(refusing)
    assert told["broker"]["connected"]
    assert told["broker"]["problem"]
    shown = refusing.run("hgfleet", "replication", "status")
    assert shown.code != 0
    assert "the broker refuses messages" in shown.stdout
    metrics = refusing.shell("/opt/hgfleet/current/bin/hgfleet metrics show")
    assert "hgfleet_replication_broker_refuses 1.0" in metrics
    refusing.systemctl("restart", "hgfleet-relay.service").ok()

    def is_over() -> bool:
        told = state(refusing)
        assert told["broker"] == {"connected": True, "problem": "", "warnings": []}, told
        assert told["waiting"] == 0
        return True

    wait_until("the relay has sent what waited", is_over, SECONDS)
    assert refusing.run("hgfleet", "replication", "status").code == 0
