"""The linter of alerts."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.checks import alerts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

RULE = """\
groups:
  - name: one
    rules:
      - alert: Down
        expr: up == 0
        for: 1m
        labels: {severity: page}
        annotations:
          summary: it is down
          runbook: file:///opt/hgfleet/current/docs/runbooks/one.md#it-is-down
"""
TEST = """\
tests:
  - alert_rule_test:
      - {alertname: Down, eval_time: 1m}
      - {alertname: Down, eval_time: 5m, exp_alerts: [{exp_labels: {}}]}
"""


def problems(
    top: Path, provoked: Sequence[str] = ("Down",), excused: Mapping[str, str] | None = None
) -> list[str]:
    return list(alerts.problems(top, provoked, excused or {}))


@pytest.fixture
def top(tmp_path: Path) -> Path:
    for path, text in (
        (f"{alerts.RULES}/one.yml", RULE),
        (f"{alerts.TESTS}/one.yml", TEST),
        (f"{alerts.ROLE}/vars/main.yml", "_monitoring_alerts: [one.yml]\n"),
        (f"{alerts.RUNBOOKS}/one.md", "# One\n\n## It is down\n"),
    ):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    return tmp_path


def test_a_complete_alert_is_fine(top: Path) -> None:
    assert not problems(top)


def test_a_heartbeat_fires_always_and_at_once(top: Path) -> None:
    rule, test = (top / folder / "one.yml" for folder in (alerts.RULES, alerts.TESTS))
    rule.write_text(RULE.replace("        for: 1m\n", ""))
    test.write_text(TEST.replace("      - {alertname: Down, eval_time: 1m}\n", ""))
    assert len(problems(top)) == 2
    rule.write_text(rule.read_text().replace("page", "heartbeat"))
    assert not problems(top)


@pytest.mark.parametrize(
    ("path", "old", "new", "problem"),
    [
        (alerts.RULES, "severity: page", "severity: loud", "severity is 'loud'"),
        (alerts.RULES, "summary: it is down", "other: x", "no summary"),
        (alerts.RULES, "        for: 1m\n", "", "no `for`"),
        (alerts.RULES, "one.md", "two.md", "expected file:///opt"),
        (alerts.RULES, "#it-is-down", "#it-is-up", "no heading #it-is-up"),
        (alerts.RULES, "file:///opt/hgfleet/current/docs/", "docs/", "expected file:///opt"),
        (alerts.TESTS, "Down, eval_time: 5m", "Other, eval_time: 5m", "sees it fire"),
        (alerts.TESTS, "Down, eval_time: 1m", "Other, eval_time: 1m", "sees it quiet"),
    ],
)
def test_what_an_alert_lacks_is_named(
    top: Path, path: str, old: str, new: str, problem: str
) -> None:
    file = top / path / "one.yml"
    assert old in file.read_text()
    file.write_text(file.read_text().replace(old, new))
    (line,) = problems(top)
    assert line.startswith(f"{alerts.RULES}/one.yml: Down: ")
    assert problem in line


@pytest.mark.parametrize(
    ("provoked", "excused", "problem"),
    [
        ([], {}, "Down: no provocation"),
        ([], {"Down": ""}, "Down: no provocation"),
        (["Down"], {"Down": "it takes a day"}, "Down: it is provoked"),
        (["Down", "Up"], {}, "Up: no file"),
        (["Down"], {"Up": "it takes a day"}, "Up: no file"),
    ],
)
def test_an_alert_is_provoked_or_has_a_reason(
    top: Path, provoked: Sequence[str], excused: Mapping[str, str], problem: str
) -> None:
    (line,) = problems(top, provoked, excused)
    assert line.startswith(f"{alerts.TABLE}: {problem}")


def test_an_alert_with_a_reason_needs_no_provocation(top: Path) -> None:
    assert not problems(top, [], {"Down": "it takes a day"})


def test_alerts_without_tests_are_named(top: Path) -> None:
    (top / alerts.TESTS / "one.yml").unlink()
    assert len(problems(top)) == 2


def test_a_file_that_the_role_does_not_copy_is_named(top: Path) -> None:
    (top / alerts.ROLE / "vars/main.yml").write_text("_monitoring_alerts: []\n")
    (line,) = problems(top)
    assert "differ: one.yml" in line


def test_the_alerts_of_this_checkout_are_complete() -> None:
    assert alerts.main() == 0


@pytest.mark.parametrize(("name", "is_read"), [("site:up:sum", True), ("site:down:sum", False)])
def test_a_recording_rule_is_one_that_another_rule_reads(
    top: Path, name: str, is_read: bool
) -> None:
    file = top / alerts.RULES / "one.yml"
    text = file.read_text().replace("expr: up == 0", "expr: site:up:sum == 0")
    record = f"    rules:\n      - {{record: '{name}', expr: sum(up)}}\n"
    file.write_text(text.replace("    rules:\n", record))
    sentences = problems(top)
    assert sentences == (
        []
        if is_read
        else [f"{alerts.RULES}/one.yml: {name}: no other rule reads this recording rule"]
    )
