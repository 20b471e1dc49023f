"""The command line of ./run-tests."""

from __future__ import annotations

import argparse
import signal
import sys
import time
from concurrent.futures import ThreadPoolExecutor, wait
from dataclasses import replace
from typing import TYPE_CHECKING

import bootstrap

from testing.runner import attestation, goldens, scratch, tiers, worktree
from testing.runner.execution import Executor, Room, say
from testing.runner.outcome import Failure, Outcome, chosen, summary
from testing.runner.preparation import Preparation
from testing.runner.processors import shared_by_nice_value
from testing.runner.selection import report, select

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

EXAMPLES = """\
tiers, in the order of a full run (those of the cluster beside all others):
  lint        style, types and house rules (a minute)
  unit        the Python package (seconds)
  goldens     the configuration that site.yml writes, in testing/goldens (a minute)
  integration hgext/ in a real hg (minutes)
  roles       each role on a throw-away host (minutes; needs Docker)
  deploys     ./deploy over SSH, from blank hosts on (minutes; needs Docker; only when it is named)
  e2e         the service on the local cluster, brought up if need be (minutes; needs Docker)
  faults      the same with parts of the cluster broken on purpose (minutes; needs Docker)
  rolls       ./deploy over the cluster while clients work (10 minutes a test; needs Docker; only
              when it is named)
  site        a deployed site, without a change: site:INVENTORY (minutes; only when it is named)

examples:
  ./run-tests                    everything
  ./run-tests lint unit          what to run before each commit
  ./run-tests lint:mypy          the steps of a tier whose names have this word
  ./run-tests unit:registry      the tests that match (what pytest -k takes: unit:'keys and not sk')
  ./run-tests roles:ssh e2e      one role, then the service
  ./run-tests site:../our-site   the hosts of an inventory, as ./deploy takes it, and the service
  ./run-tests goldens --update   accept the configuration that site.yml writes now
  ./run-tests -x                 end at the first failure
  ./run-tests --changed          what this branch changes needs (on main: what is not committed,
                                 else the last commit); --changed REV: what changed since REV
  ./run-tests unit --changed     the same, of these tiers alone

Whole logs are in .cluster/logs/tests. The exit code is 0 only if something ran and all passed.
A run of everything that passes leaves an attestation in .cache/attestations, which ./deploy asks
for. HGFLEET_ATTESTATION_KEY=FILE signs it with an SSH key.
"""


DEFAULT = [tier for tier in tiers.TIERS if tier not in tiers.BY_NAME]
"""The tiers of a run that names none."""


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
    """Return the options, and the chosen tiers in their order with the words that narrow each."""
    parser = argparse.ArgumentParser(
        prog="./run-tests",
        description="Every check and test of this repository.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "tiers",
        nargs="*",
        metavar="TIER[:WORDS]",
        help="all but deploys, rolls and site, if none is named",
    )
    parser.add_argument(
        "-x", "--exit-first", action="store_true", help="start nothing after the first failure"
    )
    parser.add_argument(
        "--changed",
        nargs="?",
        const="",
        metavar="REV",
        help="run what the files that changed since REV need (REV: see below), and say what not",
    )
    parser.add_argument("--update", action="store_true", help="of the tier goldens: write them")
    parser.add_argument(
        "-j",
        "--jobs",
        type=int,
        help="how many linters (one per processor) or roles (one more) at a time",
    )
    options = parser.parse_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs must be at least 1")
    chosen: dict[str, list[str]] = {}
    for argument in options.tiers or DEFAULT:
        tier, _, words = argument.partition(":")
        if tier not in tiers.TIERS:
            parser.error(f"there is no tier '{tier}'; the tiers are {', '.join(tiers.TIERS)}")
        chosen.setdefault(tier, []).append(words)
    order = [tier for tier in tiers.TIERS if tier in chosen]
    if options.update and (order != ["goldens"] or options.changed is not None):
        parser.error("--update is for the tier goldens alone: ./run-tests goldens --update")
    if options.changed is not None and any(words for found in chosen.values() for words in found):
        parser.error("--changed chooses tests itself: name tiers without words")
    return options, [(tier, words) for tier in order for words in dict.fromkeys(chosen[tier])]


def main(arguments: Sequence[str]) -> int:
    """Run the chosen tiers; see EXAMPLES for the exit code."""
    options, chosen = parse(arguments)
    signal.signal(signal.SIGTERM, _as_ctrl_c)
    with shared_by_nice_value(), scratch.folder() as environment:
        return _run(Executor(environment), options, chosen)


