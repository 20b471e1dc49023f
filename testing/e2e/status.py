"""The status page of the cluster, for tests."""

from __future__ import annotations

import re
import ssl
import urllib.request
from datetime import datetime
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

LAST: Final = r'The last {}, at <time datetime="([^"]+)">[^<]*</time>, (\w+)'


def fetch(cluster: Cluster, url: str) -> str:
    """Return a document of the store, as a client without credentials gets it."""
    context = ssl.create_default_context(cafile=cluster.env["HGFLEET_CA_CERT"])
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    with opener.open(url, timeout=10) as answer:
        assert answer.headers["Content-Type"] == "text/html; charset=utf-8"
        return str(answer.read().decode())


def page(cluster: Cluster) -> str:
    """Return the status page."""
    return fetch(cluster, cluster.env["HGFLEET_STATUS_URL"])


def last(probe: str, text: str) -> tuple[datetime, str]:
    """Return the time and the result of the last clone or push, by the page."""
    match = re.search(LAST.format(probe), text)
    assert match is not None, text
    return datetime.fromisoformat(match[1]), match[2]


def probe(host: Host) -> None:
    """Have the host clone and push now."""
    host.systemctl("reload", "hgfleet-probes.service").ok()
