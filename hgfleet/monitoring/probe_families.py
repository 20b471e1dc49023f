"""Metrics of the probes out of their histories. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.monitoring.exposition import COUNTER, Family, labelled, single
from hgfleet.probes.history import CLONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hgfleet.probes.history import History


def of(found: Mapping[str, History], *, shows_page: bool) -> Iterator[Family]:
    """Yield the metrics of each probe, and of the status page where there is one."""
    yield Family(
        "hgfleet_probes_total",
        "Attempts of a probe by their result.",
        tuple(
            ({"probe": probe, "result": result}, float(count))
            for probe, one in found.items()
            for result, count in (
                ("succeeded", one.total.succeeded),
                ("failed", one.total.failed),
            )
        ),
        COUNTER,
    )
    yield labelled(
        "hgfleet_probe_seconds_total",
        "Duration of the succeeded attempts of a probe.",
        "probe",
        {probe: one.total.seconds for probe, one in found.items()},
        COUNTER,
    )
    last = {probe: one.results[-1] for probe, one in found.items() if one.results}
    yield labelled(
        "hgfleet_probe_last_run_timestamp_seconds",
        "Begin of the last attempt of a probe; 0 before the first.",
        "probe",
        {probe: last[probe].time if probe in last else 0 for probe in found},
    )
    yield labelled(
        "hgfleet_probe_success",
        "Whether the last attempt of a probe succeeded.",
        "probe",
        {probe: one.seconds is not None for probe, one in last.items()},
    )
    yield labelled(
        "hgfleet_probe_duration_seconds",
        "Duration of the last attempt of a probe, if it succeeded.",
        "probe",
        {probe: one.seconds for probe, one in last.items() if one.seconds is not None},
    )
    if shows_page:
        yield single(
            "hgfleet_status_page_uploaded_timestamp_seconds",
            "Time of the last upload of the status page; 0 before the first.",
            found[CLONE].uploaded,
        )
