"""The current metrics of hosts, as each host writes them for its exporter.

Prometheus sees them up to half a minute later, which test_monitoring.py tests.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from testing.e2e.host import Host

WRITER: Final = "hgfleet-metrics.service"
FILE: Final = "/run/hgfleet-metrics/hgfleet.prom"

LINE: Final = re.compile(r"(?P<name>\w+)(?:{(?P<labels>.*)})? (?P<value>\S+)")
LABEL: Final = re.compile(r'(?P<name>\w+)="(?P<value>(?:[^"\\]|\\.)*)"')
CONDITION: Final = re.compile(r'(?P<name>\w+)(?P<unlike>!?)="(?P<value>[^"]*)"')


@dataclass(frozen=True)
class Series:
    """A series with its value."""

    name: str
    labels: Mapping[str, str]
    value: float


def read(text: str) -> list[Series]:
    """Read the text format of Prometheus."""
    lines = (LINE.fullmatch(line) for line in text.splitlines() if not line.startswith("#"))
    return [
        Series(
            line["name"],
            {label["name"]: label["value"] for label in LABEL.finditer(line["labels"] or "")},
            float(line["value"]),
        )
        for line in lines
        if line
    ]


def written(hosts: Iterable[Host]) -> list[Series]:
    """Have hosts write their metrics now, and return these."""
    series = []
    for host in hosts:
        # The reload returns when the metrics are written.
        host.systemctl("reload", WRITER).ok()
        series += read(host.shell(f"cat {FILE}"))
    return series


def total(series: Sequence[Series], expression: str) -> float:
    """Return the sum of the series of an expression: a name, with `=` and `!=` of labels.

    The sum is 0 where no host has such a series: a counter appears with its first event.
    """
    name, _, conditions = expression.partition("{")
    wanted = [
        (condition["name"], condition["value"], not condition["unlike"])
        for condition in CONDITION.finditer(conditions)
    ]
    return sum(
        each.value
        for each in series
        if each.name == name
        and all((each.labels.get(label, "") == value) == like for label, value, like in wanted)
    )
