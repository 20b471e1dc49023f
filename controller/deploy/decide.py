"""Decisions and texts of ./deploy. Pure: no host, file or clock is read here."""

from __future__ import annotations

import json
import re
import textwrap
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from controller.deploy import fitness

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

VERSION = re.compile(r"[0-9A-Za-z][0-9A-Za-z.+-]{0,63}")
"""The versions that the role `release` accepts: names of a folder."""

STATE_TASK = "State of the host"
"""The task of internal/state.yml whose message is the state."""

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_RECAP = re.compile(
    r"(?P<host>\S+)\s+: ok=\d+\s+changed=(?P<changed>\d+)\s+unreachable=(?P<unreachable>\d+)"
    r"\s+failed=(?P<failed>\d+)"
)
_TASK = re.compile(r"(TASK|RUNNING HANDLER) \[")
_PLAY = re.compile(r"PLAY \[(?P<name>.*?)\]")
_WORDS_ABOUT_SSH = re.compile(
    r"(Task failed: )?((Data could not be sent to remote host \S+"
    r"|Failed to connect to the host via ssh)[.:] (Make sure this host can be reached over ssh: )?"
    r"|EOF on stream; last 100 lines received: )?"
)
"""Words of Ansible before the words of ssh."""
_VERSION_IN_ARCHIVE = re.compile(r"(?:\./)?([^/]+)/?")


class DeployError(Exception):
    """The deploy cannot go on: a sentence for the cause, then a way out. Exit code 1."""

    def __init__(self, cause: str, way_out: str) -> None:
        super().__init__(f"{cause}\n  {way_out}")


@dataclass(frozen=True, slots=True)
class HostState:
    """Releases of a host, the newest first; `problem` is the reason of an unknown state.

    A provisioned host has seen the end of a run, and `groups` are its groups at that time.
    `unfit` are the reasons why it cannot take a deploy.
    `record` is what deploys left (`ways`), `formats` what each release declares, `primary` the host
    that takes pushes. A run that broke off left an unfinished host; `is_drained` if it drained it.
    `extensions` are the files of their extensions, such as 0.1.0-1a2b3c4d5e6f/hgext/access.py.
    `arrival` is how the controller came, for the checks of the roles (`internal/variables.yml`).
    `trust` are the certificates of the CA on the host. `ca_folder` is the folder of the CA on the
    controller, empty where the operator says that the CA is lost.
    """

    provisioned: bool = False
    current: str = ""
    releases: tuple[str, ...] = ()
    registry: str = ""
    problem: str = ""
    extensions: frozenset[str] = frozenset()
    groups: frozenset[str] = frozenset()
    unfit: tuple[str, ...] = ()
    record: Mapping[str, Any] = field(default_factory=dict)
    is_unfinished: bool = False
    is_drained: bool = False
    formats: Mapping[str, Any] = field(default_factory=dict)
    primary: str = ""
    arrival: Mapping[str, Any] = field(default_factory=dict)
    trust: str = ""
    ca_folder: str = ""


UNKNOWN = HostState(problem="it gave no answer")


@dataclass(frozen=True, slots=True)
class Result:
    """A host in Ansible's recap."""

    changed: int
    failed: bool


# --- the inventory ----------------------------------------------------------------------------


def hosts_of(listing: str) -> dict[str, list[str]]:
    """Read `ansible-inventory --list`: every host with the groups it is in, parents included."""
    data: dict[str, Any] = json.loads(listing)
    result: dict[str, list[str]] = {name: [] for name in data.get("_meta", {}).get("hostvars", {})}

    def members(group: str, seen: frozenset[str]) -> set[str]:
        content = data.get(group, {})
        hosts = set(content.get("hosts", ()))
        for child in content.get("children", ()):
            if child not in seen:
                hosts |= members(child, seen | {child})
        return hosts

    for group in sorted(set(data) - {"_meta"}):
        for name in sorted(members(group, frozenset({group}))):
            result.setdefault(name, []).append(group)
    return dict(sorted(result.items()))


def limit_to(hosts: Iterable[str]) -> str:
    """Return the value of --limit for these hosts.

    localhost is always among them, or the play that checks the registry would be left out.
    """
    return ",".join([*hosts, "localhost"])


# --- output of Ansible ------------------------------------------------------------------------


