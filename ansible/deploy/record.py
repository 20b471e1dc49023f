"""Read what deploys left on this host, without a package: `record.py` prints a line of JSON.

Runs on a host (`playbooks/state.yml`): the record of the last deploy, a drain of a deploy that did
not end, and the formats that each release declares.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORD = Path("/etc/hgfleet/deploy.json")
DRAIN = Path("/etc/hgfleet/web.drain")
RELEASES = Path("/opt/hgfleet/releases")


def _json(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def read() -> dict[str, object]:
    """Return what there is; empty where there is nothing, or nothing that can be read."""
    try:
        drain = DRAIN.read_text("utf-8", "replace")
    except OSError:
        drain = ""
    return {
        "record": _json(RECORD),
        "drained": drain.startswith("until="),
        "formats": {path.parent.name: _json(path) for path in RELEASES.glob("*/formats.json")},
    }


if __name__ == "__main__":
    print(json.dumps(read()))
