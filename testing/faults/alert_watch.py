"""A second Prometheus next to the cluster's own, in which every alert fires within seconds.

Alerts wait for up to 26 hours (`for`). The second Prometheus evaluates the same expressions on the
same metrics, and waits for seconds (`alert_config.py`). It runs on the monitoring host, answers
only this host, and is removed after the test. The real Prometheus and Alertmanager do not notice
it.
"""

from __future__ import annotations

import json
import time
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlencode

import yaml

from testing.e2e.command import wait_until
from testing.faults import alert_config

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from testing.e2e.host import Host

FOLDER: Final = "/var/tmp/alert-watch"
CONFIG: Final = "/etc/prometheus/prometheus.yml"
RULES: Final = "/etc/prometheus/alerts"
UNITS: Final = ("alert-watch-prometheus", "alert-watch-alertmanager", "alert-watch-receiver")
PROMETHEUS, ALERTMANAGER, RECEIVER = UNITS
SECONDS_TO_START: Final = 60

# Runs on the monitoring host, which has no curl.
ASK: Final = """
import sys, urllib.request
method, url = sys.argv[1:]
opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
with opener.open(urllib.request.Request(url, method=method), timeout=10) as answer:
    sys.stdout.write(answer.read().decode())
"""
ANSWERS: Final = """
import http.server, sys
class Receiver(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        self.send_response(200)
        self.end_headers()
    def log_message(self, *_):
        pass
host, port = sys.argv[1].split(":")
http.server.ThreadingHTTPServer((host, int(port)), Receiver).serve_forever()
"""


@dataclass(frozen=True)
class Watch:
    """The second Prometheus, on the monitoring host."""

    host: Host

    def ask(self, path: str, method: str = "GET", **parameters: str) -> Any:
        """Return the data of an answer of the API; None where the answer has no content."""
        url = f"http://{alert_config.PROMETHEUS}/api/v1/{path}?{urlencode(parameters)}"
        done = self.host.run("python3", "-c", ASK, method, url).ok()
        return json.loads(done.stdout)["data"] if done.stdout else None

    def alerts(self) -> list[Mapping[str, str]]:
        """Return the labels of each alert that is pending or firing, and `state` with its state."""
        return [
            alert["labels"] | {"state": alert["state"]} for alert in self.ask("alerts")["alerts"]
        ]

    def delivered(self) -> set[str]:
        """Return the names of the alerts that the second Alertmanager has from this Prometheus."""
        address = f"http://{alert_config.ALERTMANAGER}"
        ask = ("amtool", "--alertmanager.url", address, "alert", "--output=json")
        listed = json.loads(self.host.run(*ask).ok().stdout)
        return {alert["labels"]["alertname"] for alert in listed}

    def forget(self, selector: str) -> None:
        """Delete the samples of series up to now, as if the windows that read them had passed."""
        self.ask(
            "admin/tsdb/delete_series",
            "POST",
            **{"match[]": selector, "end": f"{time.time():.3f}"},
        )

    def start_receiver(self) -> None:
        """Start a program that receives the notifications of the second Alertmanager."""
        words = ["/usr/bin/python3", "-c", ANSWERS, alert_config.RECEIVER]
        self.host.run(*_unit(RECEIVER), *words).ok()

    def stop_receiver(self) -> None:
        """Let deliveries fail."""
        self.host.systemctl("stop", f"{RECEIVER}.service").ok()

    def last_read(self) -> str:
        """Return when the last target was scraped; an error while a target has not answered yet."""
        targets = self.ask("targets", state="active")["activeTargets"]
        assert targets
        waiting = [
            (target["scrapeUrl"], target["lastError"])
            for target in targets
            if target["health"] != "up"
        ]
        assert not waiting, waiting
        return str(max(target["lastScrape"] for target in targets))

    def has_evaluated(self, since: str) -> bool:
        """Whether each rule was evaluated after a moment."""
        groups = self.ask("rules")["groups"]
        return bool(groups) and all(group["lastEvaluation"] > since for group in groups)


@contextmanager
def watch(host: Host, history: Iterable[str] = ()) -> Iterator[Watch]:
    """Run the second Prometheus; `history` is its former samples, in OpenMetrics."""
    _remove(host)
    try:
        config = yaml.safe_load(host.shell(f"cat {CONFIG}"))
        host.shell(f"install -d -m 700 -o prometheus -g prometheus {FOLDER} {FOLDER}/rules")
        for name in host.shell(f"ls {RULES}").split():
            rules = yaml.safe_load(host.shell(f"cat {RULES}/{name}"))
            _write(host, f"{FOLDER}/rules/{name}", alert_config.capped(rules))
        changed = alert_config.watching(config, f"{FOLDER}/rules/*.yml")
        _write(host, f"{FOLDER}/prometheus.yml", changed)
        _write(host, f"{FOLDER}/alertmanager.yml", alert_config.delivering())
        if seen := list(history):
            host.write(f"{FOLDER}/history", "\n".join(seen) + "\n")
            load = "promtool tsdb create-blocks-from openmetrics"
            host.shell(f"{load} {FOLDER}/history {FOLDER}/data")
        host.shell(f"chown -R prometheus: {FOLDER}")
        watching = Watch(host)
        watching.start_receiver()
        _start(host)
        last = wait_until("the second Prometheus reads all", watching.last_read, SECONDS_TO_START)
        wait_until("it evaluates all", lambda: watching.has_evaluated(last), SECONDS_TO_START)
        yield watching
    finally:
        _remove(host)


def _start(host: Host) -> None:
    host.run(
        *_unit(ALERTMANAGER),
        "/usr/bin/prometheus-alertmanager",
        f"--config.file={FOLDER}/alertmanager.yml",
        f"--storage.path={FOLDER}/alertmanager",
        f"--web.listen-address={alert_config.ALERTMANAGER}",
        "--cluster.listen-address=",
        "--log.level=error",
    ).ok()
    host.run(
        *_unit(PROMETHEUS),
        "/usr/bin/prometheus",
        f"--config.file={FOLDER}/prometheus.yml",
        f"--storage.tsdb.path={FOLDER}/data",
        f"--web.listen-address={alert_config.PROMETHEUS}",
        "--web.enable-admin-api",
        "--log.level=warn",
    ).ok()


def _unit(name: str) -> list[str]:
    # The group can read the key of the host's certificate, as in the role's unit.
    options = ["--collect", "--quiet", "--uid=prometheus", "--gid=prometheus", "--nice=5"]
    return ["systemd-run", f"--unit={name}", *options, "--property=SupplementaryGroups=ssl-cert"]


def _write(host: Host, file: str, content: Mapping[str, Any]) -> None:
    host.write(file, yaml.safe_dump(dict(content), sort_keys=False))


def _remove(host: Host) -> None:
    # Also removes the units and files of a killed test.
    units = " ".join(f"{unit}.service" for unit in UNITS)
    host.shell(f"systemctl stop {units} 2>/dev/null || :; rm -rf {FOLDER}")
