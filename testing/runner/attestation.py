"""The attestation at the end of a full run that passed: when one is due, and its figures."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

import attestation
import bootstrap
from attestation import Attestation, Figures
from bootstrap import CACHE

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from testing.runner.outcome import Outcome

RELEASE = CACHE / "release/last.json"


def is_full(chosen: Sequence[tuple[str, str]], tiers: Collection[str]) -> bool:
    """Whether a run has every tier, and each with all of its tests."""
    return [tier for tier, words in chosen if not words] == list(tiers) and len(chosen) == len(
        tiers
    )


def figures(outcomes: Sequence[Outcome], walls: Mapping[str, float]) -> dict[str, Figures]:
    """Return each tier in figures; `walls` has the seconds that each took."""
    return {
        tier: Figures(
            sum(outcome.passed for outcome in outcomes if outcome.tier == tier),
            sum(outcome.failed for outcome in outcomes if outcome.tier == tier),
            sum(len(outcome.skipped) for outcome in outcomes if outcome.tier == tier),
            round(seconds, 1),
        )
        for tier, seconds in walls.items()
    }


def begin() -> str:
    """Return the tree that is about to be tested, empty if it cannot be told."""
    try:
        return attestation.tree_of()
    except bootstrap.SetupError:
        return ""


def attest(tree: str, outcomes: Sequence[Outcome], walls: Mapping[str, float]) -> str:
    """Write the attestation of a tree that passed; return a sentence about it."""
    try:
        now = attestation.tree_of()
        if now != tree:
            return "none: files changed during the run. ./deploy asks for a run of the final tree"
        key = os.environ.get(attestation.KEY_VARIABLE, "")
        finished = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())
        found = Attestation(tree, finished, release(), figures(outcomes, walls))
        path = attestation.write(found, key)
    except (bootstrap.SetupError, OSError) as error:
        return f"none: {error}"
    return f"{path}{' (signed)' if key else ''}: ./deploy accepts this tree"


def release() -> str:
    """Return the version of the release that was built for the run, empty if none was."""
    try:
        return str(json.loads(RELEASE.read_text())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
