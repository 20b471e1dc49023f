"""Questions to the person at the terminal."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    import argparse


def require_answer(options: argparse.Namespace) -> None:
    """Refuse early a run that would end at a question without a terminal."""
    if not (options.yes or options.check or sys.stdin.isatty()):
        raise DeployError(
            "The input is not a terminal, so no question can be asked. Nothing was changed.",
            "Add --yes to apply without asking, or --check to see the plan only.",
        )


def ask(question: str) -> None:
    """Return if the person types yes; DeployError otherwise."""
    try:
        answer = input(f"\n{question} Type yes: ")
    except EOFError:
        answer = ""
    if answer.strip().lower() != "yes":
        raise DeployError("Not applied. Nothing was changed.", "Run it again when it is time.")
