"""The promises of the role replication, on any host of the group: broker, primary or mirror."""

from __future__ import annotations

import json
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

SETTINGS = "/etc/hgfleet/replication.toml"
WEBHOOKS = "/etc/hgfleet/webhooks.toml"
NATS = "/etc/hgfleet/nats.conf"
STATE = "/run/hgfleet-replication/state.json"
USERS = {
    "hgfleet-broker.service": "hgbroker",
    "hgfleet-relay.service": "hg",
    "hgfleet-source.service": "hg",
    "hgfleet-webhooks.service": "hgwebhooks",
    "hgfleet-events.service": "hgevents",
    "hgfleet-applier.service": "hg",
}
OF = {
    "primary": {"hgfleet-relay.service", "hgfleet-source.service"},
    "mirror": {"hgfleet-applier.service"},
}

# Runs on the host: connects to a broker, with or without a certificate, and prints the answers.
CONNECT = """
import json, socket, ssl, sys
where, files = sys.argv[1], sys.argv[2:]
host, port = where.rsplit(":", 1)
raw = socket.create_connection((host, int(port)), timeout=20)
print(raw.makefile("rb", buffering=0).readline()[:4].decode())
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
if files:
    context.load_cert_chain(*files)
try:
    with context.wrap_socket(raw, server_hostname=host) as secure:
        secure.sendall(b'CONNECT {"verbose":true,"lang":"test","version":"0"}\\r\\n')
        print(secure.recv(200).decode().strip())
except OSError as error:
    print("refused:", error)
"""


@pytest.fixture
def units(host: Host) -> set[str]:
    """The units of replication that the host has."""
    return {unit for unit in USERS if host.file(f"/etc/systemd/system/{unit}").exists}


@pytest.fixture
def settings(host: Host) -> dict[str, Any]:
    if not host.file(SETTINGS).exists:
        pytest.skip("a broker alone")
    return tomllib.loads(host.file(SETTINGS).content_string)


def test_a_host_has_the_programs_of_its_part_and_no_others(host: Host, units: set[str]) -> None:
    wanted = {"hgfleet-broker.service"} if host.file(NATS).exists else set()
    if host.file(SETTINGS).exists:
        wanted |= OF[tomllib.loads(host.file(SETTINGS).content_string)["role"]]
    if host.file(WEBHOOKS).exists:
        wanted |= {"hgfleet-webhooks.service"}
    # Mirrors have the feed of events, and so does the primary if it is a web host.
    wanted |= units & {"hgfleet-events.service"}
    assert units == wanted
    assert units


def test_programs_run_and_start_with_the_host(host: Host, units: set[str]) -> None:
    for unit in units:
        service = host.service(unit)
        assert service.is_running, host.run("journalctl -u %s -n 30 --no-pager", unit).stdout
        assert service.is_enabled


def test_programs_are_sandboxed_and_nothing_of_them_is_root(host: Host, units: set[str]) -> None:
    for unit in units:
        told = host.check_output("systemd-analyze security --no-pager %s", unit).splitlines()[-1]
        assert float(told.split()[-3]) <= 2.5, told
        group = host.check_output("systemctl show -P ControlGroup %s", unit)
        processes = host.check_output("cat /sys/fs/cgroup%s/cgroup.procs", group).split()
        owners = host.check_output("ps -o user= -p %s", ",".join(processes)).split()
        assert set(owners) == {USERS[unit]}


def test_each_unit_names_its_runbook(host: Host, units: set[str]) -> None:
    for unit in units:
        shown = host.check_output("systemctl show -P Documentation %s", unit)
        assert host.file(shown.removeprefix("file://")).exists, shown


def test_a_mirror_compares_itself_with_the_primary(host: Host, settings: dict[str, Any]) -> None:
    timer, service = host.service("hgfleet-verify.timer"), "hgfleet-verify.service"
    if settings["role"] != "mirror":
        assert not timer.exists
        return
    assert timer.is_running
    assert timer.is_enabled

    def shown(name: str) -> str:
        return str(host.check_output("systemctl show -P %s %s", name, service))

    assert (shown("Nice"), shown("User")) == ("19", "hg")
    assert shown("IOSchedulingClass") in ("3", "idle")
    assert host.file(shown("Documentation").removeprefix("file://")).exists
    told = host.check_output("systemd-analyze security --no-pager %s", service).splitlines()[-1]
    assert float(told.split()[-3]) <= 2.5, told


@pytest.mark.changes
def test_the_comparison_of_a_mirror_comes_to_its_end(host: Host, settings: dict[str, Any]) -> None:
    if settings["role"] != "mirror":
        pytest.skip("the primary")
    host.run("systemctl start %s", service := "hgfleet-verify.service")
    # The comparison ran to its end; a difference that another test left is no failure of the unit.
    journal = host.run("journalctl -u %s -n 30 --no-pager", service).stdout
    ended = host.check_output("systemctl show -P ExecMainStatus %s", service)
    assert ended in ("0", "65", "75"), journal


def test_settings_are_those_that_the_programs_read(host: Host, settings: dict[str, Any]) -> None:
    read = (
        "import json; from hgfleet.replication.protocol import settings; found = settings.load();"
        "print(json.dumps([found.role, found.host, found.primary]))"
    )
    told = host.check_output("/opt/hgfleet/current/bin/python -I -c %s", read)
    name = host.check_output("hostname")
    assert json.loads(told) == [settings["role"], name, settings["primary"]]
    assert (settings["role"] == "primary") == (settings["primary"] == name)


