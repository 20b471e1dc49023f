"""The reason why a session of hg ended early, from the extension to the program that logs it.

A process serves a single session, so this is a variable of the process. The access shell
(`hgfleet.ssh.session.shell`) runs hg in its own process and writes the line about the end of the
session.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(slots=True)
class Outcome:
    """A reason in a word, and details for operators; None for a session that ended normally."""

    reason: str | None = None
    detail: str | None = None


outcome = Outcome()


def record(reason: str, detail: str) -> None:
    """Record the first reason; later failures only follow from it."""
    if outcome.reason is None:
        outcome.reason, outcome.detail = reason, detail
