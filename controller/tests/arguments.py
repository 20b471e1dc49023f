"""The arguments of ./run-tests."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Final

from controller.tests import tiers
from controller.tests.plan import GATE, WHOLE

if TYPE_CHECKING:
    from collections.abc import Sequence

EXAMPLES: Final = """\
tiers of the gate, which is a run that names none (tiers of the cluster run during the others):
  lint        style, types and house rules (a minute)
  unit        the Python package (seconds)
  goldens     the configuration that site.yml writes, in testing/goldens (a minute)
  integration hgext/ in a real hg (minutes)
  roles       each role on a throw-away host (minutes; needs Docker)
  e2e         the service on the local cluster, brought up if need be (minutes; needs Docker)
  faults      the same with parts of the cluster broken on purpose (minutes; needs Docker)

tiers that run only when they are named, or with --all (most need Docker):
  deploys     ./deploy over SSH, from blank hosts on (minutes)
  alerts      every alert fires with its fault, and ends after it (minutes)
  mutants     a sample of decisions, each made wrong: does a unit test fail? (10 minutes)
  bench       each benchmark once, with small numbers
  rolls       ./deploy over the cluster while clients work (10 minutes a test)
  site        a deployed site, without a change: site:INVENTORY (minutes; not with --all)

examples:
  ./run-tests                    the gate, for every change
  ./run-tests --plan             print the tiers and roles of the gate, and why; run nothing
  ./run-tests --all              the whole, for a release, without tiers that passed on this tree
  ./run-tests --all deploys      a sitting of the whole with only this tier
  ./run-tests lint unit          what to run before each commit
  ./run-tests faults             all tests of a tier, also those that the gate leaves out
  ./run-tests lint:mypy          the steps of a tier whose names have this word
  ./run-tests unit:registry      the tests that match (what pytest -k takes: unit:'keys and not sk')
  ./run-tests roles:ssh e2e      a role, then the service
  ./run-tests bench:pull         the benchmarks with this word
  ./run-tests site:../our-site   the hosts of an inventory, as ./deploy takes it, and the service
  ./run-tests goldens --update   accept the configuration that site.yml writes now
  ./run-tests -x                 end at the first failure
  ./run-tests --changed          what this branch changes needs (on main: what is not committed,
                                 else the last commit); --changed REV: what changed since REV
  ./run-tests unit --changed     the same, only of these tiers

The gate leaves out tests that are marked `whole`, and scenarios of roles whose files are as in
the last run that passed (tested/scenarios.json). --all takes as many sittings as it needs, and
writes tested/whole.json when all has passed. Commit tested/ with the change.

Whole logs are in .cluster/logs/tests. The exit code is 0 only if something ran and all passed, and
at most 3 tests had to be run once more. A gate that passes leaves an attestation in
.cache/attestations, which ./deploy asks for. HGFLEET_ATTESTATION_KEY=FILE signs it with an SSH key.
"""


def parse(arguments: Sequence[str]) -> tuple[argparse.Namespace, list[tuple[str, str]]]:
    """Return the options, and the chosen tiers in their order with the words that narrow each."""
    parser = _parser()
    options = parser.parse_args(arguments)
    if options.jobs is not None and options.jobs < 1:
        parser.error("--jobs must be at least 1")
    chosen: dict[str, list[str]] = {}
    for argument in options.tiers or (WHOLE if options.all else GATE):
        tier, _, words = argument.partition(":")
        if tier not in tiers.TIERS:
            parser.error(f"there is no tier '{tier}'; the tiers are {', '.join(tiers.TIERS)}")
        chosen.setdefault(tier, []).append(words)
    order = [tier for tier in tiers.TIERS if tier in chosen]
    has_words = any(words for of_tier in chosen.values() for words in of_tier)
    if options.update and (order != ["goldens"] or options.changed is not None or options.all):
        parser.error("--update is only for the tier goldens: ./run-tests goldens --update")
    if options.changed is not None and has_words:
        parser.error("--changed chooses tests itself: name tiers without words")
    if options.all and options.changed is not None:
        parser.error("--all runs everything and --changed the tests of a change: give only one")
    if options.all and (has_words or not set(order) <= set(WHOLE)):
        parser.error(f"--all takes whole tiers, without words: {', '.join(WHOLE)}")
    return options, [(tier, words) for tier in order for words in dict.fromkeys(chosen[tier])]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="./run-tests",
        description="Every check and test of this repository.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "tiers", nargs="*", metavar="TIER[:WORDS]", help="the tiers of the gate, if none is named"
    )
    parser.add_argument(
        "-x", "--exit-first", action="store_true", help="start nothing after the first failure"
    )
    parser.add_argument(
        "--all",
        action="store_true",
        help="everything, in sittings: tiers that passed on this tree run no more",
    )
    parser.add_argument(
        "--changed",
        nargs="?",
        const="",
        metavar="REV",
        help="run what the files that changed since REV need (REV: see below), and say what not",
    )
    parser.add_argument(
        "--plan",
        action="store_true",
        help="print the tiers and roles that would run, and why; run nothing",
    )
    parser.add_argument("--update", action="store_true", help="of the tier goldens: write them")
    parser.add_argument(
        "-j",
        "--jobs",
        type=int,
        help="how many linters (default: one per processor) or roles (one more) at a time",
    )
    return parser
