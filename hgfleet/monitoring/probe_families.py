"""Metrics of the probes out of their history. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.monitoring.exposition import COUNTER, Family, labelled, single

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.probes.history import History


def of(found: History, *, shows_page: bool) -> Iterator[Family]:
    """Yield the metrics of the clones, and of the status page where there is one."""
    yield Family(
        "hgfleet_probes_total",
        "Attempts of a probe by their result.",
        (
            ({"probe": "clone", "result": "succeeded"}, float(found.total.succeeded)),
            ({"probe": "clone", "result": "failed"}, float(found.total.failed)),
        ),
        COUNTER,
    )
    yield labelled(
        "hgfleet_probe_seconds_total",
        "Duration of the succeeded attempts of a probe.",
        "probe",
        {"clone": found.total.seconds},
        COUNTER,
    )
    last = found.results[-1] if found.results else None
    yield labelled(
        "hgfleet_probe_last_run_timestamp_seconds",
        "Begin of the last attempt of a probe; 0 before the first.",
        "probe",
        {"clone": last.time if last else 0},
    )
    if last is not None:
        yield labelled(
            "hgfleet_probe_success",
            "Whether the last attempt of a probe succeeded.",
            "probe",
            {"clone": last.seconds is not None},
        )
    if last is not None and last.seconds is not None:
        yield labelled(
            "hgfleet_probe_duration_seconds",
            "Duration of the last attempt of a probe, if it succeeded.",
            "probe",
            {"clone": last.seconds},
        )
    if shows_page:
        yield single(
            "hgfleet_status_page_uploaded_timestamp_seconds",
            "Time of the last upload of the status page; 0 before the first.",
            found.uploaded,
        )
