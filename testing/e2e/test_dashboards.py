"""The dashboards in a browser show what Prometheus knows."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

import pytest

from controller.checks import dashboards
from testing.e2e import browser
from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from testing.e2e.cluster import Cluster
    from testing.e2e.prometheus import Prometheus

pytestmark = pytest.mark.without("stores")

ALWAYS_DRAWN = ("service", "hosts")
"""Panels whose metrics exist as soon as a host runs; others come with the first run of a job."""

SECTION = re.compile(r"<section>(.*?)</section>", re.DOTALL)


@pytest.fixture(scope="module")
def url(cluster: Cluster) -> Iterator[str]:
    with browser.prometheus_without_certificate(cluster.env) as address:
        yield address + browser.PAGE


def panels(page: str) -> dict[str, str]:
    """Return the HTML of each panel by its title."""
    sections = [section[1] for section in SECTION.finditer(page)]
    return {re.search("<h2>(.*?)</h2>", text)[1]: text for text in sections}  # type: ignore[index]


def has_data(prometheus: Prometheus, panel: Mapping[str, Any], host: str) -> bool:
    queries = [line["expr"].replace("$host", host) for line in panel["lines"]]
    return any(prometheus.ask("query", query=query)["result"] for query in queries)


@pytest.mark.parametrize("dashboard", dashboards.read(), ids=lambda dashboard: dashboard["name"])
def test_a_dashboard_draws_every_panel_that_has_data(
    url: str, prometheus: Prometheus, dashboard: Mapping[str, Any]
) -> None:
    titles = {panel["title"] for panel in dashboard["panels"]}

    def with_data() -> set[str]:
        return {
            panel["title"] for panel in dashboard["panels"] if has_data(prometheus, panel, ".*")
        }

    if dashboard["name"] in ALWAYS_DRAWN:
        # The first probe of a new host is a minute after its start.
        wait_until("every panel has data", lambda: with_data() == titles, 180)
    known = with_data()
    drawn = panels(browser.page(f"{url}?dashboard={dashboard['name']}"))
    assert drawn.keys() == titles
    with_lines = {title for title, text in drawn.items() if "<path" in text and "swatch" in text}
    assert known <= with_lines
    if dashboard["name"] in ALWAYS_DRAWN:
        assert with_lines == drawn.keys()
    for title in drawn.keys() - with_lines:
        assert "nothing to show" in drawn[title], drawn[title]


def test_a_reader_chooses_a_host(url: str, cluster: Cluster) -> None:
    name, other = cluster.first("ssh").name, cluster.first("proxy").name
    chosen = quote(name.replace(".", "\\\\."))
    (panel,) = [
        text
        for title, text in panels(browser.page(f"{url}?dashboard=hosts&host={chosen}")).items()
        if title == "Processors in use"
    ]
    legend = re.findall(r'class="label">([^<]*)<', panel)
    assert legend == [name]
    assert other not in legend


@pytest.mark.parametrize("host", ['"} or vector(1) or up{host=~"', "<script>alert(1)</script>"])
def test_a_host_that_is_none_is_not_asked_for(url: str, host: str) -> None:
    page = browser.page(f"{url}?dashboard=hosts&host={quote(host)}")
    assert "<path" in panels(page)["Processors in use"]
    assert "alert(1)" not in page
