"""The run of ./run-tests: a plan, its lanes, its records, and the summary."""

from __future__ import annotations

import signal
import sys
import time
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, NamedTuple

from controller import bootstrap
from controller.tests import attestation, goldens, plan, record, scratch, tiers, worktree
from controller.tests.arguments import parse
from controller.tests.choice.selection import report, select
from controller.tests.execution import Executor, say
from controller.tests.outcome import Failure, Outcome, chosen, summary
from controller.tests.preparation import Preparation
from controller.tests.processors import group_of_run
from controller.tests.sittings import Sittings, record_whole
from testing.support import pace

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Collection, Mapping, Sequence

    from controller.tests.plan import Plan


class Ended(NamedTuple):
    """A tier that came to its end, with the seconds that it took."""

    tier: str
    outcomes: list[Outcome]
    seconds: float


@dataclass
class Records:
    """The files that a run writes as it passes: scenarios in the tree, a sitting of the whole."""

    scenarios: record.Scenarios | None = None
    sittings: Sittings | None = None

    def step_ended(self, outcome: Outcome) -> None:
        """Record a step; a record that cannot be written costs a later run time, not this run."""
        try:
            is_good = outcome.passed and not outcome.failed
            if self.scenarios and outcome.tier == "roles" and is_good:
                self.scenarios.passed(outcome.name)
            if self.sittings:
                self.sittings.step_ended(outcome)
        except (OSError, bootstrap.SetupError) as error:
            say(outcome.tier, f"{outcome.name} is not recorded: {error}")

    def tier_ended(self, ended: Ended) -> None:
        """Record a tier of a whole run."""
        try:
            if self.sittings:
                self.sittings.tier_ended(*ended)
        except (OSError, bootstrap.SetupError) as error:
            say(ended.tier, f"it is not recorded: {error}")


def main(arguments: Sequence[str]) -> int:
    """Run the chosen tiers; see EXAMPLES for the exit code."""
    options, chosen = parse(arguments)
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    if options.plan:
        return _show(options, chosen)
    with group_of_run() as group, scratch.folder() as environment:
        factor = pace.measure()
        if factor > 1:
            say(
                "run-tests", f"this machine is busy or slow: deadlines are {factor:g} times as long"
            )
        return _run(Executor({**environment, pace.VARIABLE: str(factor)}, group), options, chosen)


def _show(options: argparse.Namespace, chosen: list[tuple[str, str]]) -> int:
    # ./run-tests --plan | head
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    try:
        planned, records = _plan(options, chosen)
    except bootstrap.SetupError as error:
        print(f"run-tests: {error}", file=sys.stderr)
        return 1
    if options.changed is not None:
        return 0  # the choice of tests has been printed with its reasons
    passed = set(records.sittings.tiers) if records.sittings else set()
    print(plan.text(planned, {} if options.tiers else plan.left_out(planned, passed)))
    if records.sittings:
        print(f"\n{record.about_whole(records.sittings.tree)}")
    return 0


def _plan(options: argparse.Namespace, chosen: list[tuple[str, str]]) -> tuple[Plan, Records]:
    """Decide on the tiers and scenarios, by the tree and the records of earlier runs."""
    names = [tier for tier, _ in chosen]
    records = Records(record.Scenarios() if "roles" in names else None)
    if options.all:
        tree = attestation.begin()
        if not tree:
            bootstrap.fail(
                "--all records its tiers by the hash of the tree, and git cannot read this tree.",
                "Make it a git checkout, or install git.",
            )
        records.sittings = sittings = Sittings(tree)
        steps = {tier: sittings.steps_of(tier) for tier in names}
        return plan.whole(names, sittings.left(names), steps, worktree.scenarios()), records
    if options.changed is not None:
        by_name = () if options.tiers else tiers.BY_NAME
        return plan.changed(chosen, _select(options.changed, names, by_name)), records
    if options.tiers or records.scenarios is None:
        return plan.named(chosen), records
    return plan.gate(worktree.scenarios(), records.scenarios.to_run()), records


