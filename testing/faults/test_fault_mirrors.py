"""Pushes and reads go on while a mirror, the broker, the primary or a daemon is away.

The gate takes each part away once, by the fault that is noticed last or loses most. Stopped and
hanging hosts only cause other errors on the same connections.
"""

from __future__ import annotations

import time
import uuid
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until
from testing.e2e.mirrors import (
    REPOSITORY,
    SECONDS,
    is_used,
    mirrors_of,
    requests_after,
    wait_for_absence,
    wait_for_use,
)
from testing.faults.mirrors import Pusher, Reader, number_of, pushed, wait_for_equality
from testing.faults.support import killed, paused, stopped, unplugged

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone, Person
    from testing.faults.support import Fault, Faults

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

WHOLE: Final = pytest.mark.whole
UNNOTICED_SECONDS: Final = 5.0
"""For how long reads may fail after the mirror that answered them has died."""

KILLS: Final = 6
"""Each unit twice; `testing/integration/replication` kills at random moments."""


@pytest.fixture(autouse=True)
def _mirrors_are_back(cluster: Cluster) -> Iterator[None]:
    """Leave the cluster with mirrors that have caught up and serve readers.

    Set up before `faults`, so it ends after the faults are undone.
    """
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
    yield
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
    wait_for_equality(cluster)


@pytest.fixture
def work(alice: Person, tmp_path: Path) -> Clone:
    """A clone to push from."""
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


def reader_of(cluster: Cluster) -> Host:
    """Return the mirror that answers this machine."""
    cursor = cluster.first("proxy").journal_cursor()
    assert cluster.remote_heads(REPOSITORY)

    def served() -> list[str]:
        requests = requests_after(cluster, cursor)
        return [
            request["server"]
            for request in requests
            if request["uri"] == f"/{REPOSITORY}?cmd=heads"
        ]

    name = wait_until("the proxy's log has the read", served)[-1]
    mirror = next((host for host in mirrors_of(cluster) if host.name == name), None)
    assert mirror, f"{name} answered, which is no mirror"
    return mirror


def shows(cluster: Cluster, host: Host, node: str) -> bool:
    """Tell whether a mirror has a changeset."""
    known = f"https://{cluster.address(host)}:8443/{REPOSITORY}?cmd=known&nodes={node}"
    return cluster.get(known).body == "1"


def is_visible_everywhere(cluster: Cluster, work: Clone) -> bool:
    """Push, and tell whether hg says that every mirror shows the push."""
    _, said = pushed(work, uuid.uuid4().bytes)
    count = len(mirrors_of(cluster))
    assert f"visible on {count}/{count} mirrors" in said, said
    return True


@pytest.mark.parametrize(
    "fault",
    [unplugged, pytest.param(stopped, marks=WHOLE), pytest.param(paused, marks=WHOLE)],
)
def test_pushes_and_reads_go_on_without_one_mirror_and_it_comes_back(
    cluster: Cluster, work: Clone, faults: Faults, fault: Fault
) -> None:
    gone = reader_of(cluster)
    with Reader(cluster) as reader:
        faults.break_(fault, gone)
        died = time.monotonic()

        node, said = pushed(work, uuid.uuid4().bytes)

        number = number_of(said)
        assert gone.name in said.partition("recorded")[2], said
        reader.wait_for_reads(20, since=died + UNNOTICED_SECONDS)
        wait_for_absence(cluster, gone)
        assert node in cluster.remote_heads(REPOSITORY)
        node, said = pushed(work, uuid.uuid4().bytes)
        assert number_of(said) == number + 1
        wait_until("pushers read of it", lambda: is_told_of(gone, work), SECONDS)
        faults.stack.close()
        wait_for_use(cluster, gone)
        reader.wait_for_reads(20, since=time.monotonic())
    assert reader.failures(died + UNNOTICED_SECONDS) == []
    assert shows(cluster, gone, node)
    wait_until("both show a push", lambda: is_visible_everywhere(cluster, work), SECONDS)


def test_no_read_fails_while_the_workers_of_a_mirror_are_killed(
    cluster: Cluster, faults: Faults
) -> None:
    """Its nginx answers 502, and the proxy sends the request to another host."""
    gone = reader_of(cluster)
    faults.stack.callback(wait_for_use, cluster, gone)
    with Reader(cluster) as reader:
        begun = time.monotonic()
        for _ in range(KILLS):
            gone.systemctl("kill", "--signal=KILL", "hgfleet-web.service").ok()
            reader.wait_for_reads(5, since=time.monotonic())
    assert reader.failures(begun) == []


def test_a_mirror_without_room_for_answers_gets_no_reader(cluster: Cluster, faults: Faults) -> None:
    """Nginx would cut off answers that it has to keep on the disk for a slow client."""
    gone = reader_of(cluster)
    spool = "/var/lib/nginx"
    mount = f"mount -t tmpfs -o size=1m,mode=755 full {spool}"
    faults.stack.callback(gone.run, "umount", "--lazy", spool)
    with Reader(cluster) as reader:
        begun = time.monotonic()
        gone.shell(mount)
        wait_for_absence(cluster, gone)
        health = cluster.get(f"https://{cluster.address(gone)}:8443/healthz")
        assert health.status == 503
        assert "the disk for answers has" in health.body
        faults.stack.close()
        wait_for_use(cluster, gone)
    assert reader.failures(begun) == []


