"""Faults that make alerts fire: each is a context manager, which undoes the fault at its end."""

from __future__ import annotations

import time
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from testing.e2e.status import probe
from testing.faults import support
from testing.faults.alert_records import clock, document, later_registry, other_push

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.faults.alert_records import Change
    from testing.faults.alert_watch import Watch

METRICS: Final = "/run/hgfleet-metrics/hgfleet.prom"
REPOSITORIES: Final = "/srv/hg/repos"
REGISTRY: Final = "/var/lib/hgfleet/dynamic/registry.json"
MEMORY: Final = "/var/lib/hgfleet/dynamic/.registry-generation"
UNREADABLE: Final = "e2e/monitoring"
"""Its push log is closed to the relay of the primary."""
CHANGED: Final = "e2e/replication"
"""Its push log on a mirror differs from the primary's."""
CLOSED: Final = ("e2e/admission", "e2e/backup", "e2e/push", "e2e/sessions", "e2e/shared")
"""Their push logs are closed to the applier of a mirror, which pauses after so many failures."""

DISK: Final = "/srv/alert-disk"
DISK_BELOW: Final = "/run/alert-disk"
DISK_DEVICE: Final = "alert-disk"
DISK_MIB: Final = 8
DISK_FILES: Final = 200
EXPORTER: Final = "prometheus-node-exporter.service"
# The file systems that the exporter leaves out by default, without overlay.
NO_DISKS: Final = (
    "^(autofs|binfmt_misc|bpf|cgroup|configfs|debugfs|dev|fusectl|hugetlbfs|mqueue|nsfs|proc|pstore"
    "|rpc_pipefs|securityfs|selinuxfs|sysfs|tracefs)"
)


@dataclass(frozen=True)
class Scene:
    """The cluster whose parts break, and the second Prometheus that watches."""

    cluster: Cluster
    watch: Watch


Fault: TypeAlias = "Callable[[Scene, Host], AbstractContextManager[None]]"
"""Begins as a context is entered, and is undone as it is left."""


def stopped_unit(*units: str) -> Fault:
    """Return a fault: units of the host are stopped."""

    @contextmanager
    def fault(_scene: Scene, host: Host) -> Iterator[None]:
        host.systemctl("stop", *units).ok()
        try:
            yield
        finally:
            host.systemctl("start", *units).ok()

    return fault


def record(file: str, change: Change) -> Fault:
    """Return a fault: a job's record has other content, until the job writes it again."""

    @contextmanager
    def fault(_scene: Scene, host: Host) -> Iterator[None]:
        before = host.shell(f"cat {file}")
        after = change(before, time.time())
        assert after != before, f"{host.name}: {file} stays {before}"
        host.write(file, after)
        try:
            yield
        finally:
            # A record that the job has written since then stays.
            if host.shell(f"cat {file}") == after:
                host.write(file, before)

    return fault


def new_file(file: str, change: Change) -> Fault:
    """Return a fault: a file is there that a program of this host did not write."""

    @contextmanager
    def fault(_scene: Scene, host: Host) -> Iterator[None]:
        folder = Path(file).parent
        made = host.run("test", "-d", str(folder)).code != 0
        host.shell(f"install -d -m 755 {folder}" if made else f"[ ! -e {file} ]")
        host.write(file, change("", time.time()))
        try:
            yield
        finally:
            host.shell(f"rm -r {folder}" if made else f"rm -f {file}")

    return fault


@contextmanager
def slow_clock(scene: Scene, host: Host) -> Iterator[None]:
    """Let the exporter of a host tell another time: hosts of the cluster share a clock."""
    drop_in = f"/run/systemd/system/{EXPORTER}.d"
    words = exec_start(host.shell(f"systemctl cat {EXPORTER}")).split()
    command = " ".join(word for word in words if word != "--collector.time")
    host.shell(f"mkdir -p {drop_in}")
    try:
        host.write(f"{drop_in}/alert.conf", f"[Service]\nExecStart=\nExecStart={command}\n")
        _restart_exporter(host)
        with new_file("/run/hgfleet-metrics/clock.prom", clock)(scene, host):
            yield
    finally:
        host.shell(f"rm -rf {drop_in}")
        _restart_exporter(host)


