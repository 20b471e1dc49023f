"""The table of the bench of hostile requests, and its exit code."""

from __future__ import annotations

import pytest

from testing.bench.hostile_bars import MISSED, NONE, WRONG, Bar, exit_code, percentile, table, times

HELD = Bar("tokens", "others' pages: p95", 0.5, 1.0, "s")
LATE = Bar("tokens", "others' pages: p95", 1.01, 1.0, "s")
FOREIGN = Bar("failing", "wrong bytes", 1, 0, is_of_bytes=True)
TOLD = Bar("partial", "growth", 80, unit="MB")


def test_a_percentile_of_nothing_is_no_number() -> None:
    assert percentile([], 0.95) != percentile([], 0.95)
    assert percentile([3.0, 1.0, 2.0], 0.95) == 3.0
    assert percentile([float(n) for n in range(100)], 0.5) == 50


@pytest.mark.parametrize(
    ("bars", "code"),
    [
        ([HELD, TOLD], 0),
        ([HELD, LATE], MISSED),
        ([HELD, FOREIGN], WRONG),
        ([LATE, FOREIGN], WRONG),
        ([Bar("alone", "cases", NONE, 0)], MISSED),
        ([Bar("failing", "wrong bytes", NONE, 0, is_of_bytes=True)], WRONG),
        # A run that judges nothing proves nothing.
        ([TOLD], WRONG),
        ([], WRONG),
    ],
)
def test_the_exit_code_says_what_was_missed(bars: list[Bar], code: int) -> None:
    assert exit_code(bars) == code


def test_the_table_has_each_figure_its_bar_and_the_verdict() -> None:
    nothing = Bar("alone", "cases above the bars, of 0", NONE, 0)
    assert table([HELD, LATE, FOREIGN, TOLD, nothing]) == [
        "phase    what                        measured  at most",
        "tokens   others' pages: p95            0.50 s   1.00 s  held",
        "tokens   others' pages: p95            1.01 s   1.00 s  MISSED",
        "failing  wrong bytes                        1        0  MISSED",
        "partial  growth                         80 MB        -",
        "alone    cases above the bars, of 0      none        0  MISSED",
    ]


def test_times_are_judged_by_their_95th_percentile() -> None:
    median, p95, slowest = times("partial", "pulls", [0.1] * 94 + [0.9] * 5 + [7.0], 1.0)
    assert (median.measured, p95.measured, slowest.measured) == (0.1, 0.9, 7.0)
    assert [bar.verdict for bar in (median, p95, slowest)] == ["", "held", ""]
    assert [bar.verdict for bar in times("partial", "pulls", [], 1.0)] == ["", "MISSED", ""]
