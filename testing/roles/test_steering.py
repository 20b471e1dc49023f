"""The promises of the role steering, on any host that offers clients bundles."""

from __future__ import annotations

import json
import time
import tomllib
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from testinfra.host import Host

SERVICE = "hgfleet-steering.service"
HEALTH = "/run/hgfleet-steering/health.json"
OBJECTS = "/run/hgfleet-steering/health.objects"
HG = "/opt/hgfleet/current/bin/hg"


@pytest.fixture(scope="module")
def settings(host: Host) -> dict[str, Any]:
    return tomllib.loads(host.file("/etc/hgfleet/steering.toml").content_string)


def test_prober_runs_and_starts_with_the_host(host: Host) -> None:
    service = host.service(SERVICE)
    assert service.is_enabled
    assert service.is_running, host.run("journalctl -u %s -n 40 -o cat", SERVICE).stdout


def test_settings_are_fine_for_the_installed_release(host: Host) -> None:
    assert host.run("hgfleet steering check").rc == 0


def test_every_endpoint_is_probed_all_the_time(host: Host, settings: dict[str, Any]) -> None:
    state = json.loads(host.file(HEALTH).content_string)
    assert set(state["endpoints"]) == {endpoint["name"] for endpoint in settings["endpoint"]}
    assert abs(time.time() - state["written"]) < 15
    status = host.run("hgfleet steering status")
    assert status.rc == 0, status.stdout + status.stderr


@pytest.mark.parametrize("user", ["hg", "hgweb"])
def test_who_answers_clients_can_read_what_steering_needs(host: Host, user: str) -> None:
    for file in (HEALTH, OBJECTS, "/etc/hgfleet/steering.toml"):
        assert host.run("runuser -u %s -- test -r %s", user, file).rc == 0
        assert host.run("runuser -u %s -- test -w %s", user, file).rc != 0


def test_every_hg_of_the_service_steers(host: Host) -> None:
    shown = host.run("env HGRCPATH=/etc/hgfleet/hgrc %s config extensions.clonebundles_steer", HG)
    assert shown.stdout.strip() == "/opt/hgfleet/current/hgext/clonebundles_steer.py"


def test_prober_is_sandboxed(host: Host) -> None:
    shown = host.check_output("systemctl show %s", SERVICE)
    values = dict(line.split("=", 1) for line in shown.splitlines() if "=" in line)
    assert values["User"] == "hgsteering"
    # Only this group can read manifests of repositories in folders.
    assert values["SupplementaryGroups"] == "hg"
    assert values["ProtectSystem"] == "strict"
    assert values["WatchdogUSec"] == "30s"
    exposure = host.check_output("systemd-analyze security --no-pager %s", SERVICE).splitlines()[-1]
    assert float(exposure.split()[-3]) < 2, exposure
