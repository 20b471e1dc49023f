"""Provocations: for each alert a fault of the cluster that makes it fire.

`./run-tests lint:alerts` refuses an alert that is in no provocation. `test_fault_alerts.py` begins
all provocations of a wave at once: they do not disturb each other.

| kind | the alert fires because |
| --- | --- |
| FAULT | a part is broken |
| RECORD | the record of a job or daemon tells of an old or bad run (`alert_records.py`) |
| HISTORY | a part is broken, and Prometheus has values of the hours before it |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Final

from testing.faults import alert_faults as faults
from testing.faults import alert_records as records
from testing.faults.alert_records import document

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host


class Kind(StrEnum):
    """The way in which a provocation makes alerts fire."""

    FAULT = "fault"
    RECORD = "record"
    HISTORY = "history"


class Place(StrEnum):
    """A host of the cluster, by its task; NONE for alerts on an objective of the whole service."""

    NONE = ""
    BROKER = "broker"
    CACHE = "cdn"
    DIRECTORY = "directory"
    MIRROR = "mirror"
    MONITOR = "monitoring"
    PRIMARY = "ssh"
    PROXY = "proxy"
    STANDBY = "standby"
    STORE = "objectstore"
    SECOND_STORE = "second store"


def host_of(cluster: Cluster, place: Place) -> Host:
    """Return the host of a place. The standby is a mirror too, the second store prunes backups."""
    match place:
        case Place.STANDBY:
            return cluster.all("ssh")[1]
        case Place.MIRROR:
            taken = cluster.all("ssh")
            return next(host for host in cluster.all("web") if host not in taken)
        case Place.SECOND_STORE:
            return cluster.all("objectstore")[1]
        case _:
            return cluster.first(place.value)


@dataclass(frozen=True)
class Shown:
    """An alert that fires, and its labels besides the host."""

    alert: str
    place: Place
    labels: Mapping[str, str] = field(default_factory=dict)

    def wanted(self, cluster: Cluster) -> dict[str, str]:
        """Return its labels in this cluster."""
        host = {"host": host_of(cluster, self.place).name} if self.place else {}
        return {"alertname": self.alert} | host | dict(self.labels)


@dataclass(frozen=True)
class Provocation:
    """A fault of a host, and the alerts that it makes fire."""

    kind: Kind
    wave: int
    place: Place
    fault: faults.Fault
    shown: tuple[Shown, ...]
    passes: str = ""
    """Series that an alert reads over minutes or hours, deleted after the fault has ended."""


def _on(place: Place, *alerts: str, **labels: str) -> tuple[Shown, ...]:
    return tuple(Shown(alert, place, labels) for alert in alerts)


BACKUP: Final = "/var/lib/hgfleet-backup"
INTEGRITY: Final = "/var/lib/hgfleet-integrity/figures.json"

_UNITS: Final = (
    # Before the clones that fail: without the store the status page is not uploaded.
    Provocation(
        Kind.FAULT,
        1,
        Place.STORE,
        faults.stopped_unit("hgfleet-objectstore.service"),
        (Shown("StoreDown", Place.STORE), Shown("EndpointDown", Place.PRIMARY)),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.MONITOR,
        faults.record("/var/lib/hgfleet-probes/clone.json", document(records.late_page)),
        (Shown("StatusPageStale", Place.MONITOR),),
    ),
    # Before the probes, whose pushes fail.
    Provocation(
        Kind.FAULT,
        1,
        Place.PRIMARY,
        faults.stopped_unit("hgfleet-sshd.service"),
        (
            Shown("SshDown", Place.PRIMARY),
            Shown("UnitDown", Place.PRIMARY, {"name": "hgfleet-sshd.service"}),
        ),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.PROXY,
        faults.failing_probes,
        (
            Shown("HttpsDown", Place.PROXY),
            Shown("BudgetEndsFast", Place.NONE, {"objective": "clones"}),
            Shown("BudgetEndsSlowly", Place.NONE, {"objective": "clones"}),
            Shown("BudgetEndsFast", Place.NONE, {"objective": "probe-pushes"}),
            Shown("BudgetEndsSlowly", Place.NONE, {"objective": "probe-pushes"}),
        ),
        passes="objective:failures:total",
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.BROKER,
        faults.stopped_unit("hgfleet-broker.service"),
        (
            Shown("BrokerUnreachable", Place.PRIMARY),
            *_on(Place.MIRROR, "MirrorCutOff", server="broker"),
        ),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.MIRROR,
        faults.stopped_unit("hgfleet-applier.service"),
        (Shown("MirrorAway", Place.PRIMARY),),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.STANDBY,
        faults.stopped_unit("slapd.service"),
        (Shown("ReplicaNotInSync", Place.STANDBY),),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.CACHE,
        faults.hung_host,
        _on(Place.CACHE, "HostDown", "CacheDown"),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.MIRROR,
        faults.failed_job,
        (Shown("JobFailed", Place.MIRROR, {"name": "hgfleet-integrity.service"}),),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.STANDBY,
        faults.drained,
        (Shown("HostDrained", Place.STANDBY),),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.SECOND_STORE,
        faults.ending_certificate,
        (
            Shown("CertificateEnds", Place.SECOND_STORE, {"file": "cert.pem"}),
            Shown("ServedCertificateEnds", Place.SECOND_STORE),
        ),
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.MONITOR,
        faults.undelivered,
        (Shown("AlertsNotDelivered", Place.MONITOR),),
        passes="alertmanager_notifications_failed_total",
    ),
    Provocation(
        Kind.FAULT,
        2,
        Place.PRIMARY,
        faults.closed_push_log,
        (Shown("PushesNotPublished", Place.PRIMARY),),
    ),
    # In this wave, because the mirror asks the source, and the other wave has no broker.
    Provocation(
        Kind.FAULT,
        2,
        Place.STANDBY,
        faults.mirror_that_is_ahead,
        (
            Shown("DocumentRefused", Place.STANDBY, {"document": "registry"}),
            Shown("RepositorySetAside", Place.STANDBY),
        ),
    ),
    Provocation(
        Kind.FAULT,
        2,
        Place.PRIMARY,
        faults.fenced_repository,
        (Shown("RepositoryFenced", Place.PRIMARY),),
    ),
    # After the other wave, in which the mirror has no broker and so compares nothing.
    Provocation(
        Kind.FAULT,
        2,
        Place.MIRROR,
        faults.broken_mirror,
        _on(Place.MIRROR, "MirrorBehind", "ReplicationPaused", "RepositoryParked"),
    ),
)
_REFUSALS: Final = (
    # Apart from the other waves, whose faults the relay and the applier tell of.
    Provocation(
        Kind.RECORD,
        3,
        Place.PRIMARY,
        faults.ended_daemon(
            "hgfleet-relay.service",
            "/run/hgfleet-replication",
            {"state.json": document(records.refusing_broker)},
        ),
        _on(
            Place.PRIMARY,
            "BrokerIncomplete",
            "BrokerRefuses",
            "EventsNotAnnounced",
            "PushesWait",
        ),
    ),
    Provocation(
        Kind.RECORD,
        3,
        Place.MIRROR,
        faults.ended_daemon(
            "hgfleet-applier.service",
            "/run/hgfleet-replication",
            {"state.json": document(records.documents_away)},
        ),
        _on(Place.MIRROR, "DocumentsAway"),
    ),
    # The cluster has no receivers.
    Provocation(
        Kind.RECORD,
        3,
        Place.STANDBY,
        faults.new_file("/run/hgfleet-webhooks/state.json", records.dead_events),
        _on(Place.STANDBY, "WebhookEventsDead", receiver="ci"),
    ),
)
_HOSTS: Final = (
    # Of the wave in which the store answers.
    Provocation(
        Kind.FAULT,
        2,
        Place.STORE,
        faults.stopped_unit(faults.EXPORTER),
        _on(Place.STORE, "ExporterDown"),
    ),
    Provocation(Kind.FAULT, 2, Place.PROXY, faults.slow_clock, _on(Place.PROXY, "ClockOff")),
    Provocation(
        Kind.RECORD,
        2,
        Place.DIRECTORY,
        faults.ended_daemon(
            "hgfleet-firewall-watch.service",
            "/run/hgfleet-firewall-watch",
            {"state.json": document(records.open_firewall)},
        ),
        _on(Place.DIRECTORY, "FirewallNotInForce", "FirewallRestored"),
    ),
    Provocation(
        Kind.RECORD,
        2,
        Place.CACHE,
        faults.record("/run/hgfleet-outdated/units.json", document(records.outdated_units)),
        _on(Place.CACHE, "UnitOutdated", name="hgfleet-broker.service"),
    ),
)
_DISKS: Final = (
    Provocation(
        Kind.FAULT,
        2,
        Place.BROKER,
        faults.readonly_disk,
        _on(Place.BROKER, "FilesystemReadOnly", device=faults.DISK_DEVICE),
    ),
    Provocation(
        Kind.HISTORY,
        1,
        Place.BROKER,
        faults.full_disk,
        _on(
            Place.BROKER,
            "DiskAlmostFull",
            "DiskFillsUp",
            "InodesAlmostUsed",
            device=faults.DISK_DEVICE,
        ),
    ),
)
_METRICS: Final = (
    Provocation(
        Kind.FAULT, 1, Place.BROKER, faults.old_metrics, (Shown("MetricsStale", Place.BROKER),)
    ),
    Provocation(
        Kind.FAULT, 1, Place.PROXY, faults.no_metrics, (Shown("MetricsMissing", Place.PROXY),)
    ),
    Provocation(
        Kind.FAULT,
        1,
        Place.MIRROR,
        faults.record(INTEGRITY, records.damaged),
        (Shown("MetricsUnreadable", Place.MIRROR, {"source": "integrity"}),),
    ),
)
_RECORDS: Final = (
    Provocation(
        Kind.RECORD,
        1,
        Place.PRIMARY,
        faults.record("/var/lib/hgfleet-bundles/last-run.json", document(records.late_bundles)),
        _on(
            Place.PRIMARY,
            "BundleRunMissing",
            "BundlesFailing",
            "BundlesIncomplete",
            "BundlesMissing",
        ),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.PRIMARY,
        faults.record("/var/lib/hgfleet-bundles/corrupt.json", document(records.corrupt_bundle)),
        (Shown("BundleCorrupt", Place.PRIMARY, {"place": "s3-1"}),),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.PRIMARY,
        faults.record(INTEGRITY, document(records.late_verification)),
        _on(Place.PRIMARY, "RepositoryCorrupt", "VerificationMissing", "VerificationOverdue"),
    ),
    # After the other wave, so that the count from before has been seen for minutes.
    Provocation(
        Kind.RECORD,
        2,
        Place.PRIMARY,
        faults.record("/run/hgfleet-counters/pushes", records.unrecorded_pushes),
        (Shown("PushesUnrecorded", Place.PRIMARY, {"reason": "unrecorded"}),),
        passes="hgfleet_push_failures_total",
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.STANDBY,
        faults.record(f"{BACKUP}/runs.json", document(records.late_backup)),
        _on(Place.STANDBY, "BackupMissing", "BackupIncomplete"),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.STANDBY,
        faults.record(f"{BACKUP}/drills.json", document(records.late_drills)),
        _on(Place.STANDBY, "DrillFailed", "DrillMissing"),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.DIRECTORY,
        faults.record(f"{BACKUP}/runs.json", document(records.no_backup)),
        (Shown("BackupNeverRan", Place.DIRECTORY),),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.SECOND_STORE,
        faults.record(f"{BACKUP}/packs.json", document(records.late_checks)),
        _on(Place.SECOND_STORE, "PacksCorrupt", "PacksNotChecked", "PacksUnread"),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.SECOND_STORE,
        faults.record(f"{BACKUP}/prunes.json", document(records.refused_prune)),
        _on(Place.SECOND_STORE, "PruneRefused"),
    ),
    Provocation(
        Kind.RECORD,
        1,
        Place.MIRROR,
        faults.ended_daemon(
            "hgfleet-steering.service",
            "/run/hgfleet-steering",
            {
                "health.json": document(records.silent_prober),
                "health.objects": records.dead_object,
            },
        ),
        _on(Place.MIRROR, "ProberSilent", "BundlesDead"),
    ),
    # After the other wave, since no page is stale without probes.
    Provocation(
        Kind.RECORD,
        2,
        Place.MONITOR,
        faults.together(
            faults.stopped_unit("hgfleet-probes.service"),
            faults.record("/var/lib/hgfleet-probes/clone.json", document(records.late_probe)),
            faults.record("/var/lib/hgfleet-probes/push.json", document(records.late_probe)),
        ),
        (
            Shown("ProbesStopped", Place.MONITOR, {"probe": "clone"}),
            Shown("ProbesStopped", Place.MONITOR, {"probe": "push"}),
        ),
    ),
)

TABLE: Final = (*_UNITS, *_REFUSALS, *_HOSTS, *_DISKS, *_METRICS, *_RECORDS)

SMOKE: Final = ("SshDown", "BundleCorrupt")
"""Alerts that the gate provokes: about connections as clients make them, and a job's record."""

NOT_PROVOKED: Final[Mapping[str, str]] = {
    "Watchdog": "it always fires; testing/e2e/test_monitoring.py sees it at the Alertmanager",
}
"""Alerts that no test provokes, each with the reason."""


def provoked() -> list[str]:
    """Return the names of the provoked alerts, once for each set of labels."""
    return [shown.alert for provocation in TABLE for shown in provocation.shown]
