"""Record of runs, drills and checks on a host: files of JSON in the state folder of backup."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from pathlib import Path

RUNS: Final = "runs.json"
DRILLS: Final = "drills.json"
PACKS: Final = "packs.json"
PRUNES: Final = "prunes.json"
"""Only on the host that prunes: the checks of each host's packs; the snapshots that the last prune
of each host left, and why a prune was refused."""

Data = dict[str, Any]


def load(folder: Path, name: str) -> Data:
    """Read a record; a missing or damaged record is empty, and the next run makes it again."""
    try:
        data = json.loads((folder / name).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return data if isinstance(data, dict) else {}


def save(folder: Path, name: str, data: Data) -> None:
    """Replace a record. If root writes it, it belongs to the owner of the folder, as the others."""
    files.replace(folder / name, json.dumps(data, sort_keys=True) + "\n", mode=0o640)
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(folder / name, owner.st_uid, owner.st_gid)
