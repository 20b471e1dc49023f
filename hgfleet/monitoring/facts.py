"""Facts about this host: the files in which its parts record their state, read as they are (I/O).

Each source is read by itself. A missing file means that the host does not have that part. A source
that cannot be read or parsed is named in `unreadable`, and the metrics of other sources are not
affected.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.backup import run_records
from hgfleet.backup.restic import packs, prune
from hgfleet.backup.restic.settings import load as load_backup
from hgfleet.bundles.steps import run_record as bundle_record
from hgfleet.bundles.stores import corruption
from hgfleet.core import certificate, counters
from hgfleet.core.errors import HgfleetError
from hgfleet.hg import clone_counts, push_outcome
from hgfleet.integrity import state as integrity
from hgfleet.probes import result_history
from hgfleet.probes.settings import load as load_probes
from hgfleet.ssh.keys import lookup_counts
from hgfleet.ssh.session import session_counts
from hgfleet.steering import health
from hgfleet.web.http import request_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

RELEASE: Final = "opt/hgfleet/current"
CERTIFICATES: Final = {"ca.pem": "etc/hgfleet/tls/ca.pem", "cert.pem": "etc/hgfleet/tls/cert.pem"}
ACME: Final = "etc/hgfleet/acme.toml"
ACME_CERTIFICATE: Final = "var/lib/hgfleet-acme/served/cert.pem"
UNITS: Final = "etc/systemd/system"
DRAIN: Final = "etc/hgfleet/web.drain"
BACKUP: Final = "etc/hgfleet/backup.toml"
BUNDLES: Final = "var/lib/hgfleet-bundles"
INTEGRITY: Final = "var/lib/hgfleet-integrity"
COUNTERS: Final = "run/hgfleet-counters"
LOOKUPS: Final = "run/hgfleet-lookups"
WEB: Final = "run/hgfleet-web"
PROBES: Final = "etc/hgfleet/probes.toml"
REPLICATION: Final = "run/hgfleet-replication/state.json"
STEERING: Final = "run/hgfleet-steering/health.json"
REPLICA: Final = "run/hgfleet/replica.json"
WEBHOOKS: Final = "run/hgfleet-webhooks/state.json"
FIREWALL: Final = "run/hgfleet-firewall-watch/state.json"
OUTDATED: Final = "run/hgfleet-outdated/units.json"
MOUNTS: Final = "proc/self/mountinfo"

DISKS: Final = frozenset(
    {
        *("bcachefs", "btrfs", "ext2", "ext3", "ext4", "f2fs", "nfs", "nfs4"),
        *("overlay", "xfs", "zfs"),
    }
)
"""Types of file systems that hold data, and that the kernel makes read-only after an error."""

MAX_BYTES: Final = 16 * 1024 * 1024

SERVERS: Final = ("hgfleet-", "haproxy", "nginx", "slapd", "ssh.", "prometheus")
"""Prefixes of the units that belong to the service."""


@dataclass(frozen=True, slots=True)
class Backup:
    """The record of backups of a host with state, and for how long a drill counts."""

    runs: Mapping[str, Any]
    drills: Mapping[str, Any]
    drill_days: int


@dataclass(slots=True)
class Facts:
    """A source is None where the host has no such part. Times are in seconds since 1970."""

    now: float
    release: str | None = None
    certificates: dict[str, float] = field(default_factory=dict)
    """By the name of the file: the end of the certificate that ends first."""
    enabled: frozenset[str] = frozenset()
    """Services, sockets and timers that start with the host."""
    drain: str | None = None
    """The content of the file that takes a web host out of the proxies."""
    backup: Backup | None = None
    packs: Mapping[str, packs.Checked] = field(default_factory=dict)
    """By the host whose backups this host prunes: the checks of their packs."""
    refused_prunes: Mapping[str, bool] = field(default_factory=dict)
    """By the same hosts: whether the last prune was refused."""
    bundles: bundle_record.Record | None = None
    corrupt_bundles: Mapping[str, float] = field(default_factory=dict)
    """By the place that returned it: the time of the last corrupt bundle."""
    integrity: integrity.Figures | None = None
    pushes: push_outcome.Pushes | None = None
    lookups: lookup_counts.Lookups | None = None
    sessions: session_counts.Sessions | None = None
    clones: dict[str, clone_counts.Answers] = field(default_factory=dict)
    """Clones and pulls by transport."""
    requests: request_counts.Requests | None = None
    probes: Mapping[str, result_history.History] | None = None
    """By the name of the probe."""
    shows_page: bool = False
    """Whether the settings of the probes have a store for the status page."""
    replication: Mapping[str, Any] | None = None
    steering: health.Health | None = None
    dead_objects: int = 0
    replica: Mapping[str, Any] | None = None
    webhooks: Mapping[str, Mapping[str, Any]] | None = None
    """By the name of the receiver."""
    firewall: Mapping[str, Any] | None = None
    outdated: Mapping[str, str] | None = None
    """Units that run files which an update replaced, each with such a file."""
    readonly: dict[str, bool] = field(default_factory=dict)
    """By the device of a file system: whether the kernel refuses all writes to it."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """The reason by source."""
    sources: tuple[str, ...] = ()


def read(root: Path, now: float) -> Facts:
    """Read every source below a folder, which is / on a host."""
    facts = Facts(now)
    sources: dict[str, Callable[[Path, Facts], None]] = {
        "release": _release,
        "certificates": _certificates,
        "units": _units,
        "drain": _drain,
        "backup": _backup,
        "bundles": _bundles,
        "integrity": _integrity,
        "pushes": _pushes,
        "lookups": _lookups,
        "sessions": _sessions,
        "clones": _clones,
        "requests": _requests,
        "probes": _probes,
        "replication": _replication,
        "steering": _steering,
        "replica": _replica,
        "webhooks": _webhooks,
        "firewall": _firewall,
        "outdated": _outdated,
        "mounts": _mounts,
    }
    facts.sources = tuple(sources)
    for name, source in sources.items():
        try:
            source(root, facts)
        except FileNotFoundError:
            continue
        except (OSError, ValueError, TypeError, HgfleetError) as error:
            facts.unreadable[name] = str(error)
    return facts


def _release(root: Path, facts: Facts) -> None:
    facts.release = (root / RELEASE).readlink().name


def _certificates(root: Path, facts: Facts) -> None:
    served = dict(CERTIFICATES)
    if (root / ACME).exists():
        # Without settings of ACME, a certificate that was left there is not in use.
        served["acme/cert.pem"] = ACME_CERTIFICATE
        if not (root / ACME_CERTIFICATE).exists():
            raise ValueError(f"/{ACME_CERTIFICATE} is missing")
    for name, path in served.items():
        text = (root / path).read_text("ascii")
        facts.certificates[name] = min(end for _, end in certificate.validities(text))


def _units(root: Path, facts: Facts) -> None:
    names = (link.name for link in (root / UNITS).glob("*.wants/*"))
    facts.enabled = frozenset(name for name in names if name.startswith(SERVERS))


def _drain(root: Path, facts: Facts) -> None:
    with (root / DRAIN).open(encoding="utf-8", errors="replace") as file:
        facts.drain = file.read(100)


def _backup(root: Path, facts: Facts) -> None:
    if not (root / BACKUP).exists():
        return
    settings = load_backup(root / BACKUP)
    folder = root / settings.state.relative_to("/")
    if settings.pruned:
        # The probe has no state of its own.
        checks = run_records.load(folder, run_records.PACKS)
        facts.packs = {
            host: packs.checked(checks.get(host, {}), facts.now) for host in settings.pruned
        }
        looks = run_records.load(folder, run_records.PRUNES)
        facts.refused_prunes = {
            host: bool(prune.parse_look(looks.get(host)).refused) for host in settings.pruned
        }
        return
    runs, drills = (
        run_records.load(folder, run_records.RUNS),
        run_records.load(folder, run_records.DRILLS),
    )
    facts.backup = Backup(runs, drills, settings.drill_days)


def _bundles(root: Path, facts: Facts) -> None:
    facts.bundles = bundle_record.parse(_content(root / BUNDLES / bundle_record.NAME))
    facts.corrupt_bundles = corruption.parse(_content(root / BUNDLES / corruption.NAME))


def _integrity(root: Path, facts: Facts) -> None:
    facts.integrity = integrity.parse_figures(_content(root / INTEGRITY / integrity.FIGURES))


def _pushes(root: Path, facts: Facts) -> None:
    counts = _counts(root / COUNTERS, push_outcome.FILE)
    facts.pushes = push_outcome.of(counts) if counts is not None else None


def _lookups(root: Path, facts: Facts) -> None:
    counts = _counts(root / LOOKUPS, lookup_counts.FILE)
    facts.lookups = lookup_counts.Lookups(counts) if counts is not None else None


def _sessions(root: Path, facts: Facts) -> None:
    counts = _counts(root / COUNTERS, session_counts.FILE)
    facts.sessions = session_counts.Sessions(counts) if counts is not None else None


def _clones(root: Path, facts: Facts) -> None:
    counts = _counts(root / COUNTERS, clone_counts.FILE)
    if counts is not None:
        facts.clones["ssh"] = clone_counts.Answers(counts)


def _requests(root: Path, facts: Facts) -> None:
    # Web workers have a single file for both.
    counts = _counts(root / WEB, request_counts.FILE)
    if counts is not None:
        facts.requests = request_counts.Requests(counts)
        facts.clones["https"] = clone_counts.Answers(counts)


def _counts(folder: Path, name: str) -> Mapping[str, float] | None:
    """Read counters. The folder without a file means no counts yet; None without the folder."""
    try:
        return counters.parse(_content(folder / name))
    except FileNotFoundError:
        return {} if folder.is_dir() else None


def _probes(root: Path, facts: Facts) -> None:
    if not (root / PROBES).exists():
        return
    settings = load_probes(root / PROBES)
    facts.shows_page = settings.store is not None
    folder = root / settings.state.relative_to("/")
    facts.probes = {
        probe: result_history.load(folder, probe)
        for probe in result_history.PROBES
        if settings.has(probe)
    }


def _replication(root: Path, facts: Facts) -> None:
    facts.replication = _document(root / REPLICATION)


def _steering(root: Path, facts: Facts) -> None:
    file = root / STEERING
    state = health.parse(file.read_text("utf-8"))
    if state is None:
        raise ValueError(f"{file}: not the state of a prober")
    facts.steering = state
    with health.objects_file(file).open("rb") as lines:
        facts.dead_objects = sum(line.split(b" ", 2)[1:2] == [b"dead"] for line in lines)


def _replica(root: Path, facts: Facts) -> None:
    facts.replica = _document(root / REPLICA)


def _webhooks(root: Path, facts: Facts) -> None:
    found = _document(root / WEBHOOKS)
    if not all(isinstance(one, dict) for one in found.values()):
        raise TypeError(f"{WEBHOOKS}: got {found!r:.200}, expected an object for each receiver")
    facts.webhooks = found


def _firewall(root: Path, facts: Facts) -> None:
    facts.firewall = _document(root / FIREWALL)


def _outdated(root: Path, facts: Facts) -> None:
    units = _document(root / OUTDATED).get("units")
    if not isinstance(units, dict):
        raise TypeError(f"{OUTDATED}: got units {units!r:.200}, expected an object")
    facts.outdated = units


def _mounts(root: Path, facts: Facts) -> None:
    """Read which file systems are read-only: by the options of the file system.

    The options of a mount say less: the sandbox of this program has its mounts read-only.
    """
    for line in _content(root / MOUNTS).decode("utf-8", "replace").splitlines():
        # 36 35 98:0 /mnt1 /mnt2 rw,noatime master:1 - ext4 /dev/sda1 rw,errors=remount-ro
        _, separator, of_file_system = line.partition(" - ")
        words = of_file_system.split(" ")
        if separator and len(words) >= 3 and words[0] in DISKS:
            facts.readonly[words[1]] = "ro" in words[2].split(",")


def _document(file: Path) -> Mapping[str, Any]:
    data = json.loads(_content(file))
    if not isinstance(data, dict):
        raise TypeError(f"{file}: no object")
    return data


def _content(file: Path) -> bytes:
    with file.open("rb") as opened:
        return opened.read(MAX_BYTES)
