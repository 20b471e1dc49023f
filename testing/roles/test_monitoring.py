"""The promises of the role monitoring, on any host of the group monitoring."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from testinfra.host import Host

    from testing.conftest import WaitFor

PROBES = "/var/lib/hgfleet-probes/clone.json"
UNITS = ("prometheus", "prometheus-alertmanager", "prometheus-blackbox-exporter")
RULE_TESTS = Path(__file__).parents[1] / "alerts"
TLS = "/etc/hgfleet/tls"

# Runs on the host: asks its Prometheus with the host's certificate.
ASK = """
import ssl, sys, urllib.request
context = ssl.create_default_context(cafile="/etc/hgfleet/tls/ca.pem")
context.load_cert_chain("/etc/hgfleet/tls/cert.pem", "/etc/hgfleet/tls/key.pem")
with urllib.request.urlopen(sys.argv[1], timeout=10, context=context) as answer:
    print(answer.read().decode())
"""


def url(host: Host) -> str:
    found = host.check_output(
        "grep -o 'web.external-url=[^ ]*' /etc/systemd/system/prometheus.service"
    )
    return str(found.partition("=")[2]).rstrip("/")


def ask(host: Host, path: str) -> Any:
    return json.loads(host.check_output("python3 -c %s %s", ASK, f"{url(host)}/api/v1/{path}"))[
        "data"
    ]


def targets(host: Host) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for one in ask(host, "targets?state=active")["activeTargets"]:
        found.setdefault(one["scrapePool"], []).append(one)
    return found


def test_programs_run_and_start_with_the_host(host: Host) -> None:
    for name in UNITS:
        service = host.service(name)
        assert service.is_enabled
        assert service.is_running, host.run("journalctl -u %s -n 40 -o cat", name).stdout


def test_metrics_of_every_host_arrive(host: Host, wait_for: WaitFor) -> None:
    def are_up() -> bool:
        found = targets(host)
        asked = [one for pool in ("hosts", "prometheus", "alertmanager") for one in found[pool]]
        wrong = [f"{a['scrapeUrl']}: {a['lastError']}" for a in asked if a["health"] != "up"]
        assert not wrong, wrong
        return True

    wait_for("all targets are up", are_up, seconds=60)
    hosts = {one["labels"]["host"] for one in targets(host)["hosts"]}
    assert host.check_output("hostname") in hosts


def test_metrics_of_hgfleet_arrive(host: Host, wait_for: WaitFor) -> None:
    def releases() -> list[Any]:
        return list(ask(host, "query?query=hgfleet_release_info")["result"])

    found = wait_for("releases of hosts are known", releases, seconds=60)
    assert all(one["metric"]["host"] for one in found)


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
        found = [one for one in addresses if one.endswith(f":{inner}")]
        assert found == [f"127.0.0.1:{inner}"], listening
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


@pytest.fixture
def probes(host: Host) -> None:
    """The inventory names a repository for the probes."""
    if 'clone_url = ""' in host.file("/etc/hgfleet/probes.toml").content_string:
        assert not host.service("hgfleet-probes.timer").is_enabled
        pytest.skip("monitoring_probe_repository names none")


@pytest.mark.usefixtures("probes")
def test_probes_come_each_minute_and_start_with_the_host(host: Host, wait_for: WaitFor) -> None:
    timer = host.service("hgfleet-probes.timer")
    assert timer.is_enabled
    assert timer.is_running

    def newest() -> float:
        # For metrics, which have no right of their own there.
        read = host.check_output("runuser -u nobody -- cat %s", PROBES)
        return float(json.loads(read)["results"][-1][0])

    a_minute_ago = float(host.check_output("date +%s")) - 60
    wait_for("a clone was tried", lambda: newest() > a_minute_ago, seconds=120)


@pytest.mark.usefixtures("probes")
def test_results_of_probes_are_counted_and_shown(host: Host, wait_for: WaitFor) -> None:
    def counted() -> bool:
        found = ask(host, "query?query=sum(objective:attempts:total%7Bobjective=%22clones%22%7D)")
        return bool(found["result"]) and float(found["result"][0]["value"][1]) > 0

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
