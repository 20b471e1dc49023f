"""The plan of a run: the changes that site.yml would make, and on which hosts.

Ansible's controller is a single process, and a plan keeps it busy while the hosts wait for it. So
hosts are planned in shares, each by a process of its own, a process for each processor. The plan of
a host needs no other host: ./deploy applies to batches of hosts as well.
"""

from __future__ import annotations

import concurrent.futures
import io
import os
import sys
from typing import TYPE_CHECKING, Final

from controller.bootstrap import ROOT, Step
from controller.deploy import decide, run
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from pathlib import Path

    from controller.deploy.decide import Result
    from controller.deploy.run import Built, Site

MOST_SHARES: Final = 8
"""A share takes some 150 MB of the controller's memory."""


def shares(hosts: Mapping[str, Collection[str]], number: int) -> list[list[str]]:
    """Divide hosts into at most that many shares, which take about the same time.

    A host takes the longer the more groups it is in. The share that takes longest is the first.
    """
    result: list[list[str]] = [[] for _ in range(min(number, len(hosts)))]

    def groups_in(share: Sequence[str]) -> int:
        return sum(len(hosts[name]) for name in share)

    for name in sorted(hosts, key=lambda name: (-len(hosts[name]), name)):
        min(result, key=groups_in).append(name)
    return sorted(result, key=groups_in, reverse=True)


def make(
    site: Site, built: Built, known: Sequence[str], new: Sequence[str], tags: Sequence[str] = ()
) -> tuple[list[str], str]:
    """Show the changes to come on hosts with all their parts; return the hosts that change.

    The other value is the plan in a sentence. `tags` are the parts to plan, all if there are none.
    """
    results = _planned(site, built, known, tags) if known else {}
    summary = decide.plan_summary(results, new)
    Step.say("plan", summary)
    return [name for name, result in results.items() if result.changed], summary


def _planned(
    site: Site, built: Built, hosts: Sequence[str], tags: Sequence[str]
) -> dict[str, Result]:
    """Plan all shares at once; the first is shown as it goes, the others after it."""
    number = min(len(os.sched_getaffinity(0)), MOST_SHARES)
    first, *others = shares({name: site.hosts[name] for name in hosts}, number)

    def aside(share: Sequence[str]) -> tuple[str, tuple[dict[str, Result], int, Path]]:
        shown = io.StringIO()
        done = run.site_playbook(site, built, share, check=True, tags=tags, aside=shown)
        return shown.getvalue(), done

    results: dict[str, Result] = {}
    with concurrent.futures.ThreadPoolExecutor(max(1, len(others))) as pool:
        beside = [pool.submit(aside, share) for share in others]
        ended = [run.site_playbook(site, built, first, check=True, tags=tags)]
        for share, future in zip(others, beside, strict=True):
            if not future.done():
                with Step("plan", decide.joined(share)):
                    concurrent.futures.wait([future])
            shown, done = future.result()
            sys.stdout.write(shown)
            sys.stdout.flush()
            ended.append(done)
    for share_results, _code, _log in ended:
        results |= share_results
    _require_success([(code, log) for _results, code, log in ended])
    return {name: results[name] for name in hosts if name in results}


def _require_success(ended: Sequence[tuple[int, Path]]) -> None:
    failed = [(code, log) for code, log in ended if code]
    if not failed:
        return
    # A failed task says more about the cause than a host that does not answer.
    code, log = min(failed, key=lambda of: of[0] == run.UNREACHABLE)
    if code == run.UNREACHABLE:
        raise DeployError(
            "A host stopped answering during the plan. Nothing was changed.",
            f"The whole run is in {log.relative_to(ROOT)}. When the host is back, run the same"
            " command again.",
        )
    raise DeployError(
        f"The plan failed (ansible-playbook exited with {code}). Nothing was changed.",
        f"The whole run is in {log.relative_to(ROOT)}. Check mode cannot foresee all"
        " that a later run builds on an earlier one: if that is the cause, --no-plan"
        " applies without a plan.",
    )
