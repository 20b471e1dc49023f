"""Journals of all hosts are on the monitoring host, each under the name of its certificate."""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e import metrics
from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

pytestmark = pytest.mark.without("stores")

FOLDER: Final = "/var/log/journal/remote"
UPLOAD: Final = "hgfleet-journal-upload.service"
RECEIVER: Final = "hgfleet-journal-proxy.service"

SECONDS: Final = 60
"""For a line on its way: a restart of the upload takes 10 s, a busy machine some more."""

OWN: Final = ("/etc/hgfleet/tls/cert.pem", "/etc/hgfleet/tls/key.pem")
"""Certificate and key of a host."""

# Runs on a host: sends the receiver an entry that claims to be of another host; prints the status.
SEND: Final = """
import http.client, ssl, sys, time
path, address, port, message, claimed, *certificate = sys.argv[1:]
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
if certificate:
    context.load_cert_chain(*certificate)
boot = open("/proc/sys/kernel/random/boot_id").read().strip().replace("-", "")
fields = {"__REALTIME_TIMESTAMP": time.time_ns() // 1000}
fields |= {"__MONOTONIC_TIMESTAMP": time.monotonic_ns() // 1000, "_BOOT_ID": boot}
fields |= {"MESSAGE": message, "_HOSTNAME": claimed, "SYSLOG_IDENTIFIER": "e2e-journals"}
entry = "".join(f"{name}={value}\\n" for name, value in fields.items()) + "\\n"
connection = http.client.HTTPSConnection(address, int(port), context=context, timeout=20)
headers = {"Content-Type": "application/vnd.fdo.journal", "Host": claimed}
connection.request("POST", path, entry, headers)
print(connection.getresponse().status)
"""


@pytest.fixture
def monitor(cluster: Cluster) -> Host:
    """The host that receives journals."""
    return cluster.first("monitoring")


@pytest.fixture
def sender(cluster: Cluster) -> Host:
    """A host that sends its journal."""
    return cluster.first("ssh")


def port(cluster: Cluster, monitor: Host) -> str:
    """Return the port of the receiver, by the inventory."""
    variables = cluster.inventory["_meta"]["hostvars"][monitor.name]
    return str(variables["monitoring_journal_port"])


def log(host: Host) -> str:
    """Log a line on a host and return it."""
    mark = f"shipped {uuid.uuid4()}"
    host.run("logger", "--tag=e2e-journals", mark).ok()
    return mark


def send(cluster: Cluster, host: Host, mark: str, claimed: str, *pair: str, path: str) -> str:
    """Send the monitoring host a line from a host by hand; return the status of the answer."""
    monitor = cluster.first("monitoring")
    to = [path, cluster.address(monitor), port(cluster, monitor)]
    return host.run("python3", "-c", SEND, *to, mark, claimed, *pair).ok().stdout.strip()


def everything(monitor: Host) -> str:
    """Return the messages of all hosts on the monitoring host."""
    return monitor.shell(f"journalctl --no-pager --output=cat --directory={FOLDER}")


def received(monitor: Host, sender: str) -> list[str]:
    """Return the messages of the tests in the file of a host."""
    files = f"{FOLDER}/remote-{sender}[.@]*"
    words = ["journalctl", "--no-pager", "--quiet", "--output=cat", f"--file={files}"]
    return monitor.run(*words, "--identifier=e2e-journals").ok().stdout.splitlines()


def wait_for(monitor: Host, sender: Host, mark: str) -> None:
    """Wait until a line of a host is on the monitoring host."""
    wait_until(
        f"{mark!r} of {sender.name}", lambda: mark in received(monitor, sender.name), SECONDS
    )


def test_a_line_of_every_host_is_found_under_its_name(cluster: Cluster, monitor: Host) -> None:
    senders = [host for host in cluster.hosts if host != monitor]
    marks = {host.name: log(host) for host in senders}
    for host in senders:
        wait_for(monitor, host, marks[host.name])
        others = [mark for name, mark in marks.items() if name != host.name]
        assert not set(others) & set(received(monitor, host.name))