def _run(executor: Executor, options: argparse.Namespace, chosen: list[tuple[str, str]]) -> int:
    outcomes: list[Outcome] = []
    walls: dict[str, float] = {}
    full = options.changed is None and attestation.is_full(chosen, DEFAULT)
    tree = attestation.begin() if full else ""
    try:
        only: Mapping[str, Sequence[str]] = {}
        if options.changed is not None:
            only = _select(options.changed, [tier for tier, _ in chosen])
            chosen = [(tier, words) for tier, words in chosen if only.get(tier)]
            if not chosen:
                bootstrap.fail("None of these tiers has a test of what changed.", "See above.")
        preparation = Preparation(executor, [tier for tier, _ in chosen])
        preparation.start()
        bootstrap.ensure_controller()
        preparation.controller_ready.set()
        for tier, found, seconds in _run_lanes(executor, preparation, chosen, options, only):
            outcomes += found
            walls[tier] = walls.get(tier, 0.0) + seconds
    except bootstrap.SetupError as error:
        executor.stop("not everything is there")
        print(f"run-tests: {error}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        executor.stop()
        print("run-tests: interrupted; nothing is left running", file=sys.stderr)
        return 130
    text, code = summary(outcomes, walls, preparation.finished())
    if full and code == 0:
        say("attestation", attestation.attest(tree, outcomes, walls))
    print(text, flush=True)
    return code


def _select(revision: str, named: Sequence[str]) -> Mapping[str, Sequence[str]]:
    """Print the tests that a change needs and those left out; return the former, by tier."""
    commit, since = worktree.base_of_change(revision)
    changed = worktree.changed_since(commit)
    names = worktree.files()
    selection = select(changed, worktree.sources(names), names, worktree.carried_roles())
    print(report(selection, changed, since, named), flush=True)
    return selection.chosen


def _run_lanes(
    executor: Executor,
    preparation: Preparation,
    chosen: Sequence[tuple[str, str]],
    options: argparse.Namespace,
    only: Mapping[str, Sequence[str]],
) -> list[tuple[str, list[Outcome], float]]:
    """Run all lanes; return the outcomes and the seconds of each tier, in the order of tiers.

    With --exit-first a failure ends what runs in the other lane, hosts on their way included.
    """
    lanes = tiers.lanes(chosen)
    rooms = {tier: tiers.room(tier, options.jobs) for tier, _ in chosen}

    def widen() -> None:
        for room in rooms.values():
            room.widen()

    if len(lanes) == 1:
        widen()

    def one(tier: str, words: str, niceness: int) -> tuple[str, list[Outcome], float]:
        failures = preparation.wait_for(tier)
        began = time.monotonic()
        if executor.stopping:
            found: list[Outcome] = []
        elif failures:
            found = [Outcome(tier, "set-up", failures=failures)]
        else:
            room = rooms[tier]
            found = _run_tier(executor, (tier, words), options, only.get(tier), room, niceness)
        return tier, found, time.monotonic() - began

    def run(lane: tiers.Lane) -> list[tuple[str, list[Outcome], float]]:
        niceness = 0 if lane is lanes[0] else tiers.BEHIND
        done = []
        for tier, words in lane:
            done.append(one(tier, words, niceness))
            if options.exit_first and any(outcome.failed for outcome in done[-1][1]):
                executor.stop("a test failed")
                break
        widen()
        return done

    with ThreadPoolExecutor(max_workers=len(lanes)) as pool:
        futures = [pool.submit(run, lane) for lane in lanes]
        try:
            wait(futures)
        except KeyboardInterrupt:
            executor.stop()
            raise
    order = list(tiers.TIERS)
    return sorted(
        (done for one in futures for done in one.result()), key=lambda d: order.index(d[0])
    )


def _run_tier(
    executor: Executor,
    chosen_tier: tuple[str, str],
    options: argparse.Namespace,
    only: Sequence[str] | None,
    room: Room,
    niceness: int,
) -> list[Outcome]:
    tier, words = chosen_tier
    try:
        tiers.set_up(tier, only)
        if options.update:
            steps = goldens.steps(words, update=True)
        else:
            steps = tiers.TIERS[tier](words, only)
    except bootstrap.SetupError as error:
        say(tier, "could not be set up")
        return [Outcome(tier, "set-up", failures=[Failure("set-up", str(error))])]
    chooses = words and tier not in tiers.NAMED_BY_WORDS
    if chooses and tier not in tiers.COUNTED_BY_PYTEST:
        steps = [step for step in steps if words in step.name]
    if options.exit_first:
        steps = [step.ending_at_first_failure() for step in steps]
    steps = [replace(step, niceness=niceness) for step in steps]
    outcomes = executor.run_all(steps, room, first_only=options.exit_first)
    return chosen(outcomes) if chooses else outcomes


def _as_ctrl_c(_signum: int, _frame: object) -> None:
    raise KeyboardInterrupt
