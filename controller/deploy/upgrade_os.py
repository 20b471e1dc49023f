"""`./deploy INVENTORY --upgrade-os`: Debian's packages, host by host in the order of a roll.

The steps of a host are `playbooks/upgrade-os.yml`; this module plans, asks, orders, and stops at
the first host that fails. Packages have no way back: that host is put back if it passes the check.
"""

from __future__ import annotations

import json
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.bootstrap import ROOT, Step
from controller.deploy import batches, books, decide, lease, processes, questions, run, survey
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping, Sequence

    from controller.deploy.lease import Lease
    from controller.deploy.run import Site
    from controller.deploy.trees import Taken

BOOK = run.PLAYBOOKS / "upgrade-os.yml"
TASK = "Upgrade of the host"
"""The task of the playbook whose message is the output of packages.py."""

NOT_OF_A_TREE = "packages of Debian, which no tree has"


@dataclass(frozen=True, slots=True)
class Upgrade:
    """The packages that wait on a host, how many are security updates, why it restarts.

    `restart` are reasons now, `after` reasons that the packages will certainly bring.
    """

    packages: Sequence[str]
    security: int
    restart: Sequence[str]
    after: Sequence[str]

    @property
    def is_due(self) -> bool:
        """Whether the host is to be upgraded or to restart."""
        return bool(self.packages or self.restart)

    @property
    def restarts(self) -> str:
        """Return whether the host will restart, in words."""
        if reasons := [*self.restart, *self.after]:
            return f"yes: {'; '.join(reasons)}"
        return "if programs are left on replaced files" if self.packages else "no"


def read(output: str) -> tuple[dict[str, Upgrade], dict[str, str]]:
    """Read the output of a dry run through the callback ansible.posix.json.

    Returns the upgrade of each host, and the problem of each host without an upgrade; ValueError
    for another output.
    """
    plays = json.loads(output[output.index("{") :])["plays"]
    upgrades: dict[str, Upgrade] = {}
    problems: dict[str, str] = {}
    for task in (task for play in plays for task in play["tasks"]):
        for name, said in task["hosts"].items():
            if task["task"]["name"] == TASK and isinstance(said.get("msg"), dict):
                upgrades[name] = _upgrade(said["msg"])
            elif said.get("failed") or said.get("unreachable"):
                problems[name] = " ".join(str(said.get("msg", "no reason given")).split())[:300]
    return upgrades, problems


def _upgrade(state: Mapping[str, Any]) -> Upgrade:
    packages = state["packages"]
    names = [str(package["name"]) for package in packages]
    return Upgrade(
        names, sum(package["security"] for package in packages), state["restart"], state["after"]
    )


def order(site: Site, hosts: Sequence[str], primary: str) -> list[str]:
    """Return the hosts in the order of a roll: the primary last."""
    in_order = batches.order(site.everything, hosts, (), primary)
    return [name for batch in in_order for name in batch.hosts]


def plan_table(upgrades: Mapping[str, Upgrade], hosts: Sequence[str]) -> str:
    """Return the table of the upgrades, for a person."""
    rows = [
        (name, str(len(upgrade.packages)), str(upgrade.security), upgrade.restarts)
        for name, upgrade in ((name, upgrades[name]) for name in hosts)
    ]
    return decide.table(("HOST", "PACKAGES", "SECURITY", "RESTART"), rows)


def main(site: Site, options: argparse.Namespace, _taken: Taken) -> int:
    """Show the upgrades; ask; upgrade host by host."""
    states = run.read_states(site)
    decide.require_reached(states, list(site.hosts))
    decide.require_fit(states, list(site.hosts))
    upgrades = look(site)
    primary = next((state.primary for state in states.values() if state.primary), "")
    names = order(site, list(site.hosts), primary)
    print(f"\n{plan_table(upgrades, names)}\n")
    # A host that an earlier run left drained is checked and put back.
    due = [name for name in names if upgrades[name].is_due or states[name].is_drained]
    if options.check or not due:
        if not due:
            Step.say("plan", "no package waits, and no host has to restart")
        return 0
    if not options.yes:
        questions.ask(f"Upgrade {decide.joined(due)}?")
    packages = sorted({package for name in due for package in upgrades[name].packages})
    said = f"{decide.count(len(packages), 'package')} of Debian"
    log = lease.record(said, due, "", NOT_OF_A_TREE, ", ".join(packages) or "restarts")
    with lease.held(site, log) as lock:
        survey.require_same(site, states, due)
        rows: list[tuple[str, str]] = []
        for number, name in enumerate(due, 1):
            lock.require()
            began = time.monotonic()
            Step.say("upgrade", f"host {number} of {len(due)}, {name}")
            if problem := _upgrade_host(site, name, states[name].current, lock):
                done = f"Upgraded before: {decide.joined(due[: number - 1])}. " if rows else ""
                raise DeployError(
                    f"The upgrade of {name} failed: {problem}.",
                    f"{done}Repair it, then run the same command again: it goes on from there.",
                )
            rows.append((name, f"{time.monotonic() - began:.0f}"))
    print(f"\n{decide.table(('HOST', 'SECONDS'), rows)}")
    return 0


def look(site: Site) -> dict[str, Upgrade]:
    """Ask every host for its upgrades; DeployError if a host does not answer."""
    command = site.playbook(BOOK, "--check", "--limit", ",".join(site.hosts))
    env = {
        **site.environment(),
        "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json",
        "ANSIBLE_FORKS": str(min(len(site.hosts), run.MOST_FORKS)),
    }
    with Step("plan", "asking every host for packages that wait"):
        done = processes.run(command, env)
    try:
        upgrades, problems = read(done.stdout)
    except ValueError:
        upgrades, problems = {}, {"ansible-playbook": (done.stderr + done.stdout)[-600:].strip()}
    missing = {name: problems.get(name, "no answer") for name in site.hosts if name not in upgrades}
    if missing:
        lines = "\n".join(f"  | {name}: {text}" for name, text in {**problems, **missing}.items())
        raise DeployError(f"Not every host told its upgrades:\n{lines}", "Nothing was changed.")
    return upgrades


def _upgrade_host(site: Site, name: str, release: str, lock: Lease) -> str:
    """Drain a host, upgrade it, check it, put it back; return the problem and how it is left."""
    given = {"upgrade_os_ends": False, "lock_is_held": True, "roll_lock": lock.said}
    with Step("upgrade", name):
        problem = _play(site, "../upgrade-os", name, given)
    # Also after a failure: a host that is well does not stay drained.
    with Step("check", name):
        verdicts = books.settled(site, [name], {"roll_versions": {name: release}})
    ill = verdicts[name]["problems"]
    if not ill:
        left = _play(site, "ready", name, {})
        if left:
            return f"{problem or 'it was not put back'}: {left}"
        return f"{problem}; it passed the check, and was put back" if problem else ""
    words = "; ".join([*([problem] if problem else []), *ill])
    if books.may_serve(ill):
        # It catches up; no proxy uses it before it has.
        left = _play(site, "ready", name, {"roll_back_waits": False})
        return f"{words}; {left or 'it was put back, and is used when it has caught up'}"
    # A drain that ends by itself would bring it back to clients unseen.
    left = _play(site, "drain", name, {"roll_drain_stays": True})
    return f"{words}; {left or 'it stays drained until /etc/hgfleet/web.drain is removed'}"


def _play(site: Site, book: str, name: str, variables: Mapping[str, Any]) -> str:
    code, log = books.play(site, book, [name], variables)
    return f"the whole run is in {log.relative_to(ROOT)}" if code else ""
