"""testing/e2e/metrics.py: metrics of a host are read, and added up by their labels."""

from __future__ import annotations

from testing.e2e import metrics

TEXT = r"""# HELP hgfleet_clones_total Clones.
# TYPE hgfleet_clones_total counter
hgfleet_clones_total{source="clone-bundle",transport="ssh"} 4.0
hgfleet_clones_total{source="live",transport="ssh"} 2.0
hgfleet_clones_total{source="live",transport="https"} 1.0
hgfleet_note{text="a \"quote\", and = more"} 1.0
hgfleet_runs_total 3.5e+01
"""


def test_values_are_added_up_by_name_and_labels() -> None:
    series = metrics.read(TEXT)
    for expression, value in (
        ("hgfleet_clones_total", 7),
        ('hgfleet_clones_total{transport="ssh"}', 6),
        ('hgfleet_clones_total{transport="ssh", source!="clone-bundle"}', 2),
        ('hgfleet_clones_total{transport="ftp"}', 0),
        ('hgfleet_clones_total{nothing!="x"}', 7),
        ("hgfleet_runs_total", 35),
        ("hgfleet_runs", 0),
    ):
        assert metrics.total(series, expression) == value, expression
    assert series[3].labels == {"text": r"a \"quote\", and = more"}
