"""The attestation at the end of a gate that passed, and its figures."""

from __future__ import annotations

import json
import os
import time
from typing import TYPE_CHECKING

from controller import attestation, bootstrap
from controller.attestation import Attestation, Figures
from controller.bootstrap import CACHE
from controller.tests.outcome import repeated_of

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.tests.outcome import Outcome

RELEASE = CACHE / "release/last.json"


def figures(outcomes: Sequence[Outcome], walls: Mapping[str, float]) -> dict[str, Figures]:
    """Return each tier in figures; `walls` has the seconds that each took."""
    return {
        tier: Figures(
            sum(outcome.passed for outcome in outcomes if outcome.tier == tier),
            sum(outcome.failed for outcome in outcomes if outcome.tier == tier),
            sum(len(outcome.skipped) for outcome in outcomes if outcome.tier == tier),
            round(seconds, 1),
            sum(len(outcome.recorded) for outcome in outcomes if outcome.tier == tier),
        )
        for tier, seconds in walls.items()
    }


def begin() -> str:
    """Return the tree that is about to be tested, empty if it cannot be told."""
    try:
        return attestation.tree_of()
    except bootstrap.SetupError:
        return ""


def now() -> str:
    """Return the time in ISO 8601."""
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime())


def attest(tree: str, outcomes: Sequence[Outcome], walls: Mapping[str, float]) -> str:
    """Write the attestation of a tree that passed; return a sentence about it."""
    try:
        if attestation.tree_of() != tree:
            return "none: files changed during the run. ./deploy asks for a run of the final tree"
        key = os.environ.get(attestation.KEY_VARIABLE, "")
        repeated = tuple(repeated_of(outcomes))
        attested = Attestation(tree, now(), release(), figures(outcomes, walls), repeated)
        path = attestation.write(attested, key)
    except (bootstrap.SetupError, OSError) as error:
        return f"none: {error}"
    return f"{path}{' (signed)' if key else ''}: ./deploy accepts this tree"


def release() -> str:
    """Return the version of the release that was built for the run, empty if none was."""
    try:
        return str(json.loads(RELEASE.read_text())["version"])
    except (OSError, ValueError, KeyError, TypeError):
        return ""
