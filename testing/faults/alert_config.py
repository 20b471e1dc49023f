"""Configuration of the Prometheus that watches provoked alerts, and its history. Pure.

The second Prometheus has the configuration of the real one, but it scrapes more often, and the
`for` of its rules is at most a few seconds. Expressions, targets and certificates are the role's.
"""

from __future__ import annotations

import re
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

INTERVAL_SECONDS: Final = 3
"""Between two scrapes, and between two evaluations."""
MOST_FOR_SECONDS: Final = 4
"""The longest `for` of a rule: two evaluations have to agree."""

PROMETHEUS: Final = "127.0.0.1:19090"
ALERTMANAGER: Final = "127.0.0.1:19093"
RECEIVER: Final = "127.0.0.1:19094"

HISTORY_HOURS: Final = 6
"""The window of DiskFillsUp."""
_HOUR: Final = 3600
_DURATION: Final = re.compile(r"(?:(\d+)d)?(?:(\d+)h)?(?:(\d+)m)?(?:(\d+)s)?")


def seconds(duration: str) -> int:
    """Return the seconds of a duration in Prometheus' notation; ValueError for any other text."""
    match = _DURATION.fullmatch(duration)
    if not duration or match is None:
        raise ValueError(f"got {duration!r}, expected a duration such as 1h30m")
    days, hours, minutes, rest = (int(number or 0) for number in match.groups())
    return ((days * 24 + hours) * 60 + minutes) * 60 + rest


def capped(rules: Mapping[str, Any]) -> dict[str, Any]:
    """Return a file of rules in which no `for` or interval is longer than a few seconds. Pure."""
    changed = deepcopy(dict(rules))
    for group in changed["groups"]:
        group.pop("interval", None)
        for rule in group["rules"]:
            if "for" in rule and seconds(rule["for"]) > MOST_FOR_SECONDS:
                rule["for"] = f"{MOST_FOR_SECONDS}s"
    return changed


def watching(config: Mapping[str, Any], rules: str) -> dict[str, Any]:
    """Return the configuration of the second Prometheus; `rules` is a pattern of files.

    Its alerts go to a second Alertmanager, whose metrics it reads instead of the real one's.
    """
    changed = deepcopy(dict(config))
    changed["global"] = {
        "scrape_interval": f"{INTERVAL_SECONDS}s",
        "scrape_timeout": f"{INTERVAL_SECONDS}s",
        "evaluation_interval": f"{INTERVAL_SECONDS}s",
    }
    changed["rule_files"] = [rules]
    changed["alerting"] = {"alertmanagers": [{"static_configs": [{"targets": [ALERTMANAGER]}]}]}
    for job in changed["scrape_configs"]:
        if job["job_name"] == "alertmanager":
            for static in job["static_configs"]:
                static["targets"] = [ALERTMANAGER]
    return changed


def delivering() -> dict[str, Any]:
    """Return the configuration of the second Alertmanager, which notifies its receiver at once."""
    return {
        "route": {
            "receiver": "test",
            "group_by": ["alertname"],
            "group_wait": "1s",
            "group_interval": "5s",
        },
        "receivers": [{"name": "test", "webhook_configs": [{"url": f"http://{RECEIVER}/"}]}],
    }


def instance(config: Mapping[str, Any], host: str) -> str:
    """Return the address at which Prometheus reads the metrics of a host."""
    for job in config["scrape_configs"]:
        if job["job_name"] == "hosts":
            for static in job["static_configs"]:
                if static["labels"]["host"] == host:
                    return str(static["targets"][0])
    raise ValueError(f"no target of the job hosts has the label host={host}")


def disk_history(labels: Mapping[str, str], available: int, now: float) -> Iterator[str]:
    """Yield the free space of a file system over the last hours, as lines of OpenMetrics.

    There is a value for every half hour, and more values around 3 hours ago, where DiskFillsUp
    looks. Old values are few, so that some seconds of a full file system outweigh them.
    """
    ages = {minutes * 60 for minutes in range(30, HISTORY_HOURS * 60, 30)}
    ages |= {3 * _HOUR + minutes * 60 for minutes in range(-16, 20, 4)}
    written = ",".join(f'{name}="{value}"' for name, value in labels.items())
    yield "# TYPE node_filesystem_avail_bytes gauge"
    for age in sorted(ages, reverse=True):
        yield f"node_filesystem_avail_bytes{{{written}}} {available} {now - age:.0f}"
    yield "# EOF"
