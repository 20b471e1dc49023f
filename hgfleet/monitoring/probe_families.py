"""Metrics of the probes out of their histories. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.monitoring.exposition import COUNTER, Family, labelled, single
from hgfleet.probes.result_history import CLONE

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hgfleet.probes.result_history import History


def of(histories: Mapping[str, History], *, shows_page: bool) -> Iterator[Family]:
    """Yield the metrics of each probe, and of the status page if there is such a page."""
    yield Family(
        "hgfleet_probes_total",
        "Attempts of a probe by their result.",
        tuple(
            ({"probe": probe, "result": result}, float(count))
            for probe, history in histories.items()
            for result, count in (
                ("succeeded", history.total.succeeded),
                ("failed", history.total.failed),
            )
        ),
        COUNTER,
    )
    yield labelled(
        "hgfleet_probe_seconds_total",
        "Duration of the succeeded attempts of a probe.",
        "probe",
        {probe: history.total.seconds for probe, history in histories.items()},
        COUNTER,
    )
    last = {probe: history.results[-1] for probe, history in histories.items() if history.results}
    yield labelled(
        "hgfleet_probe_last_run_timestamp_seconds",
        "Begin of the last attempt of a probe; 0 before the first.",
        "probe",
        {probe: last[probe].time if probe in last else 0 for probe in histories},
    )
    yield labelled(
        "hgfleet_probe_success",
        "Whether the last attempt of a probe succeeded.",
        "probe",
        {probe: result.seconds is not None for probe, result in last.items()},
    )
    yield labelled(
        "hgfleet_probe_duration_seconds",
        "Duration of the last attempt of a probe, if it succeeded.",
        "probe",
        {probe: result.seconds for probe, result in last.items() if result.seconds is not None},
    )
    if shows_page:
        yield single(
            "hgfleet_status_page_uploaded_timestamp_seconds",
            "Time of the last upload of the status page; 0 before the first.",
            histories[CLONE].uploaded,
        )
