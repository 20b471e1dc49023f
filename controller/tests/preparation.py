"""Prepares hosts in the background, while tiers without hosts run.

| stage | command | needed by |
| --- | --- | --- |
| build | `./cluster build --tests`: engine, images, release | roles, deploys |
| up | `./cluster up`: the cluster, converged | e2e, faults, alerts, bench, rolls |

The network and the engine make a controller wait, and a converge uses a single core, so tests that
need no host fill the rest. Each stage runs once a run. `build` needs no tool of the controller
environment and begins during its installation, `up` after it.
"""

from __future__ import annotations

import sys
import threading
from typing import TYPE_CHECKING, Final

from controller import bootstrap
from controller.tests.execution import Executor, Step, say

if TYPE_CHECKING:
    from collections.abc import Collection

    from controller.tests.outcome import Failure, Outcome

TIER: Final = "set-up"

NEEDS: Final = {
    **dict.fromkeys(("roles", "deploys"), "build"),
    **dict.fromkeys(("e2e", "faults", "alerts", "bench", "rolls"), "up"),
}


def stages(tiers: Collection[str]) -> list[str]:
    """Return the stages that these tiers need, in their order."""
    needed = {NEEDS[tier] for tier in tiers if tier in NEEDS}
    return [stage for stage in ("build", "up") if stage in needed or (stage == "build" and needed)]


def step(stage: str) -> Step:
    """Return the command of a stage."""
    # The snapshots of ten hosts take 40 s, and no test starts a host from a snapshot.
    arguments = {"build": ["build", "--tests"], "up": ["up", "--no-snapshots"]}[stage]
    return Step(
        TIER, f"cluster {stage}", [sys.executable, str(bootstrap.ROOT / "cluster"), *arguments]
    )


class Preparation:
    """The stages of a run, which run in turn; each can be waited for."""

    def __init__(self, executor: Executor, tiers: Collection[str]) -> None:
        self.executor = executor
        self.ended = {stage: threading.Event() for stage in stages(tiers)}
        self.outcomes: dict[str, Outcome] = {}
        self.controller_ready = threading.Event()
        self.thread = threading.Thread(target=self._run, daemon=True)

    def start(self) -> None:
        """Begin; returns at once."""
        if self.ended:
            self.thread.start()

    def _run(self) -> None:
        failed = False
        for stage, ended in self.ended.items():
            if stage == "up":
                self.controller_ready.wait()
            if not failed:
                outcome = self.executor.run(step(stage))
                self.outcomes[stage] = outcome
                failed = bool(outcome.failed)
            ended.set()

    def wait_for(self, tier: str) -> list[Failure]:
        """Wait until the hosts of a tier can be made or are up; return the failed stages."""
        stage = NEEDS.get(tier)
        if stage not in self.ended:
            return []
        if not self.ended[stage].is_set():
            say(tier, f"waits for ./cluster {stage}")
        self.ended[stage].wait()
        return [failure for outcome in self.outcomes.values() for failure in outcome.failures]

    def finished(self) -> list[Outcome]:
        """Return the stages that are through, with the time that each took."""
        return [outcome for outcome in self.outcomes.values() if outcome.passed]
