"""The promises of the role metrics, on any host with metrics.

The tests connect to the exporter with the host's own certificate, which is a reader's certificate
only on some hosts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

EXPORTER = "prometheus-node-exporter.service"
WRITER = "hgfleet-metrics.service"
UNITS = (EXPORTER, WRITER)
FILE = "/run/hgfleet-metrics/hgfleet.prom"
TLS = "/etc/hgfleet/tls"

# Runs on the host: queries its exporter, with or without a certificate, and prints the answer.
ASK = """
import socket, ssl, sys
host, port, certificate = sys.argv[1], int(sys.argv[2]), sys.argv[3:]
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
if certificate:
    context.load_cert_chain(*certificate)
try:
    with socket.create_connection((host, port), 10) as raw:
        with context.wrap_socket(raw, server_hostname=host) as asked:
            asked.sendall(b"GET /metrics HTTP/1.0\\r\\n\\r\\n")
            parts = iter(lambda: asked.recv(65536), b"")
            sys.stdout.buffer.write(b"".join(parts))
except (ssl.SSLError, ConnectionError) as error:
    print("refused", error)
"""


def shown(host: Host, unit: str) -> dict[str, str]:
    text = host.check_output("systemctl show %s", unit)
    return dict(line.split("=", 1) for line in text.splitlines() if "=" in line)


def port(host: Host) -> int:
    option = host.check_output(
        "grep -o 'web.listen-address=:[0-9]*' /etc/systemd/system/%s", EXPORTER
    )
    return int(option.rpartition(":")[2])


def ask(host: Host, *certificate: str) -> str:
    name = host.check_output("hostname")
    words = " ".join([name, str(port(host)), *certificate])
    answer: str = host.check_output(f"python3 -c %s {words}", ASK)
    return answer


@pytest.fixture(scope="module")
def metrics(host: Host) -> dict[str, float]:
    """The metrics of hgfleet that a reader gets, by name and labels."""
    readers = yaml.safe_load(host.file("/etc/hgfleet/metrics-web.yml").content_string)
    if host.check_output("hostname") in readers["tls_server_config"]["client_allowed_sans"]:
        text = ask(host, f"{TLS}/cert.pem", f"{TLS}/key.pem")
    else:
        text = host.file(FILE).content_string
    lines = (line.rpartition(" ") for line in text.splitlines() if line.startswith("hgfleet_"))
    return {name: float(value) for name, _, value in lines}


def test_exporter_and_writer_run_and_start_with_the_host(host: Host) -> None:
    for unit in UNITS:
        service = host.service(unit)
        assert service.is_enabled
        assert service.is_running, host.run("journalctl -u %s -n 40 -o cat", unit).stdout


def test_a_reader_gets_the_release_and_the_end_of_the_certificate(
    host: Host, metrics: dict[str, float]
) -> None:
    release = host.check_output("readlink /opt/hgfleet/current").rpartition("/")[2]
    assert metrics[f'hgfleet_release_info{{version="{release}"}}'] == 1
    end = host.check_output(
        'date -d "$(openssl x509 -noout -enddate -in %s/cert.pem | cut -d= -f2)" +%%s', TLS
    )
    assert metrics['hgfleet_certificate_expiry_timestamp_seconds{file="cert.pem"}'] == int(end)


def test_every_source_can_be_read(metrics: dict[str, float]) -> None:
    sources = {name: value for name, value in metrics.items() if "source_readable" in name}
    assert len(sources) >= 8
    assert set(sources.values()) == {1.0}, sources


@pytest.mark.changes
def test_units_that_run_replaced_files_are_looked_for(host: Host) -> None:
    host.check_output("systemctl start hgfleet-outdated.service")
    state = json.loads(host.check_output("cat /run/hgfleet-outdated/units.json"))
    assert isinstance(state["units"], dict)
    assert host.service("hgfleet-outdated.timer").is_enabled
    assert shown(host, "hgfleet-outdated.service")["CapabilityBoundingSet"] == (
        "cap_dac_read_search cap_sys_ptrace"
    )


def test_units_that_start_with_the_host_are_known(host: Host, wait_for: WaitFor) -> None:
    def known() -> bool:
        text = host.file(FILE).content_string
        return all(f'hgfleet_unit_enabled{{name="{unit}"}} 1.0\n' in text for unit in UNITS)

    # The role enables the writer's unit after it has started it, so only the next write shows this.
    wait_for("both units are known", known, seconds=60)


def test_records_of_backups_are_read(host: Host, metrics: dict[str, float]) -> None:
    settings = host.file("/etc/hgfleet/backup.toml")
    if not settings.exists or "pruned" in settings.content_string:
        pytest.skip("only on a host with backups")
    text = host.run("cat /var/lib/hgfleet-backup/runs.json").stdout
    runs: dict[str, Any] = json.loads(text) if text else {}
    last = metrics["hgfleet_backup_last_run_timestamp_seconds"]
    # A run may have ended since the metrics were written.
    assert bool(last) == bool(runs.get("ended")) or not last


def test_a_client_without_a_certificate_is_refused(host: Host) -> None:
    assert ask(host).startswith("refused")


@pytest.mark.changes
def test_a_certificate_with_another_name_is_refused(host: Host) -> None:
    folder = host.check_output("mktemp -d")
    try:
        host.check_output(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 "
            "-subj /CN=other -keyout %s/key.pem -out %s/cert.pem 2>&1",
            folder,
            folder,
        )
        assert ask(host, f"{folder}/cert.pem", f"{folder}/key.pem").startswith("refused")
    finally:
        host.check_output("rm -r %s", folder)


def test_metrics_are_written_without_rights(host: Host) -> None:
    values = shown(host, WRITER)
    assert values["User"] == "hgmetrics"
    assert values["ProtectSystem"] == "strict"
    assert values["PrivateNetwork"] == "yes"
    for unit in UNITS:
        assert shown(host, unit).get("CapabilityBoundingSet", "") == ""
        line = host.check_output("systemd-analyze security --no-pager %s", unit).splitlines()[-1]
        assert float(line.split()[-3]) < 2.5, line


def test_metrics_are_fresh(host: Host) -> None:
    age = host.check_output("echo $(($(date +%%s) - $(stat -c %%Y %s)))", FILE)
    assert int(age) <= 60
    assert host.file(FILE).user == "hgmetrics"


@pytest.mark.changes
def test_a_damaged_source_is_told(host: Host) -> None:
    """A host without replication gets a state file that cannot be parsed."""
    folder, mark = (
        "/run/hgfleet-replication",
        'hgfleet_metrics_source_readable{source="replication"}',
    )
    if host.file(folder).exists:
        pytest.skip("only on a host without replication")
    try:
        host.check_output("mkdir %s && echo damaged > %s/state.json", folder, folder)
        host.check_output("systemctl reload %s", WRITER)
        assert f"{mark} 0.0" in host.file(FILE).content_string
        journal = host.check_output("journalctl -u %s -n 5 -o cat", WRITER)
        assert "replication: " in journal
    finally:
        host.check_output("rm -r %s && systemctl reload %s", folder, WRITER)
    assert f"{mark} 1.0" in host.file(FILE).content_string


UPLOAD = "hgfleet-journal-upload.service"


@pytest.fixture(scope="module")
def upload(host: Host) -> dict[str, str]:
    """Properties of the unit that sends the journal."""
    if not host.file(f"/etc/systemd/system/{UPLOAD}").exists:
        pytest.skip("only on a host that sends its journal")
    return shown(host, UPLOAD)


def test_the_journal_is_sent_from_the_start_of_the_host_on(
    host: Host, upload: dict[str, str]
) -> None:
    assert host.service(UPLOAD).is_enabled
    assert upload["SubState"] in ("running", "auto-restart")
    # The upload does not give up, even if the monitoring host is away for a day.
    assert upload["Restart"] == "always"
    assert upload["StartLimitIntervalUSec"] == "0"


def test_the_journal_is_sent_without_rights(host: Host, upload: dict[str, str]) -> None:
    assert upload["User"] == "hgjournal-upload"
    assert upload["ProtectSystem"] == "strict"
    assert upload.get("CapabilityBoundingSet", "") == ""
    line = host.check_output("systemd-analyze security --no-pager %s", UPLOAD).splitlines()[-1]
    assert float(line.split()[-3]) < 2.5, line
    assert host.file("/var/lib/hgfleet-journal-upload").mode == 0o700