def _run(executor: Executor, options: argparse.Namespace, asked: list[tuple[str, str]]) -> int:
    outcomes: list[Outcome] = []
    walls: dict[str, float] = {}
    tree = ""
    preparation = Preparation(executor, [tier for tier, _ in asked])
    # A gate takes seconds to compare files with its record, and its hosts do not depend on that.
    begins_before = options.changed is None and not options.all
    try:
        if begins_before:
            preparation.start()
        planned, records = _plan(options, asked)
        if planned.is_gate:
            tree = attestation.begin()
            say("run-tests", _sentence_about(planned))
        if options.all and not planned.chosen:
            return _end_of_whole(records, ended_now=False)
        if not planned.chosen:
            bootstrap.fail("None of these tiers has a test of what changed.", "See above.")
        executor.ended = records.step_ended
        if not begins_before:
            preparation = Preparation(executor, planned.tiers)
            preparation.start()
        bootstrap.ensure_controller()
        preparation.controller_ready.set()
        run = Run(executor, preparation, planned, options, records.tier_ended)
        for tier, tier_outcomes, seconds in [*_by_record(planned), *run.lanes()]:
            outcomes += tier_outcomes
            walls[tier] = walls.get(tier, 0.0) + seconds
    except bootstrap.SetupError as error:
        executor.stop("not everything is there")
        print(f"run-tests: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        executor.stop()
        print("run-tests: interrupted; nothing is left running", file=sys.stderr)
        return 130
    walls = {tier: walls[tier] for tier in tiers.TIERS if tier in walls}
    text, code = summary(outcomes, walls, preparation.finished())
    if planned.is_gate and code == 0:
        say("attestation", attestation.attest(tree, outcomes, walls))
    print(text, flush=True)
    return _end_of_whole(records, ended_now=True) if options.all and code == 0 else code


def _sentence_about(planned: Plan) -> str:
    recorded = planned.done.get("roles", ())
    ran = len(planned.only.get("roles", ()))
    return f"the gate, with {ran} of {ran + len(recorded)} roles (why: ./run-tests --plan)"


def _by_record(planned: Plan) -> list[Ended]:
    """Return, by tier, the steps that do not run because they passed before."""
    return [
        Ended(tier, [Outcome(tier, "passed before", recorded=list(names))], 0.0)
        for tier, names in planned.done.items()
    ]


def _end_of_whole(records: Records, *, ended_now: bool) -> int:
    """Name the tiers that a whole run has left, or record it; return the exit code."""
    assert records.sittings is not None
    left = records.sittings.left(plan.WHOLE)
    if left:
        if not ended_now:
            say("run-tests", "these tiers have passed on this tree")
        say("run-tests", f"the whole has left: {', '.join(left)}. Next sitting: ./run-tests --all")
        return 0
    say("run-tests", record_whole(records.sittings))
    return 0


def _select(
    revision: str, named: Sequence[str], by_name: Collection[str]
) -> Mapping[str, Sequence[str]]:
    """Print the tests that a change needs and the tests left out; return the needed, by tier."""
    commit, since = worktree.base_of_change(revision)
    changed = worktree.changed_since(commit)
    names = worktree.files()
    selection = select(changed, worktree.sources(names), names, worktree.carried_roles())
    print(report(selection, changed, since, named, by_name), flush=True)
    return selection.chosen


class Run:
    """The lanes of a run, each of which runs its tiers in turn."""

    def __init__(
        self,
        executor: Executor,
        preparation: Preparation,
        planned: Plan,
        options: argparse.Namespace,
        ended: Callable[[Ended], None],
    ) -> None:
        self.executor = executor
        self.preparation = preparation
        self.plan = planned
        self.options = options
        self.ended = ended
        self.rooms = {tier: tiers.room(tier, options.jobs) for tier in planned.tiers}

    def lanes(self) -> list[Ended]:
        """Run all lanes; return the tiers in their order.

        With --exit-first a failure ends what runs in the other lane, hosts on their way included.
        """
        lanes = tiers.lanes(self.plan.chosen)
        if len(lanes) == 1:
            self._widen()
        jobs = [
            partial(self._lane, lane, tiers.BEHIND if number else 0)
            for number, lane in enumerate(lanes)
        ]
        order = list(tiers.TIERS)
        results = [ended for lane in self.executor.in_threads(jobs, len(jobs)) for ended in lane]
        return sorted(results, key=lambda ended: order.index(ended.tier))

    def _widen(self) -> None:
        """Leave room and processors to the lane that goes on without another."""
        for room in self.rooms.values():
            room.widen()
        self.executor.lift()

    def _lane(self, lane: tiers.Lane, niceness: int) -> list[Ended]:
        done = []
        for tier, words in lane:
            ended = self._tier(tier, words, niceness)
            done.append(ended)
            if not self.executor.stopping:
                self.ended(ended)
            if self.options.exit_first and any(outcome.failed for outcome in ended.outcomes):
                self.executor.stop("a test failed")
                break
        self._widen()
        return done

    def _tier(self, tier: str, words: str, niceness: int) -> Ended:
        failures = self.preparation.wait_for(tier)
        began = time.monotonic()
        if self.executor.stopping:
            outcomes: list[Outcome] = []
        elif failures:
            outcomes = [Outcome(tier, "set-up", failures=failures)]
        else:
            outcomes = self._steps(tier, words, niceness)
        return Ended(tier, outcomes, time.monotonic() - began)

    def _steps(self, tier: str, words: str, niceness: int) -> list[Outcome]:
        only = self.plan.only.get(tier)
        try:
            tiers.set_up(tier, only)
            if self.options.update:
                steps = goldens.steps(words, update=True)
            else:
                steps = tiers.TIERS[tier](words, only)
        except bootstrap.SetupError as error:
            say(tier, "could not be set up")
            return [Outcome(tier, "set-up", failures=[Failure("set-up", str(error))])]
        chooses = words and tier not in tiers.NAMED_BY_WORDS
        if chooses and tier not in tiers.COUNTED_BY_PYTEST:
            steps = [step for step in steps if words in step.name]
        steps = [step for step in steps if step.name not in self.plan.done.get(tier, ())]
        if self.plan.is_gate:
            steps = tiers.of_gate(steps)
        if self.options.exit_first:
            steps = [step.ending_at_first_failure() for step in steps]
        steps = [replace(step, niceness=niceness) for step in steps]
        room, first_only = self.rooms[tier], self.options.exit_first
        outcomes = self.executor.run_all(steps, room, first_only=first_only)
        return chosen(outcomes) if chooses else outcomes


def _as_ctrl_c(_signum: int, _frame: object) -> None:
    raise KeyboardInterrupt
