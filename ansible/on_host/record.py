"""Read what deploys left on this host, without a package: `record.py` prints a line of JSON.

Runs on a host (`internal/state.yml`): the releases with their extensions and formats, the groups at
the end of the last run, the record of the last deploy, and the traces of a deploy that did not end.
A single program reads all of it, because each task of Ansible costs more than these files.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

RECORD = Path("/etc/hgfleet/deploy.json")
GROUPS = Path("/etc/hgfleet/groups.json")
DRAIN = Path("/etc/hgfleet/web.drain")
CURRENT = Path("/opt/hgfleet/current")
RELEASES = Path("/opt/hgfleet/releases")
UNFINISHED = Path("/etc/hgfleet/unfinished")
TRUST = Path("/etc/hgfleet/tls/ca.pem")
"""Certificates of the site's CA, which everyone may read."""


def _json(path: Path) -> dict[str, Any]:
    try:
        data = json.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def read() -> dict[str, object]:
    """Return the content of the files; empty for a file that is missing or cannot be read."""
    try:
        drain = DRAIN.read_text("utf-8", "replace")
    except OSError:
        drain = ""
    try:
        trust = TRUST.read_text("ascii", "replace")
    except OSError:
        trust = ""
    record, is_drained = _json(RECORD), drain.startswith("until=")
    releases = [path for path in RELEASES.glob("*") if path.is_dir()]
    releases.sort(key=lambda path: path.lstat().st_ctime, reverse=True)
    return {
        "record": record,
        "unfinished": UNFINISHED.exists() or is_drained or bool(record.get("begun")),
        "drained": is_drained,
        "trust": trust,
        "provisioned": GROUPS.is_file(),
        "groups": _json(GROUPS).get("groups", []),
        "current": CURRENT.readlink().name if CURRENT.is_symlink() else "",
        "releases": [path.name for path in releases],
        "extensions": [str(path.relative_to(RELEASES)) for path in RELEASES.glob("*/hgext/*.py")],
        "formats": {path.name: _json(path / "formats.json") for path in releases},
    }


if __name__ == "__main__":
    print(json.dumps(read()))
