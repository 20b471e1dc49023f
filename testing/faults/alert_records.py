"""State of jobs and daemons that makes an alert fire, made from their current state. Pure.

A job that did not run for a day, or a check that found a corrupt pack, would take a day or a broken
disk. Each function takes the record that the job wrote and the time, and returns the record that it
would have written.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from hgfleet.core import counters

if TYPE_CHECKING:
    from collections.abc import Callable

Data: TypeAlias = "dict[str, Any]"
Change: TypeAlias = "Callable[[str, float], str]"
"""A function from the text of a file and the time to another text."""

HOUR: Final = 3600
DAY: Final = 24 * HOUR


def document(change: Callable[[Data, float], Data]) -> Change:
    """Return a change of the text of a JSON document, given a change of its data."""

    def changed(text: str, now: float) -> str:
        return json.dumps(change(json.loads(text), now)) + "\n"

    return changed


def late_bundles(before: Data, now: float) -> Data:
    """Bundle jobs that ended long ago, with a failure, and left repositories without bundles."""
    return before | {
        "started": now - 15 * HOUR - 60,
        "ended": now - 15 * HOUR,
        "failed": 1,
        "incomplete": 1,
        "repositories": before["covered"] + 1,
    }


def corrupt_bundle(before: Data, now: float) -> Data:
    """Findings of the bundle jobs, with a corrupt bundle of an hour ago."""
    return before | {"places": before["places"] | {"s3-1": now - HOUR}}


def late_verification(before: Data, now: float) -> Data:
    """Verification that ended long ago, with a corrupt repository and an overdue repository."""
    return before | {
        "ended": now - 43 * HOUR,
        "corrupt": 1,
        "oldest": now - (before["days"] + 2) * DAY,
    }


def late_backup(before: Data, now: float) -> Data:
    """Run of the backup that ended long ago and failed for a repository."""
    ended = now - 27 * HOUR
    return before | {"started": ended - 60, "ended": ended, "failed": {"e2e/backup": "no answer"}}


def no_backup(_found: Data, _now: float) -> Data:
    """State before the first run of the backup."""
    return {}


def late_drills(before: Data, now: float) -> Data:
    """Drills from long ago, none of which restored its backup."""
    late = {"time": now - 51 * HOUR, "error": "the restored repository differs"}
    return {path: drill | late for path, drill in before.items()}


def late_checks(before: Data, now: float) -> Data:
    """Checks of packs from long ago, with a corrupt pack, and packs that no check has read."""
    late = {"time": now - 51 * HOUR, "since": now - 31 * DAY, "read": {}, "broken": ["0" * 64]}
    return {host: check | late for host, check in before.items()}


def refused_prune(before: Data, _now: float) -> Data:
    """Refused prunes: snapshots of each host are later than the clock."""
    return {host: prune | {"refused": "got 48 snapshots later"} for host, prune in before.items()}


def late_probe(before: Data, now: float) -> Data:
    """Probes, the last of which was minutes ago."""
    last = max(time for time, _ in before["results"])
    moved = min(0, now - 400 - last)
    return before | {"results": [[time + moved, seconds] for time, seconds in before["results"]]}


def late_page(before: Data, now: float) -> Data:
    """Status page that was uploaded minutes ago."""
    return before | {"uploaded": now - 1000}


def silent_prober(before: Data, now: float) -> Data:
    """Prober of clone bundles that wrote minutes ago."""
    return before | {"written": now - 200}


def refusing_broker(before: Data, _now: float) -> Data:
    """Relay whose broker refuses messages, for minutes, and has a stream of another bound."""
    broker = {"connected": True, "problem": "code 10023", "warnings": ["max_bytes is -1"]}
    events = {"waiting": 1, "seconds": 1000.0, "mirrors": [], "problems": ["code 10023"]}
    return before | {"broker": broker, "events": events, "waiting": 1, "waiting_seconds": 600.0}


def documents_away(before: Data, _now: float) -> Data:
    """Applier that cannot bring the tokens from a source that answers."""
    away = {"tokens": "the source refuses (500)"}
    return before | {"source": "", "documents_away": 1, "away": away}


def dead_events(_text: str, _now: float) -> str:
    """State of the webhooks with dead events of a receiver."""
    return json.dumps({"ci": {"waiting": 0, "oldest": 0.0, "reason": "", "dead": 2}}) + "\n"


def open_firewall(before: Data, now: float) -> Data:
    """Look at a firewall that is not in force, after the host has loaded it again before."""
    return before | {"in_force": False, "looked": now, "restored": now - 60}


def outdated_units(before: Data, _now: float) -> Data:
    """Units of which the broker runs a library that an update replaced."""
    library = "/usr/lib/x86_64-linux-gnu/libc.so.6"
    return before | {"units": {"hgfleet-broker.service": library}}


def clock(_text: str, now: float) -> str:
    """Metric of a clock that is ten minutes slow."""
    return f"node_time_seconds {now - 600:.0f}\n"


def dead_object(text: str, _now: float) -> str:
    """Findings of a prober about a clone bundle that is missing in its store."""
    return text + "https://unreachable.invalid/bundles/one.hg dead 404 Not Found\n"


def other_push(text: str, _now: float) -> str:
    """Push log whose last push came from another user."""
    *lines, last = text.splitlines(keepends=True)
    other = json.loads(last) | {"user": "unknown"}
    text = json.dumps(other, sort_keys=True, separators=(",", ":"))
    return "".join([*lines, text, "\n"])


def later_registry(before: Data, _now: float) -> Data:
    """Dynamic registry of a term that the primary has not begun."""
    version = before["generation"]
    return before | {"generation": version | {"term": version["term"] + 1000}}


def unrecorded_pushes(text: str, _now: float) -> str:
    """Counts of pushes, and another push, refused because the store has no record of changes.

    A single push is too few for the alerts on the objective of pushes.
    """
    counts = counters.parse(text)
    counts["unrecorded"] = counts.get("unrecorded", 0.0) + 1
    return "".join(f"{name} {count:.17g}\n" for name, count in counts.items())


def damaged(text: str, _now: float) -> str:
    """Document that ends in the middle."""
    return text[: len(text) // 2]
