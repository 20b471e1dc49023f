"""Counts of SSH sessions by decision and command, for metrics.

The access shell (`shell`) counts each session at its end, in the folder of counters. A command is
command is a command of the self-service or `hg`, and a reason is a reason of `original_command`: no
text of a client gets into a count.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.core import counters

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = "sessions"

HG: Final = "hg"
NONE: Final = "none"
"""Stands in the place of the command where the client named no command of this service."""

COMMANDS: Final = (
    "help",
    "keys",
    "login",
    "repo archive",
    "repo create",
    "repo delete",
    "repo describe",
    "repo drafts",
    "repo fork",
    "repo info",
    "repo list",
    "repo rename",
    "repo restore",
    "token create",
    "token list",
    "token revoke",
    "whoami",
)
"""Of the self-service; `login` is a session without a command."""

REFUSALS: Final = (
    "command",
    "init",
    "no-path",
    "no-repository",
    "not-in-its-place",
    "not-on-this-host",
    "renamed",
    "too-long",
    "usage",
)
"""Reasons of `original_command.Refuse`: the client asked for something that does not exist here."""

KINDS: Final = (
    ("serve", HG),
    *(("answer", command) for command in COMMANDS),
    *(("refuse", command) for command in COMMANDS),
    ("refuse", NONE),
    ("fail", NONE),
    ("crash", NONE),
)
"""Every decision with its command."""

BUCKETS: Final = (0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0, 1800.0)
"""Upper bounds of the histograms of durations, in seconds. A small pull takes some tenths."""

TIMED: Final = {"serve": HG, "answer": "self-service"}
"""The histogram of each decision that takes time; a refusal takes almost none."""


def counts(decision: str, command: str, seconds: float, reason: str = "") -> dict[str, float]:
    """Return the counts that a session adds. Pure."""
    if (decision, command) not in KINDS:
        decision, command = "crash", NONE
    added = {f"{decision}: {command}": 1.0}
    if decision in TIMED:
        added.update(counters.at_most(seconds, BUCKETS, f"{TIMED[decision]} "))
    if reason in REFUSALS:
        added[f"because: {reason}"] = 1.0
    return added


def add(folder: str, decision: str, command: str, seconds: float, reason: str = "") -> str | None:
    """Count a session; return why it could not be counted, or None. Never raises.

    A host without the folder does not count.
    """
    try:
        done = counters.add(folder, FILE, counts(decision, command, seconds, reason))
    except FileNotFoundError:
        return None
    except (OSError, MemoryError) as problem:
        return str(problem)
    return None if done else "the lock is held"


class Sessions:
    """Sessions of this host since it started, of every kind, 0 included."""

    def __init__(self, data: Mapping[str, float]) -> None:
        self.by_kind = {kind: float(data.get(f"{kind[0]}: {kind[1]}", 0)) for kind in KINDS}
        self.by_reason = {reason: float(data.get(f"because: {reason}", 0)) for reason in REFUSALS}
        self.times = {
            kind: (
                counters.buckets(data, BUCKETS, f"{kind} "),
                sum(count for (counted, _), count in self.by_kind.items() if counted == decision),
                float(data.get(f"{kind} seconds", 0)),
            )
            for decision, kind in TIMED.items()
        }
        """Buckets, count and sum of each histogram."""
