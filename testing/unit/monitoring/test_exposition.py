"""The text format of metrics."""

from __future__ import annotations

from hgfleet.monitoring.exposition import (
    COUNTER,
    Family,
    Histogram,
    Series,
    labelled,
    render,
    single,
)


def test_a_metric_has_its_help_its_type_and_its_value() -> None:
    assert render([single("hgfleet_up", "Whether it is up.", True)]) == (
        "# HELP hgfleet_up Whether it is up.\n# TYPE hgfleet_up gauge\nhgfleet_up 1.0\n"
    )


def test_samples_are_sorted_by_their_label() -> None:
    text = render([labelled("hgfleet_x", "Help.", "name", {"b": 2, "a": 1.5})])
    assert text.splitlines()[2:] == ['hgfleet_x{name="a"} 1.5', 'hgfleet_x{name="b"} 2.0']


def test_values_of_labels_are_escaped() -> None:
    text = render([Family("hgfleet_x", "Help.", (({"a": 'q"\\\n', "b": "ü"}, 1.0),))])
    assert text.splitlines()[2:] == ['hgfleet_x{a="q\\"\\\\\\n",b="ü"} 1.0']


def test_a_metric_without_samples_is_left_out() -> None:
    assert render([labelled("hgfleet_x", "Help.", "name", {})]) == ""


def test_large_numbers_keep_their_digits() -> None:
    assert "hgfleet_time 1795598185.3\n" in render([single("hgfleet_time", "Time.", 1795598185.3)])


def test_a_counter_says_that_it_is_one() -> None:
    text = render([labelled("hgfleet_x_total", "Help.", "result", {"good": 2}, COUNTER)])
    assert text.splitlines()[1:] == [
        "# TYPE hgfleet_x_total counter",
        'hgfleet_x_total{result="good"} 2.0',
    ]


def test_a_histogram_has_its_buckets_its_sum_and_its_count() -> None:
    series = Series(((0.1, 2.0), (30.0, 5.0)), 6.0, 44.5)
    histogram = Histogram("hgfleet_x_seconds", "Help.", (series,))
    assert render([histogram]).splitlines() == [
        "# HELP hgfleet_x_seconds Help.",
        "# TYPE hgfleet_x_seconds histogram",
        'hgfleet_x_seconds_bucket{le="0.1"} 2.0',
        'hgfleet_x_seconds_bucket{le="30"} 5.0',
        'hgfleet_x_seconds_bucket{le="+Inf"} 6.0',
        "hgfleet_x_seconds_sum 44.5",
        "hgfleet_x_seconds_count 6.0",
    ]


def test_a_histogram_has_a_series_for_each_of_its_labels() -> None:
    series = tuple(Series(((1.0, 2.0),), 2.0, 0.5, {"kind": kind}) for kind in ("a", "b"))
    lines = render([Histogram("hgfleet_x_seconds", "Help.", series)]).splitlines()
    assert lines[2:6] == [
        'hgfleet_x_seconds_bucket{kind="a",le="1"} 2.0',
        'hgfleet_x_seconds_bucket{kind="a",le="+Inf"} 2.0',
        'hgfleet_x_seconds_sum{kind="a"} 0.5',
        'hgfleet_x_seconds_count{kind="a"} 2.0',
    ]
    assert lines[-1] == 'hgfleet_x_seconds_count{kind="b"} 2.0'
