"""State of alerts during a provocation; hosts write their metrics on demand."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from testing.faults.alert_faults import hung_host
from testing.faults.alert_table import Place, host_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from testing.e2e.cluster import Cluster
    from testing.faults.alert_faults import Scene
    from testing.faults.alert_table import Provocation

SECONDS: Final = 120
"""Until alerts fire or end: the daemons' timers, the next scrapes, and a busy machine."""


def write_metrics(cluster: Cluster, provocations: Sequence[Provocation]) -> None:
    """Have hosts write their metrics now instead of within 15 s."""
    places = {
        place
        for provocation in provocations
        for place in (provocation.place, *(s.place for s in provocation.shown))
    }
    hung = {provocation.place for provocation in provocations if provocation.fault is hung_host}
    for place in sorted(places - hung - {Place.NONE}):
        host = host_of(cluster, place)
        # Where the service is stopped, missing metrics are the fault.
        if host.systemctl("is-active", "hgfleet-metrics.service").code == 0:
            host.systemctl("reload", "hgfleet-metrics.service").ok()


def matches(active: Sequence[Mapping[str, str]], wanted: Mapping[str, str], *states: str) -> bool:
    """Tell whether an alert with these labels is in any of these states."""
    return any(alert["state"] in states and wanted.items() <= alert.items() for alert in active)


def sees(scene: Scene, wanted: Sequence[Mapping[str, str]], *, firing: bool) -> bool:
    """Tell whether all alerts fire, or all are inactive; an error names the exceptions."""
    active = scene.watch.alerts()
    if firing:
        wrong = [labels for labels in wanted if not matches(active, labels, "firing")]
    else:
        wrong = [labels for labels in wanted if matches(active, labels, "firing", "pending")]
    assert not wrong, f"{len(wrong)} of {len(wanted)} do not: {wrong}"
    return True