def states_of(output: str) -> dict[str, HostState]:
    """Read the output of internal/state.yml through the callback ansible.posix.json."""
    data: dict[str, Any] = json.loads(output[output.index("{") :])
    result: dict[str, HostState] = {}
    for task in (task for play in data["plays"] for task in play["tasks"]):
        for host, answer in task["hosts"].items():
            if answer.get("unreachable") or answer.get("failed"):
                said = [answer.get("msg", "no reason given")]
                # A program that failed has said why; without the accelerator both come as stdout.
                said += [answer[name] for name in ("stdout", "stderr") if answer.get("rc")]
                result[host] = HostState(problem=_reason(" ".join(map(str, said))))
            elif task["task"]["name"] == STATE_TASK:
                result[host] = _state(answer["msg"])
    return result


def _reason(text: str) -> str:
    words = " ".join(text.split())
    return textwrap.shorten(_WORDS_ABOUT_SSH.sub("", words, count=1), 300)


def _state(message: Mapping[str, Any]) -> HostState:
    """Read the message of the task; `host` in it is the output of `record.py`."""
    host = message["host"]
    return HostState(
        provisioned=bool(host["provisioned"]),
        current=str(host["current"]),
        releases=tuple(host["releases"]),
        registry=str(message["registry"]),
        extensions=frozenset(host["extensions"]),
        groups=frozenset(host["groups"]),
        record=host["record"],
        is_unfinished=bool(host["unfinished"]),
        is_drained=bool(host["drained"]),
        formats=host["formats"],
        primary=str(message["primary"]),
        unfit=tuple(fitness.problems(fitness.parse(message["machine"]), _reason(message["sudo"]))),
        arrival=dict(message["arrival"]),
        trust=str(host["trust"]),
        ca_folder=str(message["ca_folder"]),
    )


def plain(line: str) -> str:
    """Remove colours."""
    return _COLOUR.sub("", line)


def without_includes(lines: Iterable[str]) -> Iterator[str]:
    """Leave out tasks whose only output is "included: FILE".

    The line that names a task, and the empty line before it, wait until something else follows.
    """
    held: list[str] = []
    for line in lines:
        text = plain(line)
        if text.startswith("included: "):
            held.clear()
        elif _TASK.match(text) or not text.strip():
            held.append(line)
        else:
            yield from held
            held.clear()
            yield line
    yield from held


def recap_of(line: str) -> tuple[str, Result] | None:
    """Read a line of Ansible's recap, None for any other line."""
    match = _RECAP.match(plain(line))
    if match is None:
        return None
    failed = match["unreachable"] != "0" or match["failed"] != "0"
    return match["host"], Result(int(match["changed"]), failed)


def play_of(line: str) -> str | None:
    """Return the name of the play that begins with this line, None for any other line."""
    match = _PLAY.match(plain(line))
    return match["name"] if match else None


# --- decisions --------------------------------------------------------------------------------


def require_reached(states: Mapping[str, HostState], hosts: Sequence[str]) -> None:
    """Refuse to go on while a host does not answer: half a fleet with a release is no deploy."""
    problems = {
        name: states.get(name, UNKNOWN).problem
        for name in hosts
        if states.get(name, UNKNOWN).problem
    }
    if problems:
        lines = "\n".join(f"  | {name}: {text}" for name, text in problems.items())
        raise DeployError(
            f"Not every host told its releases:\n{lines}",
            "Nothing was changed. Repair the connection, or leave hosts out: --limit 'all:!HOST'.",
        )


def require_fit(states: Mapping[str, HostState], hosts: Sequence[str]) -> None:
    """Refuse hosts on which a run would fail half-way, each with all of its reasons."""
    lines = [f"  | {name}: {reason}" for name in hosts for reason in states[name].unfit]
    if lines:
        raise DeployError(
            "Not every host can take a deploy:\n" + "\n".join(lines),
            "Nothing was changed. Repair them, then run the same command again.",
        )


BESIDE: Final = frozenset({"metrics"})
"""Parts outside of the service, which check mode foresees on a host that has not had them.

A host that gets such a part goes on serving clients: it changes in its own stage, not with new
hosts.
"""


def new_hosts(
    states: Mapping[str, HostState],
    hosts: Mapping[str, Sequence[str]],
    among: Iterable[str],
    parts: Collection[str],
) -> list[str]:
    """Return the hosts among these with a part that no run has finished yet.

    Check mode cannot foresee the run there: most tasks build on the results of earlier tasks.
    `parts` are the groups that are parts of the service; a site may have others of its own.
    """
    return [
        name
        for name in among
        if not states[name].provisioned
        or not set(parts).difference(BESIDE).intersection(hosts[name]) <= states[name].groups
        or ("release" in hosts[name] and not states[name].current)
    ]