def ended_daemon(unit: str, folder: str, changes: Mapping[str, Change]) -> Fault:
    """Return a fault: a daemon is stopped, and the state that it left in RAM tells of trouble."""

    @contextmanager
    def fault(_scene: Scene, host: Host) -> Iterator[None]:
        before = {name: host.shell(f"cat {folder}/{name}") for name in changes}
        host.systemctl("stop", unit).ok()
        try:
            # systemd has removed the folder with the unit.
            host.shell(f"install -d -m 755 {folder}")
            for name, change in changes.items():
                host.write(f"{folder}/{name}", change(before[name], time.time()))
            yield
        finally:
            host.shell(f"rm -rf {folder}")
            host.systemctl("start", unit).ok()

    return fault


def together(*faults: Fault) -> Fault:
    """Return a fault that consists of several faults of a host."""

    @contextmanager
    def fault(scene: Scene, host: Host) -> Iterator[None]:
        with ExitStack() as stack:
            for part in faults:
                stack.enter_context(part(scene, host))
            yield

    return fault


@contextmanager
def hung_host(scene: Scene, host: Host) -> Iterator[None]:
    """Let a host hang: none of its programs answers."""
    with contextmanager(support.paused)(scene.cluster, host):
        yield


@contextmanager
def failed_job(_scene: Scene, host: Host) -> Iterator[None]:
    """Let a job fail at its start."""
    unit = "hgfleet-integrity.service"
    folder = f"/run/systemd/system/{unit}.d"
    host.shell(f"mkdir -p {folder}")
    try:
        host.write(f"{folder}/alert.conf", "[Service]\nExecStartPre=/bin/false\n")
        host.systemctl("daemon-reload").ok()
        assert host.systemctl("start", unit).code != 0
        yield
    finally:
        host.shell(f"rm -rf {folder}")
        host.systemctl("daemon-reload").ok()
        host.systemctl("reset-failed", unit).ok()


@contextmanager
def old_metrics(_scene: Scene, host: Host) -> Iterator[None]:
    """Let the file of metrics grow old."""
    with without_metrics_writer(host):
        host.shell(f"touch -d '10 minutes ago' {METRICS}")
        yield


@contextmanager
def no_metrics(_scene: Scene, host: Host) -> Iterator[None]:
    """Remove the file of metrics."""
    with without_metrics_writer(host):
        host.shell(f"rm {METRICS}")
        yield


@contextmanager
def without_metrics_writer(host: Host) -> Iterator[None]:
    """Stop the service that writes the metrics; its start writes them at once."""
    host.systemctl("stop", "hgfleet-metrics.service").ok()
    try:
        yield
    finally:
        host.systemctl("start", "hgfleet-metrics.service").ok()


@contextmanager
def drained(_scene: Scene, host: Host) -> Iterator[None]:
    """Take a web host out of the proxies, as an operator does."""
    file = "/etc/hgfleet/web.drain"
    host.shell(f"[ ! -e {file} ] && install -m 644 /dev/null {file}")
    try:
        yield
    finally:
        host.shell(f"rm -f {file}")


@contextmanager
def failing_probes(scene: Scene, host: Host) -> Iterator[None]:
    """Stop the proxy, and let the probes fail more often than an objective allows.

    Their pushes fail where SSH is down already.
    """
    with stopped_unit("haproxy.service")(scene, host):
        monitor = scene.cluster.first("monitoring")
        for _ in range(4):
            # The job succeeds even if its clone or push fails; its timer may run it too.
            probe(monitor)
        yield