def test_a_line_is_found_among_those_of_all_hosts(monitor: Host, sender: Host) -> None:
    mark = log(sender)
    wait_for(monitor, sender, mark)
    words = ["journalctl", "--no-pager", "--output=json", "--output-fields=MESSAGE,_HOSTNAME"]
    shown = monitor.run(*words, f"--directory={FOLDER}", "--identifier=e2e-journals").ok().stdout
    # A line may arrive twice.
    lines = [json.loads(line) for line in shown.splitlines() if mark in line]
    assert {line["_HOSTNAME"] for line in lines} == {sender.name}


def test_a_line_is_in_the_file_of_its_certificate_whatever_it_says(
    cluster: Cluster, monitor: Host, sender: Host
) -> None:
    other, mark = cluster.first("directory"), f"claimed {uuid.uuid4()}"
    assert send(cluster, sender, mark, other.name, *OWN, path="/upload") == "202"
    wait_for(monitor, sender, mark)
    assert mark not in received(monitor, other.name)


def test_a_host_reaches_nothing_but_the_receiver_of_its_lines(
    cluster: Cluster, monitor: Host, sender: Host
) -> None:
    other, mark = cluster.first("directory"), f"elsewhere {uuid.uuid4()}"
    for path in ("/", "/entries", f"/{other.name}/upload", f"//{other.name}.sock:/upload"):
        assert send(cluster, sender, mark, other.name, *OWN, path=path) == "404", path
    assert mark not in everything(monitor)


def test_a_client_without_a_certificate_of_the_site_is_refused(
    cluster: Cluster, monitor: Host, sender: Host
) -> None:
    mark = f"refused {uuid.uuid4()}"
    assert send(cluster, sender, mark, sender.name, path="/upload") == "400"
    folder = sender.shell("mktemp -d").strip()
    pair = (f"{folder}/cert.pem", f"{folder}/key.pem")
    try:
        sender.shell(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 "
            f"-subj /CN={sender.name} -out {pair[0]} -keyout {pair[1]} 2>&1"
        )
        assert send(cluster, sender, mark, sender.name, *pair, path="/upload") == "400"
    finally:
        sender.shell(f"rm -r {folder}")
    assert mark not in everything(monitor)


def test_a_certificate_of_no_sender_is_refused(cluster: Cluster, monitor: Host) -> None:
    """The certificate of the monitoring host itself, which sends its journal nowhere."""
    mark = f"refused {uuid.uuid4()}"
    assert send(cluster, monitor, mark, "hg1", *OWN, path="/upload") == "403"
    assert mark not in everything(monitor)


@pytest.fixture
def receiver_away(monitor: Host) -> Iterator[None]:
    """Stop the receiver of journals for the length of a test."""
    monitor.systemctl("stop", RECEIVER).ok()
    yield
    monitor.systemctl("start", RECEIVER).ok()


@pytest.mark.disruptive("monitoring")
@pytest.mark.usefixtures("receiver_away")
def test_lines_from_while_the_receiver_was_away_come_later(monitor: Host, sender: Host) -> None:
    mark = log(sender)

    def waits() -> bool:
        shown = sender.systemctl("show", "--value", "--property=SubState", UPLOAD).ok().stdout
        # A line is logged for each probe, since the upload notices only when it sends a line.
        log(sender)
        return shown.strip() == "auto-restart"

    wait_until("the upload waits for the receiver", waits, SECONDS)
    # A unit that starts with the host and waits for a restart counts as down, so an alert fires.
    watched = f'hgfleet_unit_enabled{{name="{UPLOAD}"}}'
    assert metrics.total(metrics.written([sender]), watched) == 1
    assert mark not in received(monitor, sender.name)
    monitor.systemctl("start", RECEIVER).ok()
    wait_for(monitor, sender, mark)
    shown = sender.systemctl("show", "--value", "--property=ActiveState", UPLOAD).ok().stdout
    assert shown.strip() == "active"
