"""People or the registry without the rest of the service: `./deploy SITE --only people,registry`.

The operator says which parts to bring. They are data: the tasks of site.yml with these tags write
entries of the directory and the registry, and restart no program. So all hosts change at once and
none is drained. Every other part is configuration, which a roll drains, checks and takes back.

The record of a host says for each such part where it came from (`ways.Later`), so a rollback, or a
roll that fails later, brings back the former configuration and these parts as they were.
"""

from __future__ import annotations

import argparse
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from controller.bootstrap import ROOT, Step
from controller.deploy import (
    attested,
    books,
    decide,
    gate,
    lease,
    plan,
    questions,
    run,
    survey,
    trees,
    ways,
)
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from controller.deploy.decide import HostState, Result
    from controller.deploy.run import Built, Site
    from controller.deploy.trees import Taken
    from controller.deploy.ways import Way

PARTS: Final[Mapping[str, tuple[str, ...]]] = {
    "people": ("people",),
    "registry": ("primary", "registry"),
}
"""The tags of site.yml for each part.

Tasks that have the name of a part as a tag write data and notify no handler. The tag
primary refuses an inventory that names a former primary.
"""


def parts(text: str) -> tuple[str, ...]:
    """Read the value of --only; ArgumentTypeError for a part that is not safe without the rest."""
    asked = [word.strip() for word in text.split(",")]
    others = [word for word in asked if word not in PARTS]
    if others:
        raise argparse.ArgumentTypeError(
            f"got {decide.joined(others) or 'nothing'}, expected {', '.join(PARTS)} or both. Other"
            " parts restart programs, and fit the release that they came with: ./deploy without"
            " --only brings them to drained hosts, checks them, and takes them back if they fail"
        )
    return tuple(part for part in PARTS if part in asked)


def tags_of(only: Sequence[str]) -> list[str]:
    """Return the tags of site.yml that bring these parts."""
    return [tag for part in only for tag in PARTS[part]]


def main(site: Site, options: argparse.Namespace, taken: Taken) -> int:
    """Plan, ask, and bring these parts to all hosts at once."""
    hosts, only = list(site.hosts), options.only
    verdict = attested.judge(taken, options)
    if not options.check:
        gate.require(verdict)
    states = survey.look(site, hosts, planned=not options.no_plan)
    version = require_safe(site, states)
    if not options.check:
        gate.require_release(verdict, version)
    # No task with these tags reads an archive.
    built = replace(survey.NOT_BUILT, version=version)
    said = f"{decide.joined(only)} only"
    Step.say("plan", f"{said}. {left_out(site, states)}")
    # Without a question after it, a plan would show what the run shows again.
    if options.check or not (options.yes or options.no_plan):
        changed, said = plan.make(site, built, hosts, [], tags_of(only))
        if options.check or not changed:
            return 0
    Step.say("tests", verdict.said)
    if not options.yes:
        questions.ask(f"Apply {decide.joined(only)} to {decide.joined(hosts)}?")
    log = lease.record(version, hosts, verdict.tree, verdict.said, said)
    with lease.held(site, log):
        survey.require_same(site, states, hosts)
        has = ways.Way(version, taken.tree, taken.inventory)
        changed = apply(site, built, states, only, has)
    if changed:
        print(f"\n{decide.joined(only)}: changed {decide.joined(changed)} ({verdict.said}).")
        print(f"To go back: ./deploy {site.said} --rollback")
    else:
        print(f"\n{decide.joined(only)}: nothing to change.")
    return 0


def require_safe(site: Site, states: Mapping[str, HostState]) -> str:
    """Return the release of the hosts; DeployError where a part may not come without the rest."""
    new = decide.new_hosts(states, site.hosts, site.hosts, run.parts())
    unfinished = [name for name in site.hosts if states[name].is_unfinished]
    releases = sorted({states[name].current for name in site.in_group("release")})
    reason = ""
    if new:
        reason = f"no run has brought all parts to {decide.joined(new)} yet"
    elif unfinished:
        reason = f"an earlier run broke off on {decide.joined(unfinished)}"
    elif len(releases) > 1:
        reason = f"hosts have different releases, {decide.joined(releases)}"
    if reason:
        raise DeployError(
            f"--only is not safe here: {reason}. Nothing was changed.",
            f"Bring all parts first: ./deploy {site.said}",
        )
    return releases[0] if releases else survey.NOT_BUILT.version


def left_out(site: Site, states: Mapping[str, HostState]) -> str:
    """Return a sentence about the parts that the run leaves as they are on the hosts.

    It names the files of the inventory that differ since the last run of all parts, where this
    controller has kept that inventory.
    """
    last = max(
        (states[name] for name in site.hosts), key=lambda state: ways.changed_at(state.record)
    )
    try:
        kept = trees.find(ways.present(last.record, last.current))
    except DeployError:
        kept = None
    differing = trees.differing(kept.inventory.parent, site.path.parent) if kept else []
    told = f" Since the last run of all parts, these files differ: {', '.join(differing)}."
    return f"All else stays as it is on the hosts.{told if differing else ''}"


def apply(
    site: Site, built: Built, states: Mapping[str, HostState], only: Sequence[str], has: Way
) -> list[str]:
    """Run the parts on all hosts; return the hosts that changed, which a rollback brings back."""
    hosts, at = list(site.hosts), time.time()
    begun = {name: ways.begun(states[name].record, states[name].current, at) for name in hosts}
    results, code, log = run.site_playbook(
        site, built, hosts, check=False, tags=tags_of(only), variables={"roll_records": begun}
    )
    if code == 0:
        left = {"roll_records": records(states, results, only, has, at)}
        code, log = books.play(site, "record", hosts, left)
    if code != 0:
        raise DeployError(
            f"The run failed (exit code {code}).",
            f"The whole run is in {log.relative_to(ROOT)}. When the cause is repaired, bring all"
            f" parts: ./deploy {site.said}",
        )
    return [name for name, result in results.items() if result.changed]


def records(
    states: Mapping[str, HostState],
    results: Mapping[str, Result],
    only: Sequence[str],
    has: Way,
    at: float,
) -> dict[str, dict[str, Any]]:
    """Return the record of each host after a run; a host without changes keeps its own."""
    after = {}
    for name, result in results.items():
        after[name] = dict(states[name].record)
        if result.changed:
            had = ways.present(states[name].record, states[name].current)
            after[name] = ways.done(had, ways.with_parts(had, only, has), at)
    return after
