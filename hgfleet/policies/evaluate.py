"""Evaluation of the policies of a repository for a push, and the refusal with the problems."""

from __future__ import annotations

import itertools
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.policies.access_rules import OVERRIDE, ClosedTree, Rules
from hgfleet.policies.bounded import SearchTimeoutError
from hgfleet.policies.catalog import POLICIES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.policies.base import Policy, Push
    from hgfleet.policies.rule import Rule

MAX_SHOWN: Final = 10
"""Problems that a refusal lists. A hundred problems have one or two causes."""

MAX_COUNTED: Final = 1000
"""Problems of a policy after which its check ends."""

_TOO_LONG: Final = (
    "comparing a name with a pattern of the registry takes too long: use plainer names, and tell "
    "an operator"
)


@dataclass(frozen=True, slots=True)
class Finding:
    """Problems that a policy found, and the seconds it took."""

    policy: str
    problems: tuple[str, ...]
    seconds: float


def build(policies: Mapping[str, Mapping[str, Any]], rules: Sequence[Rule]) -> list[Policy]:
    """Make the policies of a repository, in the order in which they are evaluated.

    Raises ValueError for a policy or options that this release does not know, so that an unknown
    policy is never skipped.
    """
    unknown = sorted(set(policies) - set(POLICIES))
    if unknown:
        raise ValueError(f"unknown policy {unknown[0]!r}")
    result: list[Policy] = []
    for name, policy in POLICIES.items():
        if name not in policies:
            continue
        options = policies[name]
        strange = sorted(set(options) - set(policy.options))
        if strange:
            raise ValueError(f"unknown option {strange[0]!r} of {name}")
        try:
            result.append(policy(options))
        except (KeyError, TypeError, AttributeError) as error:
            raise ValueError(f"bad options of {name} ({error})") from error
    if rules:
        result.append(Rules(rules))
    return result


def evaluate(policies: Sequence[Policy], push: Push) -> list[Finding]:
    """Evaluate each policy that applies, to its end, so that a refusal names all problems."""
    return [finding(policy, push) for policy in policies if _applies(policy, push)]


def finding(policy: Policy, push: Push) -> Finding:
    """Evaluate a policy, whether it applies or not."""
    start = time.perf_counter()
    try:
        problems = tuple(itertools.islice(policy.check(push), MAX_COUNTED))
    except SearchTimeoutError:
        problems = (_TOO_LONG,)
    return Finding(policy.name, problems, time.perf_counter() - start)


def _applies(policy: Policy, push: Push) -> bool:
    match policy.applies_to:
        case "added changesets":
            return bool(push.added)
        case "heads":
            return bool(push.added or push.moved)
        case "every change":
            return bool(push.added or push.moved or push.bookmarks)


def verdicts(findings: Sequence[Finding], variables: Mapping[str, str]) -> dict[str, str]:
    """Return the verdict of each policy on an allowed push, for the push log."""
    verdicts = {finding.policy: "allowed" for finding in findings}
    if ClosedTree.name in verdicts and variables.get(OVERRIDE) == "yes":
        verdicts[ClosedTree.name] = f"allowed with {OVERRIDE}=yes"
    return verdicts


def bypassed(policies: Mapping[str, object], rules: Sequence[object]) -> dict[str, str]:
    """Return the verdict of each policy that an operator's write bypasses."""
    return dict.fromkeys([*policies, *([Rules.name] if rules else [])], "bypassed")


def refusal(findings: Sequence[Finding], user: str, path: str) -> tuple[str, Sequence[str]] | None:
    """Return the sentence of a refusal and the lines with its details; None without a problem.

    Every policy gets a line before any policy gets a second line.
    """
    wrong = [finding for finding in findings if finding.problems]
    if not wrong:
        return None
    room = MAX_SHOWN
    shown = [0] * len(wrong)
    while room and any(n < len(f.problems) for n, f in zip(shown, wrong, strict=True)):
        for index, finding in enumerate(wrong):
            if room and shown[index] < len(finding.problems):
                shown[index] += 1
                room -= 1
    details = [
        f"- {finding.policy}: {text}"
        for number, finding in zip(shown, wrong, strict=True)
        for text in finding.problems[:number]
    ]
    total = sum(len(finding.problems) for finding in wrong)
    if total > len(details):
        details.append(f"- and {total - len(details)} more")
    count = "a problem" if total == 1 else f"{total} problems"
    where = "named above (unless --quiet)"
    return f"{user} may not push this to {path}: {count}, {where}; nothing was changed", details
