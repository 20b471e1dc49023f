"""Repositories that a mirror has set aside: from where, since when, and until when.

The registry of the primary does not name them, and does not name them as deleted. They return when
it names them again (`hgfleet registry bring-back` on the primary), and are deleted after
`keep_missing_days` and one more, which are alarmed.
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
"""In AWAY."""

DAY_S: Final = 86_400.0


@dataclass(frozen=True, slots=True)
class Aside:
    """A folder in AWAY; `path` is where it was, `since` in seconds since 1970."""

    path: str
    since: float
    due: float = 0.0
    """When its time was first seen to be over, 0 before."""

    def end(self, days: int) -> float | None:
        """Return when its time is over, None for never."""
        return self.since + days * DAY_S if days else None


def updated(
    noted: Mapping[str, Aside], names: Iterable[str], paths: Mapping[str, str], now: float
) -> dict[str, Aside]:
    """Return the notes about the folders that are there; `paths` has where the newest ones were.

    A time from the future says nothing: its folder begins anew.
    """
    found = {}
    for name in sorted(names):
        note = noted.get(name)
        if note is None or note.since > now:
            note = Aside(paths.get(name, note.path if note else name), now)
        found[name] = note
    return found


def looked_at(noted: Mapping[str, Aside], days: int, now: float) -> dict[str, Aside]:
    """Return the notes with the time at which each was first seen to be over."""
    return {name: replace(one, due=_due(one, days, now)) for name, one in noted.items()}


def _due(one: Aside, days: int, now: float) -> float:
    end = one.end(days)
    if end is None or end > now:
        return 0.0
    return one.due if 0 < one.due <= now else now


def expired(noted: Mapping[str, Aside], days: int, now: float) -> list[str]:
    """Return the folders whose time is over, and was so a day ago.

    A clock that is ahead for a while, as after a boot, ends the time of none.
    """
    ends = ((name, one.due, one.end(days)) for name, one in noted.items())
    return [
        name for name, due, end in ends if end is not None and end <= now and 0 < due <= now - DAY_S
    ]


def retired(
    noted: Iterable[str], lost: Mapping[str, Missing], declared: Container[str]
) -> set[str]:
    """Return the folders of repositories that the inventory declared, and does not any more.

    Operators removed them from it. They are kept, and are not alarmed.
    """
    found = set()
    for name in noted:
        note = lost.get(identity_of(name))
        if note is not None and note.entry is None and note.path not in declared:
            found.add(name)
    return found


def identity_of(name: str) -> str:
    """Return the identity in the name of a folder."""
    return name.removeprefix(ASIDE).partition("-")[0]


def sentences(noted: Mapping[str, Aside], days: int) -> dict[str, tuple[str, str]]:
    """Return path and reason of each, by its name."""
    return {name: (one.path, _sentence(name, one, days)) for name, one in noted.items()}


def _sentence(name: str, one: Aside, days: int) -> str:
    identity = identity_of(name)
    end = one.end(days)
    goes = f"deleted after {_day(end)}" if end is not None else "kept"
    back = f"; `hgfleet registry bring-back {identity}` on the primary brings it back"
    return (
        f"the registry does not name it since {_day(one.since)}; it is {AWAY}/{name}, and "
        f"{goes}{back if is_identity(identity) else ''}"
    )


def _day(moment: float) -> str:
    return time.strftime("%Y-%m-%d", time.gmtime(moment))


# -- files -----------------------------------------------------------------------------------------


def names(root: Path) -> list[str]:
    """Return the names of the folders that are set aside."""
    try:
        with os.scandir(root / AWAY) as found:
            return [one.name for one in found if one.name.startswith(ASIDE)]
    except FileNotFoundError:
        return []


def load(root: Path) -> dict[str, Aside]:
    """Read the notes; those that make no sense are none."""
    try:
        data = json.loads((root / AWAY / NAME).read_bytes())
        return {
            name: Aside(str(one["path"]), float(one["since"]), float(one.get("due", 0)))
            for name, one in data.items()
        }
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return {}


def save(root: Path, noted: Mapping[str, Aside]) -> None:
    """Write the notes, or none."""
    place = root / AWAY / NAME
    if noted:
        text = json.dumps({name: asdict(one) for name, one in noted.items()}, indent=1)
        files.replace(place, f"{text}\n", mode=0o640)
    else:
        place.unlink(missing_ok=True)
