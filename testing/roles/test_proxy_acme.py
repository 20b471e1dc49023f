"""A certificate of a CA that speaks ACME, on the throw-away host of the role proxy.

The CA is Pebble, which Let's Encrypt makes for tests of clients. The tests are a story, in the
order of this file. They run after the proxy's tests with the certificate of the site's CA.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Final

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

UNIT: Final = "hgfleet-acme.service"
NAME: Final = "hg.example.org"
FOLDER: Final = "/var/lib/hgfleet-acme"
HOSTS_OWN: Final = "/etc/hgfleet/tls/key.pem"
PEBBLE: Final = {
    "listenAddress": "127.0.0.1:14000",
    "managementListenAddress": "127.0.0.1:15000",
    "certificate": "/etc/hgfleet/tls/cert.pem",
    "privateKey": HOSTS_OWN,
    "httpPort": 80,
    "tlsPort": 443,
    "ocspResponderURL": "",
    "externalAccountBindingRequired": False,
    "certificateValidityPeriod": 90 * 86_400,
}

# Runs on the host: sends half a request, renews the certificate, and sends the other half.
ACROSS: Final = """
import socket, ssl, subprocess, sys, time
context = ssl.create_default_context()
context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
def connect():
    link = socket.create_connection(("localhost", 443), timeout=20)
    return context.wrap_socket(link, server_hostname=sys.argv[1])
under_way = connect()
before = under_way.getpeercert(True)
under_way.sendall(b"GET /healthz HTTP/1.1\\r\\nHost: localhost\\r\\n")
subprocess.run(["systemctl", "start", "hgfleet-acme.service"], check=True)
ends = time.monotonic() + 20
while connect().getpeercert(True) == before:
    assert time.monotonic() < ends, "the certificate before is served"
    time.sleep(0.1)
