"""Metrics of this host out of its facts. Pure.

Names follow Prometheus' conventions: `hgfleet_*`, base units, times in seconds since 1970 (a query
for an age is `time() - ..._timestamp_seconds`). Labels have values from the inventory or from a
list in this code, never the name of a user. The label for repositories has only the busiest public
repositories.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup import exposure
from hgfleet.core import stored_time
from hgfleet.directory.sync_check import EXIT_CODES
from hgfleet.monitoring import probe_families, replication_families, traffic_families
from hgfleet.monitoring.exposition import Family, Histogram, labelled, single

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from hgfleet.backup.restic.packs import Checked
    from hgfleet.bundles.steps.run_record import Record
    from hgfleet.integrity.state import Figures
    from hgfleet.monitoring.facts import Backup, Facts
    from hgfleet.steering.health import Health

WEB: Final = "hgfleet-web.service"
"""The unit of a web host, the only kind of host that can be drained."""

SSH: Final = "hgfleet-sshd.service"
"""The unit of a host that people push to. Other hosts with copies of repositories can only count
refused pushes."""

BUNDLES: Final = "hgfleet-bundles.timer"
INTEGRITY: Final = "hgfleet-integrity.timer"
PROBES: Final = "hgfleet-probes.service"
"""Units of jobs: a host with such a unit has the job's metrics, even before the first run."""

DAY_SECONDS: Final = 86_400

FIREWALL_SECONDS: Final = 120
"""An older look at the firewall counts as none; there is one in 15 seconds."""

ENDS: Final = frozenset(
    {
        "hgfleet_certificate_expiry_timestamp_seconds",
        "hgfleet_web_drain_end_timestamp_seconds",
        "hgfleet_replication_lease_end_timestamp_seconds",
        # Alerts fire for a recent time, and therefore for a time from the future, too.
        "hgfleet_bundles_last_corrupt_timestamp_seconds",
        "hgfleet_firewall_restored_timestamp_seconds",
    }
)
"""Times that usually lie in the future, and times for which "never" would raise no alarm."""


def of(facts: Facts) -> list[Family | Histogram]:
    """Return every metric that the facts have a value for; a time from the future becomes 0."""
    return [_past(family, facts.now) for family in _of(facts)]


def _past(family: Family | Histogram, now: float) -> Family | Histogram:
    """Return a family in which each time later than the clock is replaced by `NEVER`.

    An alert computes the age of such a time, and would stay silent until the clock reaches it.
    """
    is_end = family.name in ENDS
    if isinstance(family, Histogram) or is_end or not family.name.endswith("_timestamp_seconds"):
        return family
    samples = tuple((labels, stored_time.past(value, now)) for labels, value in family.samples)
    return replace(family, samples=samples)


def _of(facts: Facts) -> list[Family | Histogram]:
    return [
        *_host(facts),
        *(_backup(facts.backup, facts.now) if facts.backup is not None else ()),
        *(_packs(facts.packs, facts.refused_prunes) if facts.packs else ()),
        *(_bundles(facts.bundles, facts.corrupt_bundles) if BUNDLES in facts.enabled else ()),
        *(_integrity(facts.integrity) if INTEGRITY in facts.enabled else ()),
        *traffic_families.of(
            facts, takes_ssh=SSH in facts.enabled, takes_https=WEB in facts.enabled
        ),
        *(
            probe_families.of(facts.probes, shows_page=facts.shows_page)
            if facts.probes and PROBES in facts.enabled
            else ()
        ),
        *(replication_families.of(facts.replication) if facts.replication is not None else ()),
        *(_steering(facts.steering, facts) if facts.steering is not None else ()),
        *(_replica(facts.replica) if facts.replica is not None else ()),
        *(replication_families.of_webhooks(facts.webhooks) if facts.webhooks is not None else ()),
        *(_firewall(facts.firewall, facts.now) if facts.firewall is not None else ()),
    ]


