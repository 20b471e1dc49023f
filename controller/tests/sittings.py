"""The parts of a whole run that passed on a tree, so that a further sitting runs only the rest.

A whole run takes hours. Each tier is recorded as it passes, in `.cache/whole/TREE.json`, of BY_STEP
each step: a run that is killed loses only its last part. A change of any file makes another tree,
on which nothing has passed yet.
"""

from __future__ import annotations

import json
import os
import threading
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Final

from controller import attestation, bootstrap
from controller.attestation import Figures
from controller.bootstrap import CACHE
from controller.tests import plan, record
from controller.tests.attestation import begin, figures, now, release
from controller.tests.outcome import MOST_REPEATED, Outcome, repeated_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

FOLDER: Final = CACHE / "whole"

BY_STEP: Final = frozenset({"roles", "bench"})
"""Tiers whose steps are minutes long and depend on none of the others."""


@dataclass(frozen=True)
class Passed:
    """A tier or step that passed, in figures."""

    figures: Figures
    repeated: tuple[str, ...] = ()


def total(parts: Iterable[Figures]) -> Figures:
    """Return the sum of figures."""
    result = Figures(0, 0, 0, 0.0)
    for of in parts:
        result = Figures(
            result.passed + of.passed,
            result.failed + of.failed,
            result.skipped + of.skipped,
            round(result.seconds + of.seconds, 1),
            result.recorded + of.recorded,
        )
    return result


class Sittings:
    """The progress of a whole run on a tree. Its methods may be called from several threads."""

    def __init__(
        self,
        tree: str,
        folder: Path | None = None,
        tree_now: Callable[[], str] | None = None,
    ) -> None:
        self.tree = tree
        self.path = (folder or FOLDER) / f"{tree}.json"
        self.tiers: dict[str, Passed] = {}
        self.steps: dict[str, dict[str, Passed]] = {}
        self._tree_now = tree_now or attestation.tree_of
        self._repeated = 0
        self._lock = threading.Lock()
        self._read()

    def left(self, tiers: Sequence[str]) -> list[str]:
        """Return the tiers that have not passed yet."""
        return [tier for tier in tiers if tier not in self.tiers]

    def steps_of(self, tier: str) -> list[str]:
        """Return the steps of a tier that have passed."""
        return list(self.steps.get(tier, {}))

    def step_ended(self, outcome: Outcome) -> None:
        """Record a step of a tier whose steps are recorded, if it passed."""
        if outcome.tier in BY_STEP and outcome.passed and not outcome.failed:
            of = figures([outcome], {outcome.tier: outcome.seconds})[outcome.tier]
            with self._lock:
                self.steps.setdefault(outcome.tier, {})[outcome.name] = Passed(of)
                self._write()

    def tier_ended(self, tier: str, outcomes: Sequence[Outcome], seconds: float) -> bool:
        """Record a tier, if it passed; return whether it did.

        A tier that brings the repeated tests of this sitting above the limit did not.
        """
        with self._lock:
            repeated = tuple(repeated_of(outcomes))
            self._repeated += len(repeated)
            known = self.steps.get(tier, {})
            ran = any(outcome.passed for outcome in outcomes) or bool(known)
            is_red = any(outcome.failed for outcome in outcomes) or self._repeated > MOST_REPEATED
            if is_red or not ran:
                return False
            of = figures(outcomes, {tier: seconds})[tier]
            if known:
                of = total(step.figures for step in known.values())
            self.tiers[tier] = Passed(of, repeated)
            self._write()
            return True

    def summed(self, finished: str, release: str, tiers: Sequence[str]) -> attestation.Attestation:
        """Return the figures of all tiers, whose runs may lie days apart."""
        return attestation.Attestation(
            self.tree,
            finished,
            release,
            {tier: self.tiers[tier].figures for tier in tiers},
            tuple(test for tier in tiers for test in self.tiers[tier].repeated),
        )

    def _write(self) -> None:
        # A tier that passed while files changed passed on another tree.
        if self._tree_now() == self.tree:
            steps = {
                tier: {name: asdict(step) for name, step in of_tier.items()}
                for tier, of_tier in self.steps.items()
            }
            tiers = {tier: asdict(passed) for tier, passed in self.tiers.items()}
            record.write(self.path, {"steps": steps, "tiers": tiers})

    def _read(self) -> None:
        try:
            data = json.loads(self.path.read_text("utf-8"))
            self.tiers = {tier: _passed(of) for tier, of in data["tiers"].items()}
            self.steps = {
                tier: {name: _passed(step) for name, step in of_tier.items()}
                for tier, of_tier in data["steps"].items()
            }
        except (OSError, ValueError, KeyError, TypeError, AttributeError):
            self.tiers, self.steps = {}, {}


def _passed(data: Mapping[str, Mapping[str, object]]) -> Passed:
    return Passed(attestation.figures(data["figures"]), tuple(str(t) for t in data["repeated"]))


def record_whole(sittings: Sittings) -> str:
    """Write the record of a whole run into the tree, and its attestation; return a sentence."""
    if begin() != sittings.tree:
        return "no record: files changed during the run. A whole run needs the final tree"
    try:
        whole = sittings.summed(now(), release(), plan.WHOLE)
        key = os.environ.get(attestation.KEY_VARIABLE, "")
        written = attestation.write(whole, key)
        path = record.write_whole(whole)
    except (bootstrap.SetupError, OSError) as error:
        return f"no record: {error}"
    return f"the whole has passed. Commit {path}. ./deploy accepts this tree: {written}"
