"""Repositories that a mirror has set aside: from where, since when, and until when.

The registry of the primary names them neither as present nor as deleted. They return when it names
them again (`hgfleet registry bring-back` on the primary). They are deleted after
`keep_missing_days` and one more day; during this time an alert fires.
"""

from __future__ import annotations

import json
import os
import time
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.identity import is_identity
from hgfleet.replication.mirror.follow_plan import ASIDE, AWAY

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Mapping
    from pathlib import Path

    from hgfleet.registry.dynamic.missing import Missing

NAME: Final = "aside.json"
"""File in AWAY."""

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Aside:
    """A folder in AWAY; `path` is its former place, `since` is in seconds since 1970."""

    path: str
    since: float
    due: float = 0.0
    """When its time was first seen to be over; 0 before that."""

    def end(self, days: int) -> float | None:
        """Return when its time is over; None for never."""
        return self.since + days * DAY_S if days else None


def updated(
    noted: Mapping[str, Aside], names: Iterable[str], paths: Mapping[str, str], now: float
) -> dict[str, Aside]:
    """Return the notes about present folders; `paths` has the former places of new folders.

    A time from the future does not count: the time of its folder starts again.
    """
    notes = {}
    for name in sorted(names):
        note = noted.get(name)
        if note is None or note.since > now:
            note = Aside(paths.get(name, note.path if note else name), now)
        notes[name] = note
    return notes


def looked_at(noted: Mapping[str, Aside], days: int, now: float) -> dict[str, Aside]:
    """Return the notes, each with the moment at which its time was first seen to be over."""
    return {name: replace(note, due=_due(note, days, now)) for name, note in noted.items()}


def _due(note: Aside, days: int, now: float) -> float:
    end = note.end(days)
    if end is None or end > now:
        return 0.0
    return note.due if 0 < note.due <= now else now


def expired(noted: Mapping[str, Aside], days: int, now: float) -> list[str]:
    """Return the folders whose time is over, and was already over a day ago.

    So a clock that is ahead for a while, as after a boot, deletes nothing.
    """
    ends = ((name, note.due, note.end(days)) for name, note in noted.items())
    return [
        name for name, due, end in ends if end is not None and end <= now and 0 < due <= now - DAY_S
    ]


def retired(
    noted: Iterable[str], lost: Mapping[str, Missing], declared: Container[str]
) -> set[str]:
    """Return the folders of repositories that the inventory no longer declares.

    Operators removed them from the inventory. They are kept, without an alert.
    """
    folders = set()
    for name in noted:
        note = lost.get(identity_of(name))
        if note is not None and note.entry is None and note.path not in declared:
            folders.add(name)
    return folders


def identity_of(name: str) -> str:
    """Return the identity in the name of a folder."""
    return name.removeprefix(ASIDE).partition("-")[0]


def sentences(noted: Mapping[str, Aside], days: int) -> dict[str, tuple[str, str]]:
    """Return path and reason of each folder, by its name."""
    return {name: (note.path, _sentence(name, note, days)) for name, note in noted.items()}


def _sentence(name: str, note: Aside, days: int) -> str:
    identity = identity_of(name)
    end = note.end(days)
    goes = f"deleted after {_day(end)}" if end is not None else "kept"
    back = f"; `hgfleet registry bring-back {identity}` on the primary brings it back"
    return (
        f"the registry has not named it since {_day(note.since)}; it is {AWAY}/{name}, and "
        f"{goes}{back if is_identity(identity) else ''}"
    )


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


# -- files -----------------------------------------------------------------------------------------


def names(root: Path) -> list[str]:
    """Return the names of the folders that are set aside."""
    try:
        with os.scandir(root / AWAY) as entries:
            return [entry.name for entry in entries if entry.name.startswith(ASIDE)]
    except FileNotFoundError:
        return []


def load(root: Path) -> dict[str, Aside]:
    """Read the notes; a damaged file counts as no notes."""
    try:
        data = json.loads((root / AWAY / NAME).read_bytes())
        return {
            name: Aside(str(raw["path"]), float(raw["since"]), float(raw.get("due", 0)))
            for name, raw in data.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def save(root: Path, noted: Mapping[str, Aside]) -> None:
    """Write the notes, or remove the file if there are none."""
    place = root / AWAY / NAME
    if noted:
        text = json.dumps({name: asdict(note) for name, note in noted.items()}, indent=1)
        files.replace(place, f"{text}\n", mode=0o640)
    else:
        place.unlink(missing_ok=True)
