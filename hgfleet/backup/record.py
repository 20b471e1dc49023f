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
"""On the host that prunes: checks of the packs of each host; what the last prune of each host found
in the store, and why it was refused."""

Data = dict[str, Any]


def load(folder: Path, name: str) -> Data:
    """Read a record; a missing or damaged one is empty: the next run makes it again."""
    try:
        found = json.loads((folder / name).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(folder: Path, name: str, data: Data) -> None:
    """Replace a record. One that root writes belongs to the user of the units, as the folder."""
    files.replace(folder / name, json.dumps(data, sort_keys=True) + "\n", mode=0o640)
    if os.geteuid() == 0:
        owner = folder.stat()
        os.chown(folder / name, owner.st_uid, owner.st_gid)