@pytest.mark.whole
def test_a_mirror_whose_applier_stopped_serves_no_reader_until_it_has_caught_up(
    cluster: Cluster, work: Clone, faults: Faults
) -> None:
    """Its web host answers as usual, and would show old heads."""
    gone, *others = mirrors_of(cluster)
    faults.stop_unit(gone, "hgfleet-applier.service")
    wait_for_absence(cluster, gone)

    node, _ = pushed(work, uuid.uuid4().bytes)

    assert node in cluster.remote_heads(REPOSITORY)
    for host in others:
        assert is_used(cluster, host), host.name
    faults.stack.close()
    wait_for_use(cluster, gone)
    assert shows(cluster, gone, node)


@pytest.mark.parametrize(
    "fault",
    [killed, pytest.param(paused, marks=WHOLE), pytest.param(unplugged, marks=WHOLE)],
)
def test_pushes_go_on_without_the_broker_and_are_delivered_when_it_returns(
    cluster: Cluster, work: Clone, faults: Faults, fault: Fault
) -> None:
    faults.break_(fault, cluster.first("broker"))

    pushes = [pushed(work, uuid.uuid4().bytes) for _ in range(3)]

    numbers, nodes = [number_of(said) for _, said in pushes], [node for node, _ in pushes]
    assert numbers == list(range(numbers[0], numbers[0] + 3))
    for _, said in pushes:
        assert "visible on 2/2 mirrors" not in said
    wait_until("pushers read of it", lambda: is_told_of_the_broker(work), SECONDS)
    # Mirrors that may be behind serve no readers.
    wait_until("readers see the push", lambda: is_known(cluster, nodes[-1]), SECONDS)
    faults.stack.close()
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
    wait_until("both show a push", lambda: is_visible_everywhere(cluster, work), SECONDS)
    wait_until(
        "both show all", lambda: show(cluster, dict(zip(numbers, nodes, strict=True))), SECONDS
    )


def is_known(cluster: Cluster, node: str) -> bool:
    """Tell whether the proxy sends readers to a host that has a changeset."""
    return cluster.get(f"{REPOSITORY}?cmd=known&nodes={node}").body == "1"


def is_told_of(gone: Host, work: Clone) -> bool:
    """Push, and tell whether hg says that a mirror shows the push and another mirror is away."""
    _, said = pushed(work, uuid.uuid4().bytes)
    assert "visible on 1/2 mirrors" in said, said
    assert gone.name in said, said
    return True


def is_told_of_the_broker(work: Clone) -> bool:
    """Push, and tell whether hg says that replication is down."""
    _, said = pushed(work, uuid.uuid4().bytes)
    assert "replication is down, mirrors will show it later" in said, said
    return True


@pytest.mark.parametrize(
    "fault",
    [killed, pytest.param(stopped, marks=WHOLE), pytest.param(paused, marks=WHOLE)],
)
def test_readers_go_on_without_the_primary_and_no_acknowledged_push_is_lost(
    cluster: Cluster, alice: Person, work: Clone, faults: Faults, fault: Fault, tmp_path: Path
) -> None:
    last, _ = pushed(work, uuid.uuid4().bytes)
    with Reader(cluster) as reader, Pusher(work) as pusher:
        pusher.wait_for_pushes(2)
        faults.break_(fault, cluster.first("ssh"))
        died = time.monotonic()

        # Twice as long as a lease: a mirror without its primary stays in use.
        reader.wait_for_reads(50, since=died)

        clone = alice.clone(cluster.url(REPOSITORY), tmp_path / "clone", "--noupdate")
        clone.hg("log", "-r", last).ok()
        for host in mirrors_of(cluster):
            assert is_used(cluster, host), host.name
        faults.stack.close()
        wait_until("alice is served", lambda: alice.ssh("whoami").ok(), SECONDS)
    assert reader.failed == []
    assert pusher.failed or fault is paused, "no push was under way"
    wait_until("both show a push", lambda: is_visible_everywhere(cluster, work), SECONDS)
    wait_until("both show all", lambda: show(cluster, pusher.acknowledged), SECONDS)


def show(cluster: Cluster, acknowledged: Mapping[int, str]) -> bool:
    """Tell whether each mirror shows each acknowledged push; an error names a missing push."""
    query = f"json-pushes?startID={min(acknowledged) - 1}&endID={max(acknowledged)}"
    for host in mirrors_of(cluster):
        shown = cluster.get(f"https://{cluster.address(host)}:8443/{REPOSITORY}/{query}")
        for number, node in acknowledged.items():
            assert f'"{number}"' in shown.body, f"{host.name}: no push {number}"
            assert node in shown.body, f"{host.name}: push {number} has no {node}"
    return True


def runs(host: Host, unit: str) -> bool:
    """Tell whether a unit of a host is active."""
    return bool(host.systemctl("is-active", unit).ok())


def test_no_push_is_lost_when_relay_and_appliers_and_a_whole_mirror_are_killed(
    cluster: Cluster, work: Clone, faults: Faults
) -> None:
    mirrors = mirrors_of(cluster)
    units = [(cluster.first("ssh"), "hgfleet-relay.service")]
    units += [(host, "hgfleet-applier.service") for host in mirrors]
    acknowledged = {}
    with ThreadPoolExecutor(1) as pool:
        for turn in range(KILLS + 1):
            push = pool.submit(pushed, work, uuid.uuid4().bytes)
            if turn < KILLS:
                host, unit = units[turn % len(units)]
                host.systemctl("kill", "--signal=KILL", unit)
            else:
                faults.break_(killed, mirrors[0])
            node, said = push.result()
            acknowledged[number_of(said)] = node
    faults.stack.close()

    assert len(acknowledged) == KILLS + 1
    for host, unit in units:
        wait_until(f"{unit} runs", partial(runs, host, unit), SECONDS)
    wait_until("both show all", lambda: show(cluster, acknowledged), SECONDS)
