"""Record of runs and drills on a host: two files of JSON in the state folder of backup."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from pathlib import Path

RUNS: Final = "runs.json"
DRILLS: Final = "drills.json"

Data = dict[str, Any]


def load(folder: Path, name: str) -> Data:
    """Read a record; a missing or damaged one is empty: the next run makes it again."""
    try:
        found = json.loads((folder / name).read_bytes())
    except (FileNotFoundError, ValueError):
        return {}
    return found if isinstance(found, dict) else {}


def save(folder: Path, name: str, data: Data) -> None:
    """Replace a record."""
    files.replace(folder / name, json.dumps(data, sort_keys=True) + "\n", mode=0o640)
