"""The Prometheus of the cluster, for tests."""

from __future__ import annotations

import json
import ssl
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

    from testing.e2e.cluster import Cluster

IN_TIME: Final = 60
"""Seconds from a fault that users notice to its alert."""

SEEN: Final = 90
"""Seconds until a change of a host's state is seen: the next write, the next scrape, and some."""


def opener(env: Mapping[str, str]) -> urllib.request.OpenerDirector:
    """Return an opener of its URLs, with the certificate of `./cluster env` and without a proxy."""
    context = ssl.create_default_context(cafile=env["HGFLEET_CA_CERT"])
    context.load_cert_chain(env["HGFLEET_METRICS_CERT"])
    return urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )


@dataclass(frozen=True)
class Prometheus:
    """The cluster's Prometheus, by the variables of `./cluster env`."""

    cluster: Cluster

    def ask(self, path: str, **parameters: str) -> Any:
        """Return the data of an answer of its API."""
        env = self.cluster.env
        query = urllib.parse.urlencode(parameters)
        url = f"{env['HGFLEET_METRICS_URL']}/api/v1/{path}?{query}"
        with opener(env).open(url, timeout=10) as answer:
            return json.load(answer)["data"]

    def firing(self) -> set[tuple[str, str]]:
        """Return the alerts that fire, each with its host; the heartbeat has none."""
        alerts = self.ask("alerts")["alerts"]
        return {
            (alert["labels"]["alertname"], alert["labels"].get("host", ""))
            for alert in alerts
            if alert["state"] == "firing"
        }

    def query(self, expression: str) -> dict[str, float]:
        """Return the values of an expression by host."""
        series = self.ask("query", query=expression)["result"]
        return {sample["metric"]["host"]: float(sample["value"][1]) for sample in series}
