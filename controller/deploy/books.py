"""Playbooks of the roll as processes, whose output goes to a log or is read."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from controller.deploy import decide, processes, run

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from controller.deploy.run import Site

FOLDER = run.PLAYBOOKS / "roll"
RECORD = run.INTERNAL / "record.yml"
"""The step of a roll that site.yml takes too, and no person."""

CHECKS = 4
"""Checks of hosts whose only problems pass by themselves.

These are a push on its way to a mirror, and a machine too busy to answer in time.
"""

BEHIND = "/healthz says 503"
"""Only the mirror catches up: each proxy sends no request to such a host until it has."""

PASSING = (BEHIND, "wrong data: ", "does not answer: ")

VERDICT_TASK = "Host may be put back"
"""The task of playbooks/roll/check.yml whose output is what `check` prints."""


def path_of(name: str) -> Path:
    """Return the playbook of a step of the roll."""
    return RECORD if name == RECORD.stem else FOLDER / f"{name}.yml"


def play(
    site: Site, name: str, hosts: Sequence[str], variables: Mapping[str, Any]
) -> tuple[int, Path]:
    """Run a playbook of the roll on these hosts; return the exit code and the log."""
    book = path_of(name)
    command = site.playbook(book, "--limit", decide.limit_to(hosts))
    command += ["--extra-vars", json.dumps(variables)]
    log = run.new_log(site, book.stem)
    with log.open("w") as output:
        code = processes.call(command, site.environment(), output)
    return code, log


def check(site: Site, hosts: Sequence[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Run playbooks/roll/check.yml; return `problems`, `held_seconds` and `notes` of each host."""
    command = site.playbook(FOLDER / "check.yml", "--limit", decide.limit_to(hosts))
    command += ["--extra-vars", json.dumps(variables)]
    env = {**site.environment(), "ANSIBLE_STDOUT_CALLBACK": "ansible.posix.json"}
    done = processes.run(command, env)
    run.new_log(site, "check").write_text(done.stdout + done.stderr)
    return verdicts(done.stdout, hosts)


def settled(site: Site, hosts: Sequence[str], variables: Mapping[str, Any]) -> dict[str, Any]:
    """Return the verdicts of `check`, after a wait for problems that pass by themselves."""
    by_host: dict[str, Any] = {}
    for _ in range(CHECKS):
        by_host = check(site, hosts, variables)
        said = [text for verdict in by_host.values() for text in verdict["problems"]]
        if not said or not all(text.startswith(PASSING) for text in said):
            break
    return by_host


def may_serve(problems: Sequence[str]) -> bool:
    """Whether clients are as well off with a host of these problems as without it."""
    return all(text.startswith(BEHIND) for text in problems)


def verdicts(output: str, hosts: Sequence[str]) -> dict[str, Any]:
    """Read the output of check.yml through the callback ansible.posix.json.

    A host whose check did not finish has the words of the task that failed.
    """
    by_host: dict[str, Any] = {}
    try:
        plays = json.loads(output[output.index("{") :])["plays"]
    except ValueError:
        plays = []
    for task in (task for play in plays for task in play["tasks"]):
        for name, answer in task["hosts"].items():
            if task["task"]["name"] == VERDICT_TASK and answer.get("stdout"):
                by_host[name] = json.loads(answer["stdout"])
            elif answer.get("failed") or answer.get("unreachable"):
                words = " ".join(str(answer.get("msg", "no reason given")).split())
                text = f"the check failed at '{task['task']['name']}': {words[:200]}"
                by_host.setdefault(name, {"problems": [text], "held_seconds": None})
    nothing = {"problems": ["it gave no answer to the check"], "held_seconds": None}
    return {name: by_host.get(name, nothing) for name in hosts}