under_way.sendall(b"Connection: close\\r\\n\\r\\n")
print(under_way.recv(1000).split(b"\\r\\n")[0].decode())
"""


def served(host: Host) -> str:
    """Return issuer, serial number and names of the certificate that a client gets for the name."""
    return str(
        host.check_output(
            "echo | openssl s_client -connect localhost:443 -servername %s 2>/dev/null"
            " | openssl x509 -noout -issuer -serial -ext subjectAltName",
            NAME,
        )
    )


def journal(host: Host) -> str:
    """Return the output of the unit and of lego."""
    host.check_output("journalctl --sync")
    return str(host.check_output("journalctl -u %s -n 200 --no-pager -o cat", UNIT))


def worker(host: Host) -> str:
    """Return the process of HAProxy that accepts new connections; a reload starts a new process."""
    told = host.check_output("echo 'show info' | socat - /run/haproxy/admin.sock")
    return re.findall(r"(?m)^Pid: (\d+)", told)[0]


def started(host: Host) -> str:
    """Return the main process of the proxy and its start time."""
    shown = "systemctl show -P MainPID -P ExecMainStartTimestampMonotonic haproxy.service"
    return str(host.check_output(shown))


@pytest.fixture(scope="module")
def ca(host: Host, wait_for: WaitFor) -> None:
    """Start the CA, and make the public name lead to this host."""
    host.check_output("DEBIAN_FRONTEND=noninteractive apt-get install -qy pebble")
    host.check_output("grep -q %s /etc/hosts || echo 127.0.0.1 %s >> /etc/hosts", NAME, NAME)
    settings = json.dumps({"pebble": PEBBLE})
    host.check_output("printf %%s %s > /run/pebble.json", settings)
    if not host.service("pebble-test").is_running:
        host.check_output(
            "systemd-run --collect --unit=pebble-test --setenv=PEBBLE_VA_NOSLEEP=1"
            " pebble -config /run/pebble.json"
        )
    asked = (
        "import ssl, urllib.request as u; c = ssl.create_default_context();"
        "u.urlopen('https://localhost:14000/dir', context=c)"
    )
    wait_for("the CA to answer", lambda: host.run("python3 -c %s", asked).rc == 0)


@pytest.mark.disruptive
def test_clients_get_the_certificate_of_the_site_until_the_first_is_issued(
    host: Host, wait_for: WaitFor
) -> None:
    """The CA did not answer during the deploy, and the deploy did not fail."""

    def state() -> bool:
        return bool(host.check_output("systemctl show -P ActiveState %s", UNIT) == "failed")

    wait_for("the run to fail", state)
    assert "the certificate in use stays" in journal(host)
    assert host.check_output("readlink %s/served", FOLDER) == "/etc/hgfleet/tls"
    assert "DNS:localhost" in served(host)


@pytest.mark.disruptive
def test_the_timer_is_there_after_a_reboot(host: Host) -> None:
    timer = host.service("hgfleet-acme.timer")
    assert timer.is_running
    assert timer.is_enabled


@pytest.mark.disruptive
def test_without_a_challenge_the_port_only_redirects(host: Host) -> None:
    def status(path: str) -> str:
        url = f"http://localhost/.well-known/{path}"
        ask = (
            "import http.client as c; l = c.HTTPConnection('localhost');"
            f"l.request('GET', '{url.removeprefix('http://localhost')}');"
            "print(l.getresponse().status)"
        )
        return str(host.check_output("python3 -c %s", ask))

    assert status("acme-challenge/abc") == "503"
    paths = ("acme-challenge/", "acme-challenge/a/b", "acme-challenge/../x", "acme-challenge/a%2fb")
    assert {status(path) for path in paths} == {"301"}


@pytest.mark.disruptive
@pytest.mark.usefixtures("ca")
def test_the_ca_issues_a_certificate_which_the_proxy_serves_without_a_restart(
    host: Host, wait_for: WaitFor
) -> None:
    before = started(host)
    done = host.run("systemctl start %s", UNIT)
    assert done.rc == 0, journal(host)
    wait_for("the new certificate", lambda: "Pebble" in served(host))
    assert f"DNS:{NAME}" in served(host)
    assert started(host) == before
    mark = "/run/hgfleet-acme/renewed"
    wait_for("the mark to go", lambda: not host.file(mark).exists)


@pytest.mark.disruptive
@pytest.mark.usefixtures("ca")
def test_the_key_is_for_the_proxy_and_the_account_for_its_user_alone(host: Host) -> None:
    key, chain = f"{FOLDER}/served/key.pem", f"{FOLDER}/served/cert.pem"
    modes = host.check_output("stat -L -c '%%a %%U:%%G' %s %s %s/lego", key, chain, FOLDER)
    assert modes.splitlines() == [
        "640 hgacme:hgacme",
        "644 hgacme:hgacme",
        "700 hgacme:hgacme",
    ]
    assert host.run("runuser -u nobody -- head -c 1 %s", chain).rc == 0
    for user in ("nobody", "www-data", "hg"):
        assert host.run("runuser -u %s -- head -c 1 %s", user, key).rc != 0, user
    # lego cannot read the host's own key.
    assert host.run("runuser -u hgacme -- head -c 1 %s", HOSTS_OWN).rc != 0
    keys = host.check_output("find %s -name '*.key' -not -path '*/accounts/*'", FOLDER)
    assert keys == "", "lego's copy is left"


@pytest.mark.disruptive
@pytest.mark.usefixtures("ca")
def test_nothing_is_asked_while_the_certificate_is_not_due(host: Host) -> None:
    before, process = served(host), worker(host)
    host.check_output("systemctl start %s", UNIT)
    assert "event=acme.kept" in journal(host)
    assert (served(host), worker(host)) == (before, process)


@pytest.mark.disruptive
@pytest.mark.usefixtures("ca")
def test_a_renewal_changes_the_certificate_and_ends_no_request(host: Host) -> None:
    before, process = served(host), started(host)
    # The command of the runbook for a certificate that has to be replaced now.
    host.check_output("rm %s/served/request.json", FOLDER)
    assert host.check_output("python3 -c %s %s", ACROSS, NAME) == "HTTP/1.1 200 OK"
    after = served(host)
    assert "Pebble" in after
    assert after != before
    assert started(host) == process
    assert len(host.check_output("ls %s/issued", FOLDER).split()) == 1


@pytest.mark.disruptive
@pytest.mark.usefixtures("ca")
def test_the_end_of_the_certificate_in_use_is_a_metric(host: Host) -> None:
    shown = host.check_output("runuser -u nobody -- /opt/hgfleet/current/bin/hgfleet metrics show")
    ends = re.findall(r'hgfleet_certificate_expiry_timestamp_seconds{file="([^"]+)"} (\S+)', shown)
    wanted = host.check_output(
        'date +%%s -d "$(openssl x509 -noout -enddate -in %s/served/cert.pem | cut -d= -f2)"',
        FOLDER,
    )
    assert float(dict(ends)["acme/cert.pem"]) == float(wanted)


@pytest.mark.disruptive
def test_the_units_are_confined(host: Host) -> None:
    for unit in (UNIT, "hgfleet-acme-served.service"):
        report = host.check_output("systemd-analyze security --no-pager %s", unit).splitlines()[-1]
        exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", report)
        assert exposure, report
        assert float(exposure[1]) <= 2.0, report
