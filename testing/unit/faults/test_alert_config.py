"""The configuration of the Prometheus that watches provoked alerts."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import yaml

from testing.faults import alert_config

RULES = Path(__file__).resolve().parents[3] / "ansible/roles/monitoring/files/alerts"
CONFIG: dict[str, Any] = {
    "global": {"scrape_interval": "15s"},
    "rule_files": ["/etc/prometheus/alerts/*.yml"],
    "alerting": {"alertmanagers": [{"static_configs": [{"targets": ["127.0.0.1:9093"]}]}]},
    "scrape_configs": [
        {
            "job_name": "hosts",
            "static_configs": [{"targets": ["10.0.0.5:9100"], "labels": {"host": "hg1"}}],
        },
        {
            "job_name": "alertmanager",
            "static_configs": [{"targets": ["127.0.0.1:9093"], "labels": {"host": "monitor1"}}],
        },
    ],
}


@pytest.mark.parametrize(
    ("duration", "expected"), [("20s", 20), ("10m", 600), ("26h", 93600), ("1d1h1m1s", 90061)]
)
def test_durations_are_those_of_prometheus(duration: str, expected: int) -> None:
    assert alert_config.seconds(duration) == expected


@pytest.mark.parametrize("duration", ["", "5", "5w", "s", "1m 5s", "-5m"])
def test_another_duration_is_refused(duration: str) -> None:
    with pytest.raises(ValueError, match="expected a duration"):
        alert_config.seconds(duration)


@pytest.mark.parametrize("file", sorted(RULES.glob("*.yml")), ids=lambda path: path.stem)
def test_only_the_waits_of_rules_are_shorter(file: Path) -> None:
    rules = yaml.safe_load(file.read_text())
    capped = alert_config.capped(rules)
    waits = [rule["for"] for group in capped["groups"] for rule in group["rules"] if "for" in rule]
    assert set(waits) - {"0s"} == {f"{alert_config.MOST_FOR_SECONDS}s"}
    for content in (rules, capped):
        for group in content["groups"]:
            group.pop("interval", None)
            for rule in group["rules"]:
                rule.pop("for", None)
    assert capped == rules


def test_a_short_wait_stays() -> None:
    rules = {"groups": [{"name": "a", "rules": [{"alert": "A", "expr": "up == 0", "for": "1s"}]}]}
    assert alert_config.capped(rules) == rules


def test_targets_stay_and_alerts_go_to_the_second_alertmanager() -> None:
    before = deepcopy(CONFIG)
    changed = alert_config.watching(CONFIG, "/x/*.yml")
    assert before == CONFIG
    assert changed["scrape_configs"][0] == CONFIG["scrape_configs"][0]
    assert changed["rule_files"] == ["/x/*.yml"]
    assert "127.0.0.1:9093" not in str(changed)
    (own,) = changed["scrape_configs"][1]["static_configs"]
    assert own == {"targets": [alert_config.ALERTMANAGER], "labels": {"host": "monitor1"}}


def test_the_address_of_a_host_is_that_of_its_metrics() -> None:
    assert alert_config.instance(CONFIG, "hg1") == "10.0.0.5:9100"
    with pytest.raises(ValueError, match="no target"):
        alert_config.instance(CONFIG, "monitor1")


def test_a_disk_has_a_history_of_hours_with_a_value_three_hours_ago() -> None:
    now = 1_795_440_000.0
    kind, *lines, end = alert_config.disk_history({"host": "hg1", "device": "d"}, 8000, now)
    assert kind == "# TYPE node_filesystem_avail_bytes gauge"
    assert end == "# EOF"
    prefix = 'node_filesystem_avail_bytes{host="hg1",device="d"} 8000 '
    assert all(line.startswith(prefix) for line in lines)
    times = [int(line.rpartition(" ")[2]) for line in lines]
    assert times == sorted(set(times))
    assert now - times[0] < alert_config.HISTORY_HOURS * 3600
    # Prometheus takes a value that is up to 5 minutes old, whenever within the test it looks.
    for second in range(0, 15 * 60, 10):
        moment = now + second - 3 * 3600
        assert any(moment - 300 < time <= moment for time in times)