def _host(facts: Facts) -> Iterator[Family]:
    yield labelled(
        "hgfleet_metrics_source_readable",
        "Whether the files of a source can be read (1), or are damaged or closed (0).",
        "source",
        {name: name not in facts.unreadable for name in facts.sources},
    )
    if facts.release is not None:
        yield labelled(
            "hgfleet_release_info", "The current release.", "version", {facts.release: 1}
        )
    yield labelled(
        "hgfleet_certificate_expiry_timestamp_seconds",
        "End of the certificate of the file that ends first.",
        "file",
        facts.certificates,
    )
    yield labelled(
        "hgfleet_unit_enabled",
        "Units of the service that start with the host.",
        "name",
        dict.fromkeys(facts.enabled, 1),
    )
    yield labelled(
        "hgfleet_unit_outdated",
        "Units of this host that run files which an update has replaced.",
        "name",
        dict.fromkeys(facts.outdated or (), 1),
    )
    yield labelled(
        "hgfleet_filesystem_readonly",
        "Whether the file system of a device takes no writes.",
        "device",
        facts.readonly,
    )
    if WEB in facts.enabled:
        until = drained_until(facts.drain)
        yield single(
            "hgfleet_web_drained",
            "Whether this web host is taken out of the proxies.",
            until is not None and (until == 0 or until > facts.now),
        )
        yield single(
            "hgfleet_web_drain_end_timestamp_seconds",
            "End of the drain; 0 without a drain, or if an operator has to end it.",
            until or 0,
        )


def drained_until(text: str | None) -> float | None:
    """Return the end of a drain, 0 if only an operator ends it; None without a drain."""
    if text is None:
        return None
    _, separator, until = text.strip().partition("until=")
    return float(until) if separator and until.isdecimal() else 0.0


def _backup(backup: Backup, now: float) -> Iterator[Family]:
    runs, drills = backup.runs, backup.drills
    yield single(
        "hgfleet_backup_last_run_timestamp_seconds",
        "End of the last run of the backup; 0 before the first.",
        runs.get("ended", 0),
    )
    yield single(
        "hgfleet_backup_last_run_duration_seconds",
        "Duration of the last run of the backup.",
        max(0, runs.get("ended", 0) - runs.get("started", 0)),
    )
    yield single(
        "hgfleet_backup_last_run_failures",
        "Repositories and files that the last run has no new backup of.",
        len(runs.get("failed", {})),
    )
    repositories = runs.get("repositories", {})
    yield single("hgfleet_backup_repositories", "Repositories with a backup.", len(repositories))
    if repositories or drills:
        times = [stored_time.past(float(drill.get("time", 0)), now) for drill in drills.values()]
        yield single(
            "hgfleet_backup_last_drill_timestamp_seconds",
            "Start of the last restore of a drill; 0 before the first.",
            max(times, default=0),
        )
    yield single(
        "hgfleet_backup_failed_drills",
        "Repositories whose last drill could not restore their backup.",
        sum(
            "error" in (exposure.drill_of(repository, drills.get(path)) or {})
            for path, repository in repositories.items()
        ),
    )
    unproven = [
        path
        for path, repository in repositories.items()
        if exposure.of(
            path, 0, repository, drills.get(path), mirrors=0, now=now, drill_days=backup.drill_days
        ).reason
    ]
    yield single(
        "hgfleet_backup_unproven_repositories",
        "Repositories without a backup that a recent drill has restored.",
        len(unproven),
    )


def _packs(checks: Mapping[str, Checked], refused: Mapping[str, bool]) -> Iterator[Family]:
    """Of the backups of other hosts, which this host prunes."""
    label = "backed_up_host"
    yield labelled(
        "hgfleet_backup_prune_refused",
        "Whether the last prune removed nothing of a host, because a time there cannot be right.",
        label,
        refused,
    )
    yield labelled(
        "hgfleet_backup_last_check_timestamp_seconds",
        "Time of the last check of a host's packs in the store; 0 before the first.",
        label,
        {host: check.time for host, check in checks.items()},
    )
    yield labelled(
        "hgfleet_backup_packs_oldest_read_timestamp_seconds",
        "Earliest time at which a part of a host's packs was last read.",
        label,
        {host: check.oldest for host, check in checks.items() if check.time},
    )
    yield labelled(
        "hgfleet_backup_corrupt_packs",
        "Packs of a host that are corrupt and not repaired yet.",
        label,
        {host: check.broken for host, check in checks.items()},
    )
    yield labelled(
        "hgfleet_backup_check_errors",
        "Errors that the last check of a host's backups found, in packs or beside them.",
        label,
        {host: check.errors for host, check in checks.items()},
    )