@contextmanager
def closed_push_log(_scene: Scene, host: Host) -> Iterator[None]:
    """Deny the relay the right to read the push log of a repository."""
    file = push_log(UNREADABLE)
    mode = host.shell(f"stat -c %a {file}").strip()
    # The relay reads a log again when the file's time has changed.
    host.shell(f"chmod 000 {file}; touch {file}")
    try:
        yield
    finally:
        host.shell(f"chmod {mode} {file}; touch {file}")


@contextmanager
def fenced_repository(_scene: Scene, host: Host) -> Iterator[None]:
    """Fence a repository that does not exist, as the relay does after a store was put back."""
    folder = "/var/lib/hgfleet-replication/fences"
    host.shell(f"install -d -o hg -g hg -m 755 {folder}; touch {folder}/{'f' * 32}")
    try:
        yield
    finally:
        host.shell(f"rm {folder}/{'f' * 32}")


@contextmanager
def broken_mirror(scene: Scene, host: Host) -> Iterator[None]:
    """Make some push logs of a mirror unreadable, and let another differ from the primary's."""
    unit, closed = "hgfleet-applier.service", " ".join(map(push_log, CLOSED))
    mode = host.shell(f"stat -c %a {closed}").split()[0]
    with stopped_unit(unit)(scene, host), record(push_log(CHANGED), other_push)(scene, host):
        host.shell(f"chmod 000 {closed}")
        try:
            # At its start the applier compares all push logs with the primary's.
            host.systemctl("start", unit).ok()
            yield
        finally:
            host.systemctl("stop", unit).ok()
            host.shell(f"chmod {mode} {closed}")


@contextmanager
def mirror_that_is_ahead(scene: Scene, host: Host) -> Iterator[None]:
    """Give a mirror a later registry than its primary has, and a folder that was set aside."""
    unit, folder = "hgfleet-applier.service", f"{REPOSITORIES}/.replication/aside-unknown-alert"
    with stopped_unit(unit)(scene, host), record(REGISTRY, document(later_registry))(scene, host):
        host.shell(f"runuser -u hg -- mkdir -p {folder}")
        try:
            # At its start the applier compares its documents, and walks through all folders.
            host.systemctl("start", unit).ok()
            yield
        finally:
            host.systemctl("stop", unit).ok()
            host.shell(f"rm -rf {folder}; rm -f {MEMORY}")


def push_log(repository: str) -> str:
    """Return the file of a repository's push log."""
    return f"{REPOSITORIES}/{repository}/.hg/store/pushlog"


@contextmanager
def undelivered(scene: Scene, _host: Host) -> Iterator[None]:
    """Stop the receiver of the second Alertmanager, so that nothing is delivered."""
    scene.watch.stop_receiver()
    try:
        yield
    finally:
        scene.watch.start_receiver()


# --- certificates -----------------------------------------------------------------------------


@contextmanager
def ending_certificate(scene: Scene, host: Host) -> Iterator[None]:
    """Give an object store a certificate that expires in some days."""
    file, unit = "/etc/hgfleet/tls/cert.pem", "hgfleet-objectstore.service"
    before = host.shell(f"cat {file}")
    pki = Path(scene.cluster.env["HGFLEET_CA_CERT"]).parent
    try:
        host.write(file, ending(before, pki, days=5))
        host.systemctl("restart", unit).ok()
        yield
    finally:
        host.write(file, before)
        host.systemctl("restart", unit).ok()


def ending(text: str, pki: Path, days: int) -> str:
    """Return a certificate for the same key and names that expires in some days."""
    old = x509.load_pem_x509_certificate(text.encode())
    ca = x509.load_pem_x509_certificate((pki / "ca.pem").read_bytes())
    key = serialization.load_pem_private_key((pki / "ca.key").read_bytes(), None)
    public = old.public_key()
    assert isinstance(key, ec.EllipticCurvePrivateKey)
    assert isinstance(public, ec.EllipticCurvePublicKey)
    now = datetime.now(UTC)
    made = (
        x509.CertificateBuilder()
        .subject_name(old.subject)
        .issuer_name(ca.subject)
        .public_key(public)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(hours=1))
        .not_valid_after(now + timedelta(days=days))
    )
    for extension in old.extensions:
        made = made.add_extension(extension.value, extension.critical)
    return made.sign(key, hashes.SHA384()).public_bytes(serialization.Encoding.PEM).decode()


