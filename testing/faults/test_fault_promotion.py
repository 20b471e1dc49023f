"""A mirror takes the place of a lost primary, and the former primary accepts no push.

The steps of a promotion are tested in `testing/integration/replication`, `test_promotion.py` and
`test_fencing.py`; here the playbook makes them on hosts.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

import pytest

from testing.e2e.command import wait_until
from testing.e2e.mirrors import REPOSITORY, SECONDS, log_of, mirrors_of, wait_for_use
from testing.faults.mirrors import number_of, pushed, wait_for_equality
from testing.faults.promotion import promote, towards
from testing.faults.support import stopped

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person
    from testing.faults.support import Faults

pytestmark = [pytest.mark.disruptive, pytest.mark.slow, pytest.mark.whole]


@pytest.fixture
def standby(cluster: Cluster) -> Host:
    """A host of the groups ssh and web that is a mirror."""
    first, *others = cluster.all("ssh")
    assert others, f"{first.name} is the only host of the group ssh"
    return others[0]


@pytest.fixture
def former(cluster: Cluster, standby: Host) -> Iterator[Host]:
    """The primary; it is the primary again afterwards.

    Set up before `faults`, so it ends after the host has started.
    """
    primary = cluster.first("ssh")
    yield primary
    if '"role": "mirror"' not in primary.run("hgfleet", "replication", "status", "--json").output:
        # The test ended before the former primary became a mirror.
        promote(cluster, standby)
    wait_until(
        f"{primary.name} has every push", lambda: log_of(primary) == log_of(standby), SECONDS
    )
    promote(cluster, primary)
    for host in mirrors_of(cluster):
        wait_for_use(cluster, host)
    wait_for_equality(cluster)


@pytest.fixture
def pusher(alice: Person, standby: Host, tmp_path: Path) -> Person:
    """Alice, whose commands go to the standby."""
    return towards(alice, standby, tmp_path)


def test_a_mirror_takes_the_place_of_a_primary_that_is_gone(
    cluster: Cluster,
    alice: Person,
    pusher: Person,
    standby: Host,
    former: Host,
    faults: Faults,
    tmp_path: Path,
) -> None:
    work = alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")
    before, said = pushed(work, uuid.uuid4().bytes)
    number = number_of(said)
    refused = pusher.ssh("token", "create")
    assert f"its primary is {former.name}" in refused.output
    faults.break_(stopped, former)

    told = promote(cluster, standby)

    assert f"{standby.name} is the primary of epoch" in told
    assert f"Not reached: {former.name}." in told
    new = pusher.clone(pusher.ssh_url(REPOSITORY), tmp_path / "new")
    assert before in new.heads()
    after, said = pushed(new, uuid.uuid4().bytes)
    assert number_of(said) == number + 1
    wait_until("readers see the push", lambda: after in cluster.remote_heads(REPOSITORY), SECONDS)

    faults.stack.close()
    work.commit("file.txt", uuid.uuid4().bytes, "to the former primary")

    def is_refused() -> bool:
        push = work.hg("push")
        assert push.code != 0, push.output
        assert f"{standby.name} has been the primary of this site since epoch" in push.output
        return True

    wait_until(f"{former.name} names the new primary", is_refused, SECONDS)
    assert len(log_of(former).splitlines()) == number
    # The next run makes the former primary a mirror of the new primary, and the push arrives there.
    promote(cluster, standby)
    wait_until(f"{former.name} follows", lambda: log_of(former) == log_of(standby), SECONDS)
