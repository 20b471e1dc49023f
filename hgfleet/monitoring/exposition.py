"""Prometheus' text exposition format, for the textfile collector of the node exporter. Pure."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

GAUGE: Final = "gauge"
COUNTER: Final = "counter"

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its samples have values by labels. Without samples it is left out."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]
    kind: str = GAUGE

    def lines(self) -> list[str]:
        """Return the lines of the samples."""
        return [f"{self.name}{_labels(labels)} {value!r}" for labels, value in self.samples]


@dataclass(frozen=True, slots=True)
class Series:
    """The values of a histogram for some labels: how many are at most each bound, and their sum.

    `count` has also the values above the last bound.
    """

    buckets: tuple[tuple[float, float], ...]
    count: float
    sum: float
    labels: Mapping[str, str] = field(default_factory=dict)

    def samples(self) -> Iterator[tuple[Mapping[str, str], float]]:
        """Yield the counts by bound; the last bound has every value."""
        for bound, count in self.buckets:
            yield {**self.labels, "le": f"{bound:g}"}, count
        yield {**self.labels, "le": "+Inf"}, self.count


@dataclass(frozen=True, slots=True)
class Histogram:
    """A metric that counts values by upper bounds."""

    name: str
    help: str
    series: tuple[Series, ...]
    kind: str = "histogram"

    @property
    def samples(self) -> tuple[tuple[Mapping[str, str], float], ...]:
        """The counts of all series by bound."""
        return tuple(sample for series in self.series for sample in series.samples())

    def lines(self) -> list[str]:
        """Return the lines of the samples."""
        lines = []
        for series in self.series:
            labels = _labels(series.labels)
            lines += [
                f"{self.name}_bucket{_labels(le)} {value!r}" for le, value in series.samples()
            ]
            lines += [f"{self.name}_sum{labels} {series.sum!r}"]
            lines += [f"{self.name}_count{labels} {series.count!r}"]
        return lines


def single(name: str, text: str, value: float) -> Family:
    """Return a metric without labels."""
    return Family(name, text, (({}, float(value)),))


def labelled(
    name: str, text: str, label: str, values: Mapping[str, float], kind: str = GAUGE
) -> Family:
    """Return a metric with a single label, sorted by its value."""
    samples = tuple(({label: key}, float(value)) for key, value in sorted(values.items()))
    return Family(name, text, samples, kind)


def render(families: Iterable[Family | Histogram]) -> str:
    """Render metrics, each with its help and its type."""
    lines = []
    for family in families:
        if family.samples:
            lines += [f"# HELP {family.name} {family.help}", f"# TYPE {family.name} {family.kind}"]
            lines += family.lines()
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}"
