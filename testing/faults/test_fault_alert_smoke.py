"""Alerts of two kinds reach the Alertmanager while their faults last, and end after them.

The first alert is about connections as clients make them, the second about a job's record.
`test_fault_alerts.py` provokes all alerts.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.command import wait_until
from testing.faults.alert_faults import Scene
from testing.faults.alert_scene import SECONDS, sees, write_metrics
from testing.faults.alert_table import SMOKE, TABLE, host_of
from testing.faults.alert_watch import watch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.cluster import Cluster

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

CHOSEN: Final = [
    provocation for provocation in TABLE if any(shown.alert in SMOKE for shown in provocation.shown)
]


@pytest.fixture
def scene(cluster: Cluster) -> Iterator[Scene]:
    """Begin to watch."""
    with watch(cluster.first("monitoring")) as watching:
        yield Scene(cluster, watching)


def test_alerts_of_connections_and_of_records_reach_the_alertmanager(scene: Scene) -> None:
    wanted = [shown.wanted(scene.cluster) for provocation in CHOSEN for shown in provocation.shown]
    names = {labels["alertname"] for labels in wanted}
    wait_until("the alerts are quiet", lambda: sees(scene, wanted, firing=False), SECONDS)
    assert not names & scene.watch.delivered()

    with ExitStack() as stack:
        for provocation in CHOSEN:
            stack.enter_context(provocation.fault(scene, host_of(scene.cluster, provocation.place)))
        write_metrics(scene.cluster, CHOSEN)
        wait_until("the alerts fire", lambda: sees(scene, wanted, firing=True), SECONDS, 1)
        wait_until("Alertmanager has them", lambda: names <= scene.watch.delivered(), SECONDS, 1)

    write_metrics(scene.cluster, CHOSEN)
    wait_until("the alerts end", lambda: sees(scene, wanted, firing=False), SECONDS, 1)
