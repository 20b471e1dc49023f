"""Alerts as code: each has a severity, a runbook that exists, tests of its rule, and a provocation.

An alert, or another recording rule, reads each recording rule.

    python -m controller.checks.alerts

Rules are in ansible/roles/monitoring/files/alerts, tests of the same names in testing/alerts, where
the test of the role runs them with promtool. The role copies the files that its vars list.

A provocation is a fault on the cluster that makes the alert fire (testing/faults/alert_table.py).
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from controller.checks import docs
from testing.faults import alert_table

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[2]
ROLE: Final = "ansible/roles/monitoring"
RULES: Final = f"{ROLE}/files/alerts"
TESTS: Final = "testing/alerts"
RUNBOOKS: Final = "docs/runbooks"
TABLE: Final = "testing/faults/alert_table.py"

HEARTBEAT: Final = "heartbeat"
"""The severity of an alert that always fires: its end is what a receiver tells of."""

SEVERITIES: Final = ("page", "ticket", HEARTBEAT)
LINK: Final = "file:///opt/hgfleet/current/docs/runbooks/"
"""The place of the runbooks on a host, in the current release."""


def problems(top: Path, provoked: Collection[str], excused: Mapping[str, str]) -> Iterator[str]:
    """Yield a line for each alert that is incomplete, and each file that is not in use.

    `provoked` are the alerts with a provocation; `excused` has the alerts without, and the reasons.
    """
    files = {path.name for path in (top / RULES).glob("*.yml")}
    listed = set(_read(top / ROLE / "vars/main.yml")["_monitoring_alerts"])
    yield from (
        f"{ROLE}/vars/main.yml: _monitoring_alerts and {RULES} differ: {name}"
        for name in sorted(files ^ listed)
    )
    known: set[str] = set()
    for name in sorted(files):
        place = f"{RULES}/{name}"
        rules = [rule for group in _read(top / place)["groups"] for rule in group["rules"]]
        test = top / TESTS / name
        fires, quiet = tested(_read(test)) if test.exists() else (set(), set())
        yield from _unread(place, rules)
        for rule in rules:
            if "record" in rule:
                continue
            alert = rule["alert"]
            yield from (f"{place}: {alert}: {text}" for text in _rule_problems(rule, top))
            if alert not in fires:
                yield f"{place}: {alert}: no test in {TESTS}/{name} sees it fire"
            if alert not in quiet and not _is_heartbeat(rule):
                yield f"{place}: {alert}: no test in {TESTS}/{name} sees it quiet"
            known.add(alert)
    yield from _unprovoked(known, provoked, excused)


def _unprovoked(
    known: Collection[str], provoked: Collection[str], excused: Mapping[str, str]
) -> Iterator[str]:
    for alert in sorted(known):
        if alert not in provoked and not excused.get(alert):
            yield f"{TABLE}: {alert}: no provocation in TABLE, no reason in NOT_PROVOKED"
        elif alert in provoked and alert in excused:
            yield f"{TABLE}: {alert}: it is provoked, so NOT_PROVOKED must not name it"
    for alert in sorted({*provoked, *excused} - set(known)):
        yield f"{TABLE}: {alert}: no file of {RULES} has this alert"


def _unread(place: str, rules: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    for name in sorted({rule["record"] for rule in rules if "record" in rule}):
        if not any(name in rule["expr"] for rule in rules if rule.get("record") != name):
            yield f"{place}: {name}: no other rule reads this recording rule"


def tested(content: Mapping[str, Any]) -> tuple[set[str], set[str]]:
    """Return the alerts that tests expect to fire, and the alerts that they expect to be quiet."""
    fires: set[str] = set()
    quiet: set[str] = set()
    for test in content["tests"]:
        for case in test.get("alert_rule_test", ()):
            (fires if case.get("exp_alerts") else quiet).add(case["alertname"])
    return fires, quiet


def _is_heartbeat(rule: Mapping[str, Any]) -> bool:
    return bool(rule.get("labels", {}).get("severity") == HEARTBEAT)


def _rule_problems(rule: Mapping[str, Any], top: Path) -> Iterator[str]:
    severity = rule.get("labels", {}).get("severity")
    if severity not in SEVERITIES:
        yield f"severity is {severity!r}, expected one of {', '.join(SEVERITIES)}"
    annotations = rule.get("annotations", {})
    if not annotations.get("summary"):
        yield "it has no summary"
    if "for" not in rule and not _is_heartbeat(rule):
        yield "it has no `for`: one missed read would fire it"
    link = annotations.get("runbook", "")
    name, _, wanted = link.removeprefix(LINK).partition("#")
    page = top / RUNBOOKS / name
    if not link.startswith(LINK) or not page.is_file():
        yield f"runbook is {link!r}, expected {LINK} and a file of {RUNBOOKS}"
    elif wanted and wanted not in docs.anchors(page):
        yield f"runbook: {name} has no heading #{wanted}"


def _read(path: Path) -> Any:
    return yaml.safe_load(path.read_text("utf-8"))


def main() -> int:
    """Print every problem; the exit code is 1 if there is any."""
    lines = list(problems(ROOT, alert_table.provoked(), alert_table.NOT_PROVOKED))
    for line in lines:
        print(line)
    return int(bool(lines))


if __name__ == "__main__":
    sys.exit(main())