def check_version(version: str) -> str:
    """Return the version; DeployError if it cannot be the name of a release."""
    if not VERSION.fullmatch(version):
        raise DeployError(
            f"'{version}' is not the version of a release.",
            "A version looks like 0.1.0-1a2b3c4d5e6f; ./deploy INVENTORY --status lists them.",
        )
    return version


def require_present(version: str, states: Mapping[str, HostState], hosts: Sequence[str]) -> None:
    """Refuse a rollback to a release that a host no longer has."""
    without = [name for name in hosts if version not in states[name].releases]
    if without:
        lines = "\n".join(
            f"  | {name} has {', '.join(states[name].releases) or 'no release'}" for name in without
        )
        raise DeployError(
            f"{version} is not on {joined(without)}:\n{lines}",
            "Choose one that every host has, or install it again from its archive:"
            " ./deploy INVENTORY --release ARCHIVE.",
        )


def require_extensions(
    version: str, states: Mapping[str, HostState], hosts: Sequence[str], names: Iterable[str]
) -> None:
    """Refuse a rollback to a release without an extension that this checkout's hgrc names.

    `names` are the files of hgext/. hg does not start without a required extension.
    """
    missing = {
        name
        for name in names
        for host in hosts
        if f"{version}/hgext/{name}" not in states[host].extensions
    }
    if missing:
        raise DeployError(
            f"{version} has no {joined(sorted(missing))}, and the hgrc of this checkout names it:"
            " hg would not start.",
            "Check out the commit of that release and deploy it: ./deploy INVENTORY. The release is"
            " on the hosts already.",
        )


def version_in_archive(first_member: str) -> str:
    """Return the version of an archive of a release, from the name of its first member."""
    match = _VERSION_IN_ARCHIVE.match(first_member)
    return check_version(match[1] if match else first_member)


def require_current(version: str, states: Mapping[str, HostState], hosts: Sequence[str]) -> None:
    """Say so if the run went well and a host nevertheless works with another release."""
    others = [name for name in hosts if states[name].current != version]
    if others:
        lines = "\n".join(f"  | {name}: {states[name].current or 'none'}" for name in others)
        raise DeployError(
            f"The run went well, and yet {version} is not the current release of"
            f" {joined(others)}:\n{lines}",
            "Does the inventory set release_version to a fixed value? It should look up"
            " built_release, as ansible/inventories/production-small.example does.",
        )


# --- texts ------------------------------------------------------------------------------------


def count(number: int, noun: str) -> str:
    """Render "1 host", "2 hosts"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"


def joined(names: Iterable[str]) -> str:
    """Render "a", "a and b", "a, b and c"."""
    words = list(names)
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def plan_summary(results: Mapping[str, Result], new: Sequence[str]) -> str:
    """Return the plan in a sentence or two."""
    changes = {name: result.changed for name, result in results.items() if result.changed}
    parts = []
    if changes:
        each = ", ".join(f"{name} {number}" for name, number in changes.items())
        parts.append(f"{count(sum(changes.values()), 'change')} ({each})")
    if new:
        parts.append(
            f"everything on {joined(new)}, where no run has brought all parts to their end"
        )
    if not parts:
        return "Plan: nothing to change."
    return f"Plan: {'; '.join(parts)}."


def status_table(states: Mapping[str, HostState], hosts: Mapping[str, Sequence[str]]) -> str:
    """Return the table of --status: each host, its current release and its other releases."""
    rows = [("HOST", "CURRENT RELEASE", "OTHERS, THE NEWEST FIRST")]
    for name, groups in hosts.items():
        state = states.get(name, UNKNOWN)
        others = ", ".join(v for v in state.releases if v != state.current)
        if state.problem:
            rows.append((name, "?", state.problem))
        elif not state.provisioned or ("release" in groups and not state.current):
            rows.append((name, "-", "not provisioned yet"))
        elif "release" not in groups:
            rows.append((name, "-", "not in the group release, so it has none"))
        else:
            rows.append((name, state.current, others or "-"))
    return table(rows[0], rows[1:])


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Return lines with aligned columns."""
    every = [head, *rows]
    widths = [max(len(row[column]) for row in every) for column in range(len(head))]
    return "\n".join(
        "  ".join(f"{text:<{width}}" for text, width in zip(row, widths, strict=True)).rstrip()
        for row in every
    )
