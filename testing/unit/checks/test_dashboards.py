"""Dashboards: each line is of metrics that exist, and Grafana's form has all of them."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from controller.checks import dashboards
from testing.unit.monitoring.test_families import names_of_all_parts

if TYPE_CHECKING:
    from pathlib import Path

FOREIGN = ("node_", "probe_", "prometheus_", "ALERTS")
"""Prefixes of metrics that the programs of Debian have; the cluster's tests ask for them."""

LINES = [
    pytest.param(line, id=f"{dashboard['name']}: {panel['title']}: {number}")
    for dashboard in dashboards.read()
    for panel in dashboard["panels"]
    for number, line in enumerate(panel["lines"])
]


@pytest.mark.parametrize("line", LINES)
def test_a_line_is_of_metrics_that_exist_and_of_the_hosts_that_the_reader_chose(
    line: dict[str, str],
) -> None:
    names = set(re.findall(r"\b(?:hgfleet|node|probe|prometheus)_\w+\b|\bALERTS\b", line["expr"]))
    assert names
    unknown = {name for name in names if not name.startswith(FOREIGN)} - names_of_all_parts()
    assert not unknown
    assert 'host=~"$host"' in line["expr"]


def test_names_and_titles_are_told_apart() -> None:
    boards = dashboards.read()
    assert len({board["name"] for board in boards}) == len(boards)
    for board in boards:
        titles = [panel["title"] for panel in board["panels"]]
        assert len(set(titles)) == len(titles)
        assert board["about"].endswith(".")


def test_a_panel_of_grafana_has_the_lines_of_the_definition() -> None:
    panels = [
        {"title": "A", "unit": "bytes", "lines": [{"expr": "up", "legend": "{host} sent"}]},
        {"title": "B", "unit": "ratio", "help": "Why.", "lines": []},
        {"title": "C", "unit": "count", "lines": []},
    ]
    model = json.loads(
        dashboards.render({"name": "x", "title": "X", "about": "All.", "panels": panels})
    )
    first, second, third = model["panels"]
    assert first["targets"][0]["legendFormat"] == "{{host}} sent"
    assert first["fieldConfig"]["defaults"]["unit"] == "bytes"
    assert second["description"] == "Why."
    places = [(p["gridPos"]["x"], p["gridPos"]["y"]) for p in (first, second, third)]
    assert places == [(0, 0), (12, 0), (0, 8)]


def test_each_dashboard_is_a_file_for_grafana(tmp_path: Path) -> None:
    assert dashboards.main([str(tmp_path / "new")]) == 0
    written = {path.stem: json.loads(path.read_text()) for path in (tmp_path / "new").iterdir()}
    assert {name: model["title"] for name, model in written.items()} == {
        dashboard["name"]: f"hgfleet: {dashboard['title']}" for dashboard in dashboards.read()
    }
