"""State of integrity on a host: a file of JSON that `status` reads, and its figures for metrics.

    {"format": 1, "days": 30, "ended": 1795440000.1, "corrupt": ["team/tool"], "repositories":
     {"team/tool": {"seen": ..., "time": ..., "seconds": 1.2, "size": 812000, "error": "...",
      "identity": "7d..."}}}

Times are seconds since 1970, sizes bytes. A lost file costs the results: every repository is new.

The figures are in a second file in the same folder, for every user of the host. The state itself
names private repositories, and is not public.

    {"format": 1, "days": 30, "ended": 1795440000.1, "repositories": 12, "corrupt": 1,
     "oldest": 1795000000.0}
"""

from __future__ import annotations

import json
import time
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

from hgfleet.core import files
from hgfleet.integrity import plan
from hgfleet.integrity.plan import Checked

FOLDER: Final = Path("/var/lib/hgfleet-integrity")
NAME: Final = "state.json"
FIGURES: Final = "figures.json"
FORMAT: Final = 1

DAYS: Final = 30
"""Days of the schedule, until the first run has recorded them."""

_TYPES: Final = {
    "seen": float,
    "time": float,
    "seconds": float,
    "size": int,
    "error": str,
    "identity": str,
}


@dataclass(slots=True)
class State:
    """Results of all runs on this host."""

    days: int = DAYS
    ended: float = 0.0
    """End of the last run of the schedule; 0 before the first run."""
    repositories: dict[str, Checked] = field(default_factory=dict)

    def data(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "format": FORMAT,
            "days": self.days,
            "ended": self.ended,
            "corrupt": list(plan.corrupt(self.repositories)),
            "repositories": {path: asdict(result) for path, result in self.repositories.items()},
        }


@dataclass(frozen=True, slots=True)
class Figures:
    """Figures of the state of a host, without names."""

    days: int
    ended: float
    """End of the last run of the schedule; 0 before the first run."""
    repositories: int
    corrupt: int
    oldest: float
    """The earliest time that the days of a repository are counted from; 0 without repositories."""


def figures(state: State, now: float) -> Figures:
    """Return the figures of a state. Pure."""
    return Figures(
        days=state.days,
        ended=state.ended,
        repositories=len(state.repositories),
        corrupt=len(plan.corrupt(state.repositories)),
        oldest=min((result.since(now) for result in state.repositories.values()), default=0.0),
    )


def parse_figures(text: str | bytes) -> Figures:
    """Read figures. Raises ValueError if they are damaged."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"got the format {data['format']!r}, expected {FORMAT}")
        return Figures(
            days=int(data["days"]),
            ended=float(data["ended"]),
            repositories=int(data["repositories"]),
            corrupt=int(data["corrupt"]),
            oldest=float(data["oldest"]),
        )
    except (KeyError, TypeError) as error:
        raise ValueError(f"not the figures of integrity: {error!r}") from error


def load(folder: Path = FOLDER) -> State:
    """Read the state; with a missing or damaged file, the host has no results."""
    try:
        data = json.loads((folder / NAME).read_bytes())
        repositories = {
            path: Checked(**{name: _TYPES[name](value) for name, value in result.items()})
            for path, result in data["repositories"].items()
        }
        return State(int(data["days"]), float(data["ended"]), repositories)
    except (FileNotFoundError, ValueError, KeyError, TypeError, AttributeError):
        return State()


def save(state: State, folder: Path = FOLDER) -> None:
    """Replace both files. The state names private repositories."""
    text = json.dumps(state.data(), sort_keys=True) + "\n"
    files.replace(folder / NAME, text, mode=0o640)
    text = (
        json.dumps({"format": FORMAT, **asdict(figures(state, time.time()))}, sort_keys=True) + "\n"
    )
    files.replace(folder / FIGURES, text, durable=False)
