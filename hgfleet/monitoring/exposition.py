"""Prometheus' text exposition format, for the textfile collector of the node exporter. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

GAUGE: Final = "gauge"

_ESCAPES: Final = str.maketrans({"\\": r"\\", "\n": r"\n", '"': r"\""})


@dataclass(frozen=True, slots=True)
class Family:
    """A metric: its samples have values by labels. Without samples it is left out."""

    name: str
    help: str
    samples: tuple[tuple[Mapping[str, str], float], ...]
    kind: str = GAUGE


def single(name: str, text: str, value: float) -> Family:
    """Return a metric without labels."""
    return Family(name, text, (({}, float(value)),))


def labelled(name: str, text: str, label: str, values: Mapping[str, float]) -> Family:
    """Return a metric with one label, sorted by its value."""
    samples = tuple(({label: key}, float(value)) for key, value in sorted(values.items()))
    return Family(name, text, samples)


def render(families: Iterable[Family]) -> str:
    """Render metrics, each with its help and its type."""
    lines = []
    for one in families:
        if one.samples:
            lines += [f"# HELP {one.name} {one.help}", f"# TYPE {one.name} {one.kind}"]
            lines += [f"{one.name}{_labels(labels)} {value!r}" for labels, value in one.samples]
    return "".join(f"{line}\n" for line in lines)


def _labels(labels: Mapping[str, str]) -> str:
    if not labels:
        return ""
    inner = ",".join(f'{name}="{value.translate(_ESCAPES)}"' for name, value in labels.items())
    return f"{{{inner}}}"
