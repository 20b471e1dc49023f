"""The metrics of hosts as of now: what each host writes for its exporter.

Prometheus sees them up to half a minute later; that it does is one test of test_monitoring.py.
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
            {found["name"]: found["value"] for found in LABEL.finditer(line["labels"] or "")},
            float(line["value"]),
        )
        for line in lines
        if line
    ]


def written(hosts: Iterable[Host]) -> list[Series]:
    """Return the metrics of hosts, which they write at once."""
    found = []
    for host in hosts:
        # Done when they are written.
        host.systemctl("reload", WRITER).ok()
        found += read(host.shell(f"cat {FILE}"))
    return found


def total(series: Sequence[Series], expression: str) -> float:
    """Return the sum of the series of an expression: a name, with `=` and `!=` of labels.

    It is 0 where no host has such a series: a counter is written from its first event on.
    """
    name, _, conditions = expression.partition("{")
    wanted = [
        (found["name"], found["value"], not found["unlike"])
        for found in CONDITION.finditer(conditions)
    ]
    return sum(
        one.value
        for one in series
        if one.name == name
        and all((one.labels.get(label, "") == value) == like for label, value, like in wanted)
    )
