"""Bars of the bench of hostile requests: the table of all phases, and the exit code."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

NONE: Final = float("nan")
"""The figure of a bar for which nothing was measured, so that it is not held."""

MISSED: Final = 1
"""Exit code of a run that missed a bar of time, of memory, or of answered requests."""

WRONG: Final = 3
"""Exit code of a run in which a client got wrong bytes, which no busy machine explains."""


@dataclass(frozen=True)
class Bar:
    """A figure of a phase, and its greatest allowed value; without `most` it is only shown.

    `is_of_bytes`: the figure counts wrong bytes, which must not occur in a run of any size.
    """

    phase: str
    what: str
    measured: float
    most: float | None = None
    unit: str = ""
    is_of_bytes: bool = False

    @property
    def is_held(self) -> bool:
        """Whether the bar is held; a comparison with NONE is false."""
        return self.most is None or self.measured <= self.most

    @property
    def verdict(self) -> str:
        """The last column of the table."""
        if self.most is None:
            return ""
        return "held" if self.is_held else "MISSED"

    def shown(self, value: float | None) -> str:
        """Return a figure with its unit."""
        if value is None:
            return "-"
        if value != value:
            return "none"
        number = f"{value:.2f}" if self.unit == "s" else f"{value:.0f}"
        return f"{number} {self.unit}".rstrip()


def table(bars: Sequence[Bar]) -> list[str]:
    """Return the lines of the table."""
    rows = [("phase", "what", "measured", "at most", "")]
    rows += [
        (bar.phase, bar.what, bar.shown(bar.measured), bar.shown(bar.most), bar.verdict)
        for bar in bars
    ]
    widths = [max(len(row[column]) for row in rows) for column in range(4)]
    return [
        f"{row[0]:<{widths[0]}}  {row[1]:<{widths[1]}}  {row[2]:>{widths[2]}}  "
        f"{row[3]:>{widths[3]}}  {row[4]}".rstrip()
        for row in rows
    ]


def exit_code(bars: Sequence[Bar]) -> int:
    """Return 0 if all bars are held; WRONG if a bar of bytes is not, or there are no bars."""
    missed = [bar for bar in bars if not bar.is_held]
    if any(bar.is_of_bytes for bar in missed) or not any(bar.most is not None for bar in bars):
        return WRONG
    return MISSED if missed else 0


def percentile(values: Sequence[float], share: float) -> float:
    """Return the value below which this share of the values lies; NONE without values."""
    return sorted(values)[min(len(values) - 1, int(share * len(values)))] if values else NONE


def times(phase: str, what: str, seconds: Sequence[float], most: float) -> list[Bar]:
    """Return the rows of answer times: the median, the 95th percentile (a bar), and the slowest."""
    return [
        Bar(phase, f"{what}: p50 of {len(seconds)}", percentile(seconds, 0.5), unit="s"),
        Bar(phase, f"{what}: p95", percentile(seconds, 0.95), most, "s"),
        Bar(phase, f"{what}: slowest", max(seconds, default=NONE), unit="s"),
    ]
