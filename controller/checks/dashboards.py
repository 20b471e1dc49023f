"""Writes the dashboards of the role monitoring for an import into Grafana.

python -m controller.checks.dashboards FOLDER

The model fits Grafana 10 and later: https://grafana.com/docs/grafana/latest/dashboards
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
DEFINITION: Final = ROOT / "ansible/roles/monitoring/files/dashboards.yml"

COMMAND: Final = "python -m controller.checks.dashboards"

UNITS: Final[Mapping[str, Mapping[str, Any]]] = {
    "bytes": {"unit": "bytes", "min": 0},
    "bytes per second": {"unit": "Bps", "min": 0},
    "count": {"unit": "short", "min": 0},
    "per second": {"unit": "ops", "min": 0},
    "ratio": {"unit": "percentunit", "min": 0, "max": 1},
    "seconds": {"unit": "s"},
    "yes or no": {"unit": "bool_yes_no", "min": 0, "max": 1},
}
"""Units of a panel, with their names in Grafana."""

COLUMNS: Final = 24
"""Columns of Grafana's grid; two panels stand side by side."""

ROWS: Final = 8
"""Height of a panel, in rows of the grid."""

SOURCE: Final[Mapping[str, str]] = {"type": "prometheus", "uid": "${source}"}
"""The reader chooses the data source, whose name differs between installations."""


def render(dashboard: Mapping[str, Any]) -> str:
    """Return the model of a dashboard, as JSON."""
    host = {
        "name": "host",
        "label": "Host",
        "type": "query",
        "datasource": SOURCE,
        "query": "label_values(up, host)",
        "refresh": 2,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
    }
    source = {"name": "source", "label": "Source", "type": "datasource", "query": "prometheus"}
    model = {
        "uid": f"hgfleet-{dashboard['name']}",
        "title": f"hgfleet: {dashboard['title']}",
        "description": dashboard["about"],
        "tags": ["hgfleet"],
        "schemaVersion": 39,
        "refresh": "1m",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [source, host]},
        "panels": [_panel(index, panel) for index, panel in enumerate(dashboard["panels"])],
    }
    return json.dumps(model, indent=1, ensure_ascii=False) + "\n"


def _panel(index: int, panel: Mapping[str, Any]) -> dict[str, Any]:
    width = COLUMNS // 2
    return {
        "id": index + 1,
        "type": "timeseries",
        "title": panel["title"],
        "description": panel.get("help", ""),
        "datasource": SOURCE,
        "gridPos": {"x": index % 2 * width, "y": index // 2 * ROWS, "w": width, "h": ROWS},
        "fieldConfig": {"defaults": UNITS[panel["unit"]], "overrides": []},
        "options": {"tooltip": {"mode": "multi"}},
        "targets": [
            {
                "refId": chr(ord("A") + number),
                "datasource": SOURCE,
                "expr": line["expr"],
                "legendFormat": re.sub(r"\{(\w+)\}", r"{{\1}}", line["legend"]),
            }
            for number, line in enumerate(panel["lines"])
        ],
    }


def read(definition: Path = DEFINITION) -> list[dict[str, Any]]:
    """Return the dashboards of the role."""
    return list(yaml.safe_load(definition.read_text("utf-8")))


def main(arguments: Sequence[str] | None = None) -> int:
    """Write each dashboard into the folder."""
    parser = argparse.ArgumentParser(
        prog=COMMAND, description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="where the files are written")
    folder: Path = parser.parse_args(arguments).folder
    folder.mkdir(parents=True, exist_ok=True)
    for dashboard in read():
        path = folder / f"{dashboard['name']}.json"
        path.write_text(render(dashboard), "utf-8")
        print(path)
    return 0


if __name__ == "__main__":
    sys.exit(main())