def _bundles(record: Record | None, corrupt: Mapping[str, float]) -> Iterator[Family]:
    yield single(
        "hgfleet_bundles_last_run_timestamp_seconds",
        "End of the last run of the bundle jobs for all repositories; 0 before the first.",
        record.ended if record else 0,
    )
    if record is None:
        return
    for name, text, value in (
        ("last_run_duration_seconds", "Duration of that run.", record.ended - record.started),
        ("last_run_failures", "Repositories that the run failed for.", record.failed),
        (
            "incomplete_repositories",
            "Repositories whose bundles are missing in some store.",
            record.incomplete,
        ),
        ("repositories", "Repositories that should have clone bundles.", record.repositories),
        ("covered_repositories", "Repositories with a verified clone bundle.", record.covered),
    ):
        yield single(f"hgfleet_bundles_{name}", text, max(0, value))
    if record.newest:
        yield single(
            "hgfleet_bundles_oldest_timestamp_seconds",
            "Time at which the oldest published clone bundle was made.",
            record.oldest,
        )
        yield single(
            "hgfleet_bundles_newest_timestamp_seconds",
            "Time at which the newest published clone bundle was made.",
            record.newest,
        )
    yield labelled(
        "hgfleet_bundles_published_bytes",
        "Size of the published clone bundles in a store.",
        "store",
        record.bytes,
    )
    yield from traffic_families.of_repositories(record.busiest)
    yield labelled(
        "hgfleet_bundles_last_corrupt_timestamp_seconds",
        "Time when a store, or the disk of pull bundles, last returned a corrupt bundle; else 0.",
        "place",
        corrupt,
    )


def _integrity(verification: Figures | None) -> Iterator[Family]:
    yield single(
        "hgfleet_integrity_last_run_timestamp_seconds",
        "End of the last run that verified repositories by the schedule; 0 before the first.",
        verification.ended if verification else 0,
    )
    if verification is None:
        return
    yield single(
        "hgfleet_integrity_repositories",
        "Repositories on this host's disk.",
        verification.repositories,
    )
    yield single(
        "hgfleet_integrity_corrupt_repositories",
        "Repositories that the last verification found corrupt.",
        verification.corrupt,
    )
    yield single(
        "hgfleet_integrity_period_seconds",
        "Time within which the schedule verifies each repository.",
        verification.days * DAY_SECONDS,
    )
    if verification.repositories:
        yield single(
            "hgfleet_integrity_oldest_verification_timestamp_seconds",
            "Earliest of the last verifications; of a new repository the time since it is there.",
            verification.oldest,
        )


def _steering(health: Health, facts: Facts) -> Iterator[Family]:
    yield single(
        "hgfleet_steering_written_timestamp_seconds",
        "Time of the prober's last round.",
        health.written,
    )
    yield labelled(
        "hgfleet_steering_endpoint_up",
        "Whether clients are sent to an endpoint of clone bundles.",
        "endpoint",
        {name: endpoint.is_up for name, endpoint in health.endpoints.items()},
    )
    yield single(
        "hgfleet_steering_dead_objects",
        "Clone bundles that manifests name and that are missing or corrupt.",
        facts.dead_objects,
    )


def _firewall(state: Mapping[str, Any], now: float) -> Iterator[Family]:
    looked = stored_time.past(float(state.get("looked", 0)), now)
    yield single(
        "hgfleet_firewall_in_force",
        "Whether the rules of the firewall are in force as they were loaded, at a recent look.",
        state.get("in_force") is True and now - looked < FIREWALL_SECONDS,
    )
    yield single(
        "hgfleet_firewall_restored_timestamp_seconds",
        "Time when the host last loaded rules again that were not in force; else 0.",
        state.get("restored", 0),
    )


def _replica(memory: Mapping[str, Any]) -> Iterator[Family]:
    state = memory.get("state")
    yield labelled(
        "hgfleet_replica_state",
        "State of this host's replica of the directory at the last check (1), else 0.",
        "state",
        {name: name == state for name in EXIT_CODES},
    )