# --- file systems -----------------------------------------------------------------------------


@contextmanager
def small_disk(host: Host) -> Iterator[None]:
    """Give a host a small file system that its exporter reads.

    Containers have no block device, so the file system is an overlay over a few MiB of RAM. By
    default the exporter leaves overlays out, as they usually lie on a disk that it reads. An option
    makes it read them here.
    """
    drop_in = f"/run/systemd/system/{EXPORTER}.d"
    command = exec_start(host.shell(f"systemctl cat {EXPORTER}"))
    folders = {"lowerdir": "lower", "upperdir": "upper", "workdir": "work"}
    layers = ",".join(f"{name}={DISK_BELOW}/{folder}" for name, folder in folders.items())
    option = f"--collector.filesystem.fs-types-exclude={NO_DISKS}"
    _remove_disk(host)
    try:
        host.shell(f"""
            mkdir -p {DISK} {DISK_BELOW} {drop_in}
            mount -t tmpfs -o size={DISK_MIB}M,nr_inodes={DISK_FILES} alerts {DISK_BELOW}
            mkdir {DISK_BELOW}/lower {DISK_BELOW}/upper {DISK_BELOW}/work
            mount -t overlay -o {layers} {DISK_DEVICE} {DISK}""")
        text = f"[Service]\nExecStart=\nExecStart={command} {option}\n"
        host.write(f"{drop_in}/alert.conf", text)
        # A unit sees only the mounts that existed when it started.
        _restart_exporter(host)
        yield
    finally:
        host.shell(f"rm -rf {drop_in}")
        _remove_disk(host)
        _restart_exporter(host)


def _remove_disk(host: Host) -> None:
    host.shell(f"""
        for place in {DISK} {DISK_BELOW}; do
            ! mountpoint -q $place || umount $place
            rm -rf $place
        done""")


def _restart_exporter(host: Host) -> None:
    host.systemctl("daemon-reload").ok()
    host.systemctl("restart", EXPORTER).ok()


def exec_start(unit: str) -> str:
    """Return the command of a unit's file, as a single line."""
    lines = iter(unit.splitlines())
    for line in lines:
        if line.startswith("ExecStart="):
            words = [line.removeprefix("ExecStart=")]
            while words[-1].endswith("\\"):
                words.append(next(lines))
            return " ".join(word.removesuffix("\\").strip() for word in words)
    raise ValueError("the unit has no ExecStart=")


@contextmanager
def full_disk(_scene: Scene, host: Host) -> Iterator[None]:
    """Fill the bytes and the inodes of the small file system."""
    full = DISK_MIB * 1024 * 1024 * 19 // 20
    # The file system's folders need some inodes.
    files = DISK_FILES * 19 // 20 - 10
    try:
        host.shell(f"""
            cd {DISK}
            head -c {full} /dev/zero >full
            seq -f file-%g {files} | xargs touch""")
        yield
    finally:
        host.shell(f"rm -f {DISK}/*")


@contextmanager
def readonly_disk(_scene: Scene, host: Host) -> Iterator[None]:
    """Make the small file system read-only, as the kernel does after an error."""
    unit = "hgfleet-metrics.service"
    host.shell(f"mount -o remount,ro {DISK}")
    try:
        # In a container, a unit sees the mounts that were there at its start.
        host.systemctl("restart", unit).ok()
        yield
    finally:
        host.shell(f"mount -o remount,rw {DISK}")