def test_the_server_of_the_package_is_off(host: Host, units: set[str]) -> None:
    if "hgfleet-broker.service" in units:
        assert not host.service("nats-server.service").is_running
        assert not host.service("nats-server.service").is_enabled


def test_messages_are_for_the_broker_alone(host: Host, units: set[str]) -> None:
    if "hgfleet-broker.service" in units:
        folder = host.file("/var/lib/hgfleet-broker")
        assert (folder.user, folder.mode) == ("hgbroker", 0o700)


def test_a_broker_knows_a_host_by_its_certificate(host: Host, settings: dict[str, Any]) -> None:
    for broker in settings["brokers"]:
        where = broker.removeprefix("tls://")
        tls = "/etc/hgfleet/tls"
        told = host.check_output(
            f"python3 -c %s %s {tls}/cert.pem {tls}/key.pem", CONNECT, where
        ).splitlines()
        assert told == ["INFO", "+OK"]
        told = host.check_output("python3 -c %s %s", CONNECT, where).splitlines()
        assert told[0] == "INFO"
        assert "+OK" not in told[1]


def test_a_mirror_serves_the_feed_of_events(
    host: Host, settings: dict[str, Any], units: set[str], wait_for: WaitFor
) -> None:
    if "hgfleet-events.service" not in units:
        assert settings["role"] == "primary"
        pytest.skip("no web host")
    socket = host.file("/run/hgfleet-events/socket")
    assert socket.is_socket
    assert (socket.user, socket.mode) == ("hgevents", 0o666)
    # nginx forwards to the feed, which refuses a missing repository once it has the events.
    ask = (
        "import ssl, urllib.request as u\n"
        "context = ssl.create_default_context(cafile='/etc/hgfleet/tls/ca.pem')\n"
        "url = 'https://localhost:8443/api/events?repository=missing/one'\n"
        "try: print(u.urlopen(url, context=context, timeout=20).status)\n"
        "except u.HTTPError as error: print(error.code, error.read().decode())\n"
    )
    refusal = "404 there is no repository 'missing/one' here"
    wait_for("the feed", lambda: refusal in host.check_output("python3 -c %s", ask), 120)


def test_webhooks_hear_events_and_secrets_are_known_to_systemd_alone(
    host: Host, units: set[str], wait_for: WaitFor
) -> None:
    unit = "hgfleet-webhooks.service"
    secrets = host.file("/etc/hgfleet/secrets").listdir()
    if unit not in units:
        assert not any(name.startswith("webhook-") for name in secrets)
        pytest.skip("no receivers")
    settings = host.file(WEBHOOKS)
    assert (settings.user, settings.group, settings.mode) == ("root", "hgwebhooks", 0o640)
    names = [receiver["name"] for receiver in tomllib.loads(settings.content_string)["receivers"]]
    assert {f"webhook-{name}" for name in names} == {
        name for name in secrets if name.startswith("webhook-")
    }
    for name in names:
        secret = host.file(f"/etc/hgfleet/secrets/webhook-{name}")
        assert (secret.user, secret.mode) == ("root", 0o600)
        assert secret.content_string.strip() not in settings.content_string
    wait_for(
        "the daemon to hear events",
        lambda: "webhooks.broker-connected" in host.run("journalctl -u %s -o cat", unit).stdout,
        120,
    )
    told = host.check_output("/opt/hgfleet/current/bin/hgfleet webhooks status").splitlines()
    assert {line.partition(":")[0] for line in told} >= set(names)
    state = host.file("/run/hgfleet-webhooks/state.json")
    assert (state.user, state.mode) == ("hgwebhooks", 0o644)


def test_a_mirror_refuses_changes_and_the_primary_waits_for_mirrors(
    host: Host, settings: dict[str, Any]
) -> None:
    show = "HGRCPATH=/etc/hgfleet/hgrc /opt/hgfleet/current/bin/hg config %s"
    if settings["role"] == "mirror":
        assert host.check_output(show, "hgfleet.replica-of") == settings["primary"]
        assert host.run(show, "hgfleet.relay").rc == 1
        for folder in ("manifests", "pullbundles"):
            place = host.file(f"/var/lib/hgfleet/{folder}")
            assert (place.user, place.group, place.mode) == ("hg", "hg", 0o2750)
    else:
        assert host.run(show, "hgfleet.replica-of").rc == 1
        wake = host.file(host.check_output(show, "hgfleet.relay"))
        assert wake.is_socket
        assert (wake.group, wake.mode & 0o007) == ("hg", 0)


def test_a_mirror_catches_up_and_is_healthy_from_then_on(
    host: Host, settings: dict[str, Any], wait_for: WaitFor
) -> None:
    if settings["role"] != "mirror":
        pytest.skip("the primary")

    def state() -> dict[str, Any]:
        loaded: dict[str, Any] = json.loads(host.file(STATE).content_string)
        return loaded

    wait_for("the mirror to catch up", lambda: state()["caught_up"], 120)
    ask = (
        "import ssl, urllib.request as u\n"
        "context = ssl.create_default_context(cafile='/etc/hgfleet/tls/ca.pem')\n"
        "try: print(u.urlopen('https://localhost:8443/healthz', context=context).status)\n"
        "except u.HTTPError as error: print(error.code)\n"
    )
    wait_for(
        "the mirror to be healthy", lambda: host.check_output("python3 -c %s", ask) == "200", 120
    )
    file = host.file(STATE)
    assert (file.user, file.mode) == ("hg", 0o644)
