"""The plan of a run: its tiers, the parts it leaves out, and why. Pure.

| run | tiers | narrowed to |
| --- | --- | --- |
| the gate: `./run-tests` | GATE | tests without the mark `whole`, scenarios that changed |
| the whole: `./run-tests --all` | WHOLE | tiers that have not passed on this tree yet |
| `./run-tests TIER ...` | the named tiers | the words of each |
| `./run-tests --changed` | tiers of the gate, or the named tiers | the tests of the change |
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.tests import tiers

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

GATE: Final = tuple(tier for tier in tiers.TIERS if tier not in tiers.BY_NAME)
"""The tiers of a run that names none."""

WHOLE: Final = tuple(tier for tier in tiers.TIERS if tier != "site")
"""The tiers of --all: `site` needs the inventory of a site."""

RELEASE_PAYS_FROM: Final = 3
"""So many scenarios make the host of `release` first, and begin from it instead of blank.

`release` runs by itself, and takes about the time that it saves another scenario.
"""


@dataclass(frozen=True)
class Plan:
    """The tiers of a run with their words; of each the files or scenarios it is narrowed to.

    `done` has steps that passed in an earlier run, by tier, and `why` a reason for a tier or, as
    TIER:NAME, for a part of it.
    """

    chosen: tuple[tuple[str, str], ...]
    only: Mapping[str, Sequence[str]] = field(default_factory=dict)
    done: Mapping[str, Sequence[str]] = field(default_factory=dict)
    why: Mapping[str, str] = field(default_factory=dict)
    is_gate: bool = False

    @property
    def tiers(self) -> list[str]:
        """The tiers that run."""
        return list(dict.fromkeys(tier for tier, _ in self.chosen))


def named(chosen: Iterable[tuple[str, str]]) -> Plan:
    """Return the plan of tiers that a person named."""
    pairs = tuple(chosen)
    why = {f"{tier}:{words}" if words else tier: "named" for tier, words in pairs}
    return Plan(pairs, why=why)


def changed(chosen: Iterable[tuple[str, str]], only: Mapping[str, Sequence[str]]) -> Plan:
    """Return the plan of the tests that a change needs."""
    pairs = tuple((tier, words) for tier, words in chosen if only.get(tier))
    return Plan(pairs, only)


def gate(scenarios: Collection[str], to_run: Mapping[str, str]) -> Plan:
    """Return the plan of the gate; `to_run` has scenarios that are to run, with the reasons."""
    reasons = with_release(scenarios, to_run)
    recorded = sorted(set(scenarios) - set(reasons))
    why = {f"roles:{name}": reason for name, reason in reasons.items()}
    return Plan(
        tuple((tier, "") for tier in GATE if tier != "roles" or reasons),
        {"roles": sorted(reasons)},
        {"roles": recorded} if recorded else {},
        {**why, **{tier: "of the gate" for tier in GATE if tier != "roles"}},
        is_gate=True,
    )


def with_release(scenarios: Collection[str], to_run: Mapping[str, str]) -> dict[str, str]:
    """Add the scenario whose host saves the others a part of their way, if that is worth it."""
    reasons = dict(to_run)
    others = set(reasons) - {"release", "base"}
    if "release" in scenarios and "release" not in reasons and len(others) >= RELEASE_PAYS_FROM:
        reasons["release"] = f"the hosts of {len(others)} other scenarios begin as its host"
    return reasons


def whole(
    asked: Sequence[str],
    left: Collection[str],
    steps: Mapping[str, Sequence[str]],
    scenarios: Collection[str],
) -> Plan:
    """Return the plan of a sitting: the tiers that are asked for and are left.

    `steps` are the steps that have passed on this tree, of tiers that have not. The image that
    `release` keeps is of a single run: it is made again for several scenarios that begin from it.
    """
    why = {tier: "has not passed on this tree" for tier in asked if tier in left}
    done = {tier: list(names) for tier, names in steps.items() if tier in why and names}
    if passed := done.get("roles"):
        rest = dict.fromkeys(set(scenarios) - set(passed), "")
        if "release" in with_release(scenarios, rest):
            done["roles"] = [name for name in passed if name != "release"]
    return Plan(tuple((tier, "") for tier in why), done=done, why=why)


def text(plan: Plan, tiers_left_out: Mapping[str, str]) -> str:
    """Render a plan for a person: a line for each part that runs or not, with its reason.

    The parts of a change are in the report of its choice (selection.py).
    """
    rows = []
    for tier, words in plan.chosen:
        parts = plan.only.get(tier)
        if tier == "roles" and parts is not None:
            rows += [("runs", f"roles:{name}", plan.why.get(f"roles:{name}", "")) for name in parts]
        else:
            name = f"{tier}:{words}" if words else tier
            rows.append(("runs", name, plan.why.get(name, "")))
    for tier, done in plan.done.items():
        reason = "passed with the same files" if plan.is_gate else "passed on this tree"
        rows += [("left out", f"{tier}:{name}", reason) for name in done]
    rows += [("left out", name, reason) for name, reason in tiers_left_out.items()]
    width = max((len(name) for _, name, _ in rows), default=0)
    return "\n".join(f"{verb:<8}  {name:<{width}}  {why}".rstrip() for verb, name, why in rows)


def left_out(plan: Plan, passed: Collection[str]) -> dict[str, str]:
    """Return the tiers that do not run, each with the reason; `passed` passed on this tree."""
    reasons = {}
    mentioned = {*plan.tiers, *plan.done}
    if plan.is_gate:
        reasons[f"e2e:{tiers.OF_HOST}*"] = "tests of roles on hosts of the cluster: ./run-tests e2e"
        reasons["(tests)"] = "tests marked `whole`, of all tiers: ./run-tests TIER"
    for tier in tiers.TIERS:
        if tier in passed:
            reasons[tier] = "passed on this tree"
        elif tier == "site" and tier not in mentioned:
            reasons[tier] = "by name and inventory: ./run-tests site:INVENTORY"
        elif tier not in mentioned:
            command = "./run-tests --all" if tier in tiers.BY_NAME else "./run-tests"
            reasons[tier] = f"not of this run: {command}, ./run-tests {tier}"
    return reasons
