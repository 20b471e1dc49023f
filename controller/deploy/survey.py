"""Everything that can be known before a plan: the hosts' states, and every problem of the site."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import ROOT, Step
from controller.deploy import decide, processes, run, validate
from controller.deploy.decide import UNKNOWN, DeployError
from controller.deploy.run import Built

if TYPE_CHECKING:
    import subprocess
    from collections.abc import Mapping, Sequence

    from controller.deploy.decide import HostState
    from controller.deploy.run import Site

AS_JSON = (
    "import json, sys, yaml; print(json.dumps(yaml.safe_load(open(sys.argv[1])), default=str))"
)
"""Python that reads YAML. ./deploy itself runs on a Python without the controller's packages."""

NOT_BUILT = Built("0.0.0-not-built", ROOT / "ansible.cfg", ROOT / "ansible.cfg")
"""Stands for the release in the roles' checks, which read none of its files."""


def look(site: Site, among: Sequence[str], *, planned: bool) -> dict[str, HostState]:
    """Return the states of the hosts; DeployError with all problems of the site if there are any.

    `among` are the hosts that have to answer. The plan of a site whose hosts are all known begins
    with the roles' checks of their variables; they are run here if there is no such plan.
    """
    states = run.read_states(site)
    known = {name: states.get(name, UNKNOWN) for name in among}
    inventory = validate.inventory_problems(site.everything, site.variables, run.parts())
    inventory += refused_registries(site, states)
    inventory += refused_ca(site, states)
    wrong = inventory or any(state.problem or state.unfit for state in known.values())
    variables: Mapping[str, Sequence[str]] = {}
    if wrong or not planned or decide.new_hosts(known, site.hosts, among, run.parts()):
        with Step("preflight", "checking every variable of every role"):
            variables = refused_variables(site, states)
    validate.require(
        validate.Problems(
            inventory=inventory,
            away={name: state.problem for name, state in known.items() if state.problem},
            unfit={name: state.unfit for name, state in known.items()},
            variables=variables,
        )
    )
    return states


def require_same(site: Site, states: Mapping[str, HostState], hosts: Sequence[str]) -> None:
    """Refuse to go on if another run changed one of these hosts since its state was read.

    It is read again under the lock of the site, which keeps other runs away from here on: the plan
    and the way back are made of what was read before the question.
    """
    now = run.read_states(site)
    decide.require_reached(now, hosts)
    others = [name for name in hosts if _left_by_runs(now[name]) != _left_by_runs(states[name])]
    if others:
        raise DeployError(
            f"Another run changed {decide.joined(others)} since your plan.",
            f"This one changed nothing. Run the same command again, which makes a new plan"
            f" (./deploy {site.said} --log tells whose run it was).",
        )


def _left_by_runs(state: HostState) -> tuple[object, ...]:
    """Return what runs leave on a host: of ./deploy, and of site.yml by hand."""
    releases = (state.current, state.releases, state.formats)
    return (state.record, *releases, state.provisioned, state.groups, state.is_unfinished)


def refused_variables(site: Site, states: Mapping[str, HostState]) -> dict[str, list[str]]:
    """Return each sentence of a role's preflight that refuses a variable, with its hosts."""
    command = site.playbook(run.INTERNAL / "variables.yml", "--limit", ",".join(site.hosts))
    arrivals = {name: state.arrival for name, state in states.items()}
    command += ["--extra-vars", json.dumps({"preflight_arrivals": arrivals})]
    env = {**site.environment(NOT_BUILT), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    done = processes.run(command, env)
    try:
        return validate.refusals(site.named(done.stdout))
    except ValueError:
        said = " ".join(site.named(done.stderr + done.stdout).split())[-600:]
        raise DeployError(f"Checking the variables failed: {said}", run.way_out(said)) from None


def refused_ca(site: Site, states: Mapping[str, HostState]) -> list[str]:
    """Return a sentence if a run would make a second CA for a site that has one.

    With --limit the hosts of the run may be blank, so all hosts of the site are asked.
    """
    folders = {os.path.realpath(of.ca_folder) for of in states.values() if of.ca_folder}
    missing = sorted(path for path in folders if not Path(path, "ca.pem").is_file())
    if not missing:
        return []
    if set(states) != set(site.everything):
        states = run.read_states(replace(site, hosts=site.everything))
    trusts = {name: state.trust for name, state in states.items()}
    return validate.missing_ca(missing[0], trusts, time.time())


def refused_registries(site: Site, states: Mapping[str, HostState]) -> list[str]:
    """Check every registry that the inventory names; return a sentence for each mistake."""
    sentences = []
    groups = [of["directory_groups"] for of in site.variables.values() if "directory_groups" in of]
    for path in sorted(_registries(site, states)):
        checked = _python(site, "-m", "hgfleet", "registry", "check", path)
        if checked.returncode:
            sentences += site.named(checked.stderr + checked.stdout).strip().splitlines()
            continue
        Step.say("registry", site.named(checked.stdout.strip()))
        content = json.loads(_python(site, "-c", AS_JSON, path).stdout)
        sentences += validate.group_problems(content, groups[0] if groups else [])
    return sentences


def _registries(site: Site, states: Mapping[str, HostState]) -> set[str]:
    """Return the registries of the site; of a host that does not answer, where it is plain."""
    folder = str((site.copy.inventory if site.copy else site.path).parent)
    raw = {str(of.get("mercurial_registry", "")) for of in site.variables.values()}
    plain = {text.replace("{{ inventory_dir }}", folder) for text in raw}
    told = {state.registry for state in states.values()}
    return {path for path in plain | told if path and "{{" not in path}


def _python(site: Site, *arguments: str) -> subprocess.CompletedProcess[str]:
    return processes.run([str(bootstrap.VENV / "bin/python"), *arguments], site.environment())
