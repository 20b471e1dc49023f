"""Command lines of the controller's tools, and the step that runs pytest."""

from __future__ import annotations

import os
from typing import Final

from controller.bootstrap import VENV
from controller.tests.execution import LOGS, Step

BIN: Final = VENV / "bin"


def tool(name: str, *arguments: str) -> list[str]:
    """Return the command line of a tool of the controller environment."""
    return [str(BIN / name), *arguments]


def python(*arguments: str) -> list[str]:
    """Return a command line of the controller's Python, run in the root of the repository."""
    return tool("python", *arguments)


PROCESSORS: Final = max(1, min(4, os.cpu_count() or 1))
"""Processors that are used, at most 4: workers of pytest, steps at a time."""


REPEAT: Final = ("--reruns", "1", "--reruns-delay", "3", "-p", "testing.support.repeated")
"""A failed test of real daemons runs once more after 3 s, and the summary says why it failed.

A machine that stalls for seconds fails such a test without a defect of the service. Decisions
(`unit`) have no such excuse, and a deploy (`deploys`, `rolls`) has to wait for its hosts.
"""


def pytest(
    tier: str, name: str, *arguments: str, words: str, workers: int = 1, **options: object
) -> Step:
    """Return a step that runs pytest and counts its tests.

    With several workers (pytest-xdist) the tests of a file stay in the same worker, in their order.
    """
    report = LOGS / f"{tier}-{name}.xml"
    command = python("-m", "pytest", "-v", "--color=no", f"--junit-xml={report}", *arguments)
    if tier not in ("unit", "deploys", "rolls"):
        command += REPEAT
    if workers > 1:
        command += ["--numprocesses", str(workers), "--dist", "loadfile"]
    if words:
        command += ["-k", words]
    return Step(tier, name, command, junit=report, **options)  # type: ignore[arg-type]
