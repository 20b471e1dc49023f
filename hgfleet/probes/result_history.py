"""History of a probe: each result of the last day, and the sums of the last 90 days.

Each probe has a file, `clone.json` or `push.json`:

    {"format": 1, "uploaded": 1795440000.1, "succeeded": 128812, "failed": 3,
     "results": [[1795439940.2, 0.8], [1795440000.1, null]],
     "days": {"2026-11-25": [1438, 1, 1150.4]}}

Times are in seconds since 1970, durations in seconds; a failed result has no duration. A day (UTC)
has the number of succeeded and failed results, and the total duration of the succeeded results.
`uploaded` is the time of the status page, in the file of clones only. The file names no repository
or host, and every user of the host may read it.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from datetime import date as date_type
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Mapping

FOLDER: Final = Path("/var/lib/hgfleet-probes")
CLONE: Final = "clone"
PUSH: Final = "push"
PROBES: Final = (CLONE, PUSH)
"""In the order of the page."""
FORMAT: Final = 1

DAY_SECONDS: Final = 86_400
DAYS: Final = 90
MOST_RESULTS: Final = 2 * 1440
"""Of a day, with room for runs by hand."""


@dataclass(frozen=True, slots=True)
class Result:
    """The result of a probe and the time of its begin; `seconds` is None if it failed."""

    time: float
    seconds: float | None


@dataclass(frozen=True, slots=True)
class Sum:
    """Results of a span of time; `seconds` is the total duration of the succeeded results."""

    succeeded: int = 0
    failed: int = 0
    seconds: float = 0.0

    def __add__(self, other: Sum) -> Sum:
        """Return the sum of both spans."""
        return Sum(
            self.succeeded + other.succeeded,
            self.failed + other.failed,
            self.seconds + other.seconds,
        )

    @property
    def attempts(self) -> int:
        """All results of the span."""
        return self.succeeded + self.failed


@dataclass(frozen=True, slots=True)
class History:
    """Results of a probe on this host; `total` covers all time."""

    total: Sum = Sum()
    results: tuple[Result, ...] = ()
    """Of the last day, the oldest first."""
    days: Mapping[str, Sum] = field(default_factory=dict)
    """Of the last 90 days, by the date of UTC."""
    uploaded: float = 0.0
    """Time of the last upload of the status page; 0 before the first."""


def sum_of(result: Result) -> Sum:
    """Return the sum of a single result."""
    return Sum(failed=1) if result.seconds is None else Sum(1, 0, result.seconds)


def date(time: float) -> str:
    """Return the date of UTC."""
    return datetime.fromtimestamp(time, UTC).strftime("%Y-%m-%d")


def first_date(now: float) -> str:
    """Return the first date of the days that a history has."""
    return date((datetime.fromtimestamp(now, UTC) - timedelta(days=DAYS - 1)).timestamp())


def add(history: History, result: Result) -> History:
    """Add a result, and drop those that are older than the bounds. Pure.

    A clock that was set back leaves results from the future, which would never grow old. They are
    dropped, too.
    """
    added, today = sum_of(result), date(result.time)
    first = first_date(result.time)
    kept = [r for r in history.results if result.time - DAY_SECONDS < r.time <= result.time]
    days = {name: day for name, day in history.days.items() if first <= name <= today}
    days[today] = days.get(today, Sum()) + added
    return replace(
        history,
        total=history.total + added,
        results=(*kept, result)[-MOST_RESULTS:],
        days=days,
    )


def dump(history: History) -> str:
    """Return the content of the file."""
    data = {
        "format": FORMAT,
        "uploaded": round(history.uploaded, 3),
        "succeeded": history.total.succeeded,
        "failed": history.total.failed,
        "seconds": round(history.total.seconds, 3),
        "results": [
            [round(result.time, 3), None if result.seconds is None else round(result.seconds, 3)]
            for result in history.results
        ],
        "days": {
            name: [day.succeeded, day.failed, round(day.seconds, 3)]
            for name, day in history.days.items()
        },
    }
    return json.dumps(data, sort_keys=True) + "\n"


def parse(text: str | bytes) -> History:
    """Parse the content of the file. Raises ValueError if it is damaged."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"got the format {data['format']!r}, expected {FORMAT}")
        return History(
            total=Sum(int(data["succeeded"]), int(data["failed"]), float(data["seconds"])),
            results=tuple(
                Result(float(time), None if seconds is None else float(seconds))
                for time, seconds in data["results"]
            ),
            days={
                # A key that is no date would never be dropped.
                f"{date_type.fromisoformat(name)}": Sum(int(succeeded), int(failed), float(seconds))
                for name, (succeeded, failed, seconds) in data["days"].items()
            },
            uploaded=float(data["uploaded"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the history of a probe: {error!r}") from error


def name(probe: str) -> str:
    """Return the name of a probe's file."""
    return f"{probe}.json"


def load(folder: Path, probe: str) -> History:
    """Read the history of a probe of this host, which is empty before the first result.

    Raises ValueError for a damaged file.
    """
    try:
        return parse((folder / name(probe)).read_bytes())
    except FileNotFoundError:
        return History()


def save(history: History, folder: Path, probe: str) -> None:
    """Replace the history of a probe. Raises OSError, also where the folder is missing."""
    files.replace(folder / name(probe), dump(history))
