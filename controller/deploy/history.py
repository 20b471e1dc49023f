"""The deploy log: entries of a run, and how --log shows them. Pure."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

BROKE_OFF = "broke off: the controller was killed, or lost its hosts"
UNDER_WAY = "under way"


@dataclass(frozen=True, slots=True)
class Record:
    """A run that changes hosts, as the deploy log has it; `begun` is a time in ISO 8601."""

    id: str
    begun: str
    who: str
    release: str
    hosts: Sequence[str]
    tree: str
    tests: str
    plan: str

    @property
    def said(self) -> str:
        """Return the run in words, for a person who meets its lock."""
        return f"{self.who} (release {self.release}, begun {self.begun})"

    def begin(self) -> dict[str, Any]:
        """Return the entry of the begin."""
        return {"event": "begin", **asdict(self)}

    def end(self, result: str, seconds: float) -> dict[str, Any]:
        """Return the entry of the end, which repeats the entry of the begin."""
        return {"event": "end", **asdict(self), "result": result, "seconds": round(seconds, 1)}


@dataclass(frozen=True, slots=True)
class Shown:
    """The answer of a host to `show`: the lock as in site_lock.py, the log, the host's time."""

    lock: Mapping[str, Any] | None
    log: Sequence[str]
    now: float


def entries(hosts: Sequence[Shown]) -> list[dict[str, Any]]:
    """Return an entry for each run, oldest first: its end if any host has it, else its begin."""
    by_id: dict[str, dict[str, Any]] = {}
    for line in (line for host in hosts for line in host.log):
        try:
            entry = json.loads(line)
            known = by_id.get(entry["id"])
            if known is None or entry["event"] == "end":
                by_id[entry["id"]] = entry
        except (ValueError, KeyError, TypeError):
            # A line that a crash of the host cut off.
            continue
    return sorted(by_id.values(), key=lambda entry: str(entry.get("begun")))


def table(hosts: Sequence[Shown], count: int = 50) -> str:
    """Return the last runs of a site for a person, and the run that has the lock."""
    locks = [host.lock for host in hosts if host.lock and host.lock["expires"] > host.now]
    at_work = {lock["id"] for lock in locks}
    lines = []
    for entry in entries(hosts)[-count:]:
        result = entry.get("result") or (UNDER_WAY if entry["id"] in at_work else BROKE_OFF)
        took = f" in {entry['seconds']:.0f} s" if "seconds" in entry else ""
        lines += [
            f"{entry.get('begun')}  {entry.get('who')}  {entry.get('release')}: {result}{took}",
            f"    hosts: {', '.join(entry.get('hosts', ()))}",
            f"    plan:  {entry.get('plan')}",
            f"    tests: {entry.get('tests')}",
        ]
    lines += [f"The lock: {lock['said']}" for lock in locks]
    return "\n".join(lines or ["No deploy is logged on these hosts."])


def answers_of(output: str) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """Read the output of internal/lock.yml through the callback ansible.posix.json.

    Returns the answer of each host, and the reason of each that gave none; ValueError for another
    output.
    """
    data = json.loads(output[output.index("{") :])
    answers: dict[str, dict[str, Any]] = {}
    problems: dict[str, str] = {}
    for task in (task for play in data["plays"] for task in play["tasks"]):
        for host, said in task["hosts"].items():
            if said.get("unreachable") or said.get("failed"):
                words = said.get("stderr") or said.get("msg") or "no reason given"
                problems[host] = " ".join(str(words).split())[-300:]
            elif isinstance(said.get("msg"), dict):
                answers[host] = said["msg"]
    return answers, problems
