"""The promises of the role monitoring, on any host of the group monitoring."""

from __future__ import annotations

import json
import re
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

JOURNALS = "/var/log/journal/remote"
PROXY = "hgfleet-journal-proxy.service"
PROBES = "/var/lib/hgfleet-probes/clone.json"
UNITS = ("prometheus", "prometheus-alertmanager", "prometheus-blackbox-exporter")
RULE_TESTS = Path(__file__).parents[1] / "alerts"
TLS = "/etc/hgfleet/tls"

# Runs on the host: queries its Prometheus with the host's certificate.
ASK = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
context.load_cert_chain("/etc/hgfleet/tls/cert.pem", "/etc/hgfleet/tls/key.pem")
with urllib.request.urlopen(sys.argv[1], timeout=10, context=context) as answer:
    print(answer.read().decode())
"""

# Runs on the host: sends a line to the receiver of journals.
SEND = """
import http.client, ssl, sys, time
method, path, message, host, port, *certificate = sys.argv[1:]
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
if certificate:
    context.load_cert_chain(*certificate)
boot = open("/proc/sys/kernel/random/boot_id").read().strip().replace("-", "")
fields = {"__REALTIME_TIMESTAMP": time.time_ns() // 1000, "_BOOT_ID": boot, "MESSAGE": message}
fields |= {"__MONOTONIC_TIMESTAMP": time.monotonic_ns() // 1000}
entry = "".join(f"{name}={value}\\n" for name, value in fields.items()) + "\\n"
connection = http.client.HTTPSConnection(host, int(port), context=context, timeout=20)
connection.request(method, path, entry, {"Content-Type": "application/vnd.fdo.journal"})
print(connection.getresponse().status)
"""


def url(host: Host) -> str:
    setting = host.check_output(
        "grep -o 'web.external-url=[^ ]*' /etc/systemd/system/prometheus.service"
    )
    return str(setting.partition("=")[2]).rstrip("/")


def ask(host: Host, path: str) -> Any:
    return json.loads(host.check_output("python3 -c %s %s", ASK, f"{url(host)}/api/v1/{path}"))[
        "data"
    ]


def targets(host: Host) -> dict[str, list[dict[str, Any]]]:
    pools: dict[str, list[dict[str, Any]]] = {}
    for target in ask(host, "targets?state=active")["activeTargets"]:
        pools.setdefault(target["scrapePool"], []).append(target)
    return pools


def test_programs_run_and_start_with_the_host(host: Host) -> None:
    for name in UNITS:
        service = host.service(name)
        assert service.is_enabled
        assert service.is_running, host.run("journalctl -u %s -n 40 -o cat", name).stdout


def test_metrics_of_every_host_arrive(host: Host, wait_for: WaitFor) -> None:
    def are_up() -> bool:
        pools = targets(host)
        asked = [
            target for pool in ("hosts", "prometheus", "alertmanager") for target in pools[pool]
        ]
        wrong = [f"{a['scrapeUrl']}: {a['lastError']}" for a in asked if a["health"] != "up"]
        assert not wrong, wrong
        return True

    wait_for("all targets are up", are_up, seconds=60)
    hosts = {target["labels"]["host"] for target in targets(host)["hosts"]}
    assert host.check_output("hostname") in hosts


def test_metrics_of_hgfleet_arrive(host: Host, wait_for: WaitFor) -> None:
    def releases() -> list[Any]:
        return list(ask(host, "query?query=hgfleet_release_info")["result"])

    series = wait_for("releases of hosts are known", releases, seconds=60)
    assert all(sample["metric"]["host"] for sample in series)


def test_dashboards_are_a_page_of_prometheus(host: Host) -> None:
    page = host.check_output("python3 -c %s %s", ASK, f"{url(host)}/consoles/hgfleet.html")
    assert '"name": "replication"' in page
    assert 'host=~\\"$host\\"' in page


def test_every_alert_of_the_role_is_evaluated(host: Host, wait_for: WaitFor) -> None:
    wanted = {
        rule.get("alert") or rule["record"]
        for name in host.file("/etc/prometheus/alerts").listdir()
        for group in yaml.safe_load(host.file(f"/etc/prometheus/alerts/{name}").content_string)[
            "groups"
        ]
        for rule in group["rules"]
    }

    def evaluated() -> set[str]:
        rules = [rule for group in ask(host, "rules")["groups"] for rule in group["rules"]]
        assert all(rule["health"] == "ok" for rule in rules), rules
        return {rule["name"] for rule in rules}

    assert wait_for("all rules are evaluated", evaluated, seconds=60) == wanted
    assert len(wanted) > 20


@pytest.mark.parametrize("name", sorted(path.name for path in RULE_TESTS.glob("*.yml")))
def test_alerts_fire_and_are_quiet_as_their_tests_say(host: Host, name: str) -> None:
    text = (RULE_TESTS / name).read_text()
    done = host.run("printf '%%s' %s | promtool test rules /dev/stdin", text)
    assert done.rc == 0, done.stdout + done.stderr


def test_settings_are_understood(host: Host) -> None:
    host.check_output("promtool check config --lint=none /etc/prometheus/prometheus.yml")
    host.check_output("amtool check-config /etc/prometheus/alertmanager.yml")


def test_a_client_without_a_certificate_is_refused(host: Host) -> None:
    script = ASK.replace("context.load_cert_chain", "(lambda *_: None)")
    done = host.run("python3 -c %s %s", script, f"{url(host)}/-/ready")
    assert done.rc != 0
    assert "certificate" in done.stderr.lower() or "alert" in done.stderr.lower(), done.stderr


def test_only_prometheus_listens_beyond_the_host(host: Host) -> None:
    listening = host.check_output("ss -Hltnp")
    addresses = [line.split()[3] for line in listening.splitlines()]
    for inner in ("9093", "9115"):
        bound = [address for address in addresses if address.endswith(f":{inner}")]
        assert bound == [f"127.0.0.1:{inner}"], listening
    assert f"*:{url(host).rpartition(':')[2]}" in addresses, listening


def test_programs_are_sandboxed(host: Host) -> None:
    for name in UNITS:
        text = host.check_output("systemctl show %s", name)
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        assert values["User"] == "prometheus"
        assert values["ProtectSystem"] == "strict"
        assert values.get("CapabilityBoundingSet", "") == ""
        line = host.check_output("systemd-analyze security --no-pager %s", name).splitlines()[-1]
        assert float(line.split()[-3]) < 2.5, line


def listened(host: Host) -> set[str]:
    """Return the ports that programs listen on."""
    lines = host.check_output("ss -Hltn").splitlines()
    return {line.split()[3].rpartition(":")[2] for line in lines}


@pytest.fixture(scope="module")
def journal_port(host: Host) -> str:
    """The port on which the host receives journals."""
    settings = host.file("/etc/hgfleet/journal-proxy.conf")
    if not settings.exists:
        assert "19532" not in listened(host)
        pytest.skip("monitoring_journal_port is 0")
    match = re.search(r"listen \*:([0-9]+) ssl", settings.content_string)
    assert match
    return match[1]


@pytest.fixture(scope="module")
def senders(host: Host, journal_port: str) -> list[str]:  # noqa: ARG001
    """The hosts that send their journals."""
    text = host.check_output("systemctl show --value -p Wants %s", PROXY)
    units = [unit for unit in text.split() if unit.startswith("hgfleet-journal-remote@")]
    return [unit.partition("@")[2].removesuffix(".socket") for unit in units]


def send(host: Host, port: str, message: str, *certificate: str, **request: str) -> str:
    """Send a line to the host itself; return the status of the answer."""
    method, path = request.get("method", "POST"), request.get("path", "/upload")
    words = " ".join([host.check_output("hostname"), port, *certificate])
    command = f"python3 -c %s {method} {path} %s {words}"
    status: str = host.check_output(command, SEND, message)
    return status


def test_journals_are_received_from_the_start_of_the_host_on(
    host: Host, journal_port: str, senders: list[str]
) -> None:
    assert host.service(PROXY).is_enabled
    for unit in (PROXY, *(f"hgfleet-journal-remote@{name}.socket" for name in senders)):
        shown = host.run("journalctl -u %s -n 40 -o cat", unit).stdout
        assert host.service(unit).is_running, shown
    assert journal_port in listened(host)
    # The package's other server, which would serve the journal to every client, is off.
    assert "19531" not in listened(host)


def test_the_journal_of_every_other_host_is_stored(
    host: Host, senders: list[str], wait_for: WaitFor
) -> None:
    for name in senders:
        files = f"{JOURNALS}/remote-{name}[.@]*"
        words = f"journalctl --no-pager -q -o cat --output-fields=_HOSTNAME -n 5 --file='{files}'"

        def names(words: str = words) -> set[str]:
            return set(host.run(words).stdout.split())

        assert wait_for(f"lines of {name}", names, seconds=60) == {name}


@pytest.mark.changes
def test_a_line_without_a_certificate_of_the_site_is_refused(host: Host, journal_port: str) -> None:
    message, folder = f"refused-{uuid.uuid4()}", host.check_output("mktemp -d")
    pair = [f"{folder}/cert.pem", f"{folder}/key.pem"]
    try:
        host.check_output(
            "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 1 "
            "-subj /CN=%s -out %s -keyout %s 2>&1",
            host.check_output("hostname"),
            *pair,
        )
        assert send(host, journal_port, message) == "400"
        assert send(host, journal_port, message, *pair) == "400"
    finally:
        host.check_output("rm -r %s", folder)
    assert message not in host.check_output("journalctl --no-pager -o cat -D %s", JOURNALS)


def test_a_certificate_that_is_of_no_sender_is_refused(host: Host, journal_port: str) -> None:
    """The certificate of the host itself, which sends its journal nowhere."""
    message, own = f"refused-{uuid.uuid4()}", (f"{TLS}/cert.pem", f"{TLS}/key.pem")
    for path in ("/upload", "/", "/entries"):
        for method in ("POST", "GET"):
            assert send(host, journal_port, message, *own, method=method, path=path) == "403"
    assert message not in host.check_output("journalctl --no-pager -o cat -D %s", JOURNALS)


def test_only_nginx_reaches_the_receivers(host: Host, senders: list[str]) -> None:
    for name in senders:
        socket = host.file(f"/run/hgfleet-journal-remote/{name}.sock")
        assert (socket.user, socket.group, socket.mode) == ("root", "hgjournal-proxy", 0o660)


@pytest.mark.usefixtures("journal_port")
def test_received_journals_take_bounded_disk_space(host: Host) -> None:
    text = host.check_output("systemd-analyze cat-config systemd/journal-remote.conf")
    pairs = (line.partition("=") for line in text.splitlines() if not line.startswith(("#", "[")))
    settings = {name: value for name, _, value in pairs}
    most, file = (int(settings[name].removesuffix("M")) for name in ("MaxUse", "MaxFileSize"))
    assert 8 <= file <= most
    used = int(host.check_output("du -sm %s", JOURNALS).split()[0])
    assert used <= most * 3 // 2 + 1


def test_the_receivers_of_journals_have_no_rights(host: Host, senders: list[str]) -> None:
    users = {PROXY: "hgjournal-proxy"}
    users |= {f"hgfleet-journal-remote@{name}.service": "hgjournal-remote" for name in senders}
    for unit, user in users.items():
        text = host.check_output("systemctl show %s", unit)
        values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
        assert values["User"] == user
        assert values["PrivateNetwork"] == ("no" if unit == PROXY else "yes")
        assert values["ProtectSystem"] == "strict"
        assert values.get("CapabilityBoundingSet", "") == ""
        line = host.check_output("systemd-analyze security --no-pager %s", unit).splitlines()[-1]
        assert float(line.split()[-3]) < 2.5, line
    assert host.run("runuser -u hgjournal-proxy -- ls %s", JOURNALS).rc != 0
    assert host.run("runuser -u nobody -- ls %s", JOURNALS).rc != 0


@pytest.fixture
def probes(host: Host) -> None:
    """Skip the test if the inventory names no repository for the probes."""
    if 'clone_url = ""' in host.file("/etc/hgfleet/probes.toml").content_string:
        assert not host.service("hgfleet-probes.service").is_enabled
        pytest.skip("monitoring_probe_repository names none")


@pytest.mark.usefixtures("probes")
def test_probes_come_each_minute_and_start_with_the_host(host: Host, wait_for: WaitFor) -> None:
    service = host.service("hgfleet-probes.service")
    assert service.is_enabled
    assert service.is_running

    def newest() -> float:
        # Read by the metrics, which have no special rights there.
        read = host.check_output("runuser -u nobody -- cat %s", PROBES)
        return float(json.loads(read)["results"][-1][0])

    a_minute_ago = float(host.check_output("date +%s")) - 60
    wait_for("a clone was tried", lambda: newest() > a_minute_ago, seconds=120)


@pytest.mark.usefixtures("probes")
def test_results_of_probes_are_counted_and_shown(host: Host, wait_for: WaitFor) -> None:
    def counted() -> bool:
        answer = ask(host, "query?query=sum(objective:attempts:total%7Bobjective=%22clones%22%7D)")
        return bool(answer["result"]) and float(answer["result"][0]["value"][1]) > 0

    wait_for("clones are counted", counted, seconds=120)
    assert "clone" in host.check_output("hgfleet probes show").lower()
    assert "<h2>Clones, last 24 hours" in host.check_output("hgfleet probes page")


@pytest.mark.usefixtures("probes")
def test_the_push_probe_has_a_key_and_pinned_host_keys_or_neither(host: Host) -> None:
    unit = host.file("/etc/systemd/system/hgfleet-probes.service").content_string
    has_push = "\n[push]\n" in host.file("/etc/hgfleet/probes.toml").content_string
    assert ("LoadCredential=probe-push-key:" in unit) == has_push
    assert host.file("/etc/hgfleet/secrets/probe-push-key").exists == has_push
    if has_push:
        lines = host.file("/etc/hgfleet/probes.known_hosts").content_string.splitlines()
        assert {line.split()[1] for line in lines} == {"ssh-ed25519", "ssh-rsa"}
        assert "push" in host.check_output("hgfleet probes show").lower()


def test_the_probes_are_sandboxed_and_see_no_secret(host: Host) -> None:
    name = "hgfleet-probes.service"
    text = host.check_output("systemctl show %s", name)
    values = dict(line.split("=", 1) for line in text.splitlines() if "=" in line)
    assert values["User"] == "hgprobes"
    assert "/etc/hgfleet/secrets" in values["InaccessiblePaths"]
    line = host.check_output("systemd-analyze security --no-pager %s", name).splitlines()[-1]
    assert float(line.split()[-3]) < 2.5, line
    for secret in host.file("/etc/hgfleet/secrets").listdir():
        if secret.startswith(("status-", "probe-")):
            assert host.file(f"/etc/hgfleet/secrets/{secret}").mode == 0o600
