"""Problems of an inventory and its hosts, each with the way out. Pure.

Roles check their own variables (`tasks/preflight.yml`), and `machine.py` checks a host. This module
checks what no role sees, and reports all problems of all hosts at once.
"""

from __future__ import annotations

import difflib
import json
import ssl
from collections import defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from controller.deploy.decide import DeployError, count, joined

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

ANSIBLE_GROUPS = frozenset({"all", "ungrouped"})

SIMILAR = 0.8
"""The least similarity (`difflib`) to a known name at which an unknown name counts as misspelt."""

_NEW_HOST_KEY = (
    "its host key is not known, or it has changed: compare it on its console, then connect once by"
    " hand (ssh HOST)"
)
_NO_KEY = (
    "the host takes no key of this user: ansible_user of the inventory, and that account's"
    " authorized_keys"
)

HINTS = {
    "REMOTE HOST IDENTIFICATION HAS CHANGED": "its host key is another one than before: compare it"
    " on its console (ssh-keygen -lf /etc/ssh/ssh_host_ed25519_key.pub), then ssh-keygen -R HOST",
    "Host key verification failed": _NEW_HOST_KEY,
    "unrecognized or mismatching host key": _NEW_HOST_KEY,
    "Permission denied": _NO_KEY,
    "SSH password was requested": _NO_KEY,
    "Could not resolve hostname": "its name is in no DNS and no /etc/hosts of the controller:"
    " correct it, or set ansible_host",
    "timed out": "it is down, too busy to log in, or a firewall drops the connection: look at its"
    " load, or leave it out with --limit",
    "Connection refused": "no SSH server listens on that port: ansible_port of the inventory",
    "No route to host": "it is down, or its address is wrong: base_address, ansible_host",
    "/usr/bin/python3: ": "Ansible needs it there: apt-get install python3",
}
"""Ways out, by words of ssh, of the accelerator and of the host's shell."""


@dataclass(frozen=True, slots=True)
class Problems:
    """The problems of a site: of its inventory, of hosts by their name, of roles by sentence."""

    inventory: Sequence[str] = ()
    away: Mapping[str, str] = field(default_factory=dict)
    unfit: Mapping[str, Sequence[str]] = field(default_factory=dict)
    variables: Mapping[str, Sequence[str]] = field(default_factory=dict)


def require(problems: Problems) -> None:
    """Refuse to go on if there is any problem, and tell all of them."""
    lines = [*problems.inventory]
    lines += [f"{_hosts(names)}: {text}" for text, names in problems.variables.items()]
    lines += [f"{name}: {text}{hint(text)}" for name, text in problems.away.items()]
    lines += [f"{name}: {text}" for name, texts in problems.unfit.items() for text in texts]
    if lines:
        told = "\n".join(f"  | {line}" for line in lines)
        raise DeployError(
            f"{count(len(lines), 'problem')} in the inventory or on the hosts:\n{told}",
            "Nothing was changed. Repair them, then run the same command again. A host that is"
            " away can be left out: --limit 'all:!HOST'.",
        )


def hint(problem: str) -> str:
    """Return the way out for the words of ssh, empty if none is known."""
    return next((f" ({way})" for words, way in HINTS.items() if words in problem), "")


def inventory_problems(
    hosts: Mapping[str, Sequence[str]],
    variables: Mapping[str, Mapping[str, Any]],
    parts: Collection[str],
) -> list[str]:
    """Return a sentence for each mistake in groups, addresses and roles of the hosts.

    `hosts` has the groups of each host, `variables` its variables as the inventory has them
    (templates not filled in), and `parts` are the groups that are parts of the service.
    """
    known = {*parts, "broker"}
    sentences = []
    names = sorted({group for groups in hosts.values() for group in groups} - known)
    for group in names:
        near = difflib.get_close_matches(group, known, 1, SIMILAR)
        if near and group not in ANSIBLE_GROUPS:
            sentences.append(
                f"No part of the service is called {group}; the group {near[0]} is one."
            )
    sentences += [
        f"{name} is in no group of a part, so it would carry nothing: {', '.join(sorted(known))}."
        for name, groups in hosts.items()
        if not known.intersection(groups)
    ]
    return sentences + _shared_addresses(hosts, variables) + _wrong_sets(hosts, variables)


def missing_ca(folder: str, trusts: Mapping[str, str], now: float) -> list[str]:
    """Return a sentence if hosts trust a CA that is not on this controller, which has none.

    `trusts` has the certificates on each host in PEM; `folder` is base_tls_ca_folder. A run would
    make a second CA there. An expired CA has to be replaced, and is no reason to refuse.
    """
    names = [name for name, text in trusts.items() if _is_valid(text, now)]
    if not names:
        return []
    sentence = (
        f"{joined(names)} trust a CA that is not on this controller, and a run would make a second"
        f" one, which clients do not trust: bring ca.pem and ca.key, and next/ and former/ if they"
        f" are there, to {folder} from the controller that deployed this site, or from its backup."
        " If ca.key is lost, -e ca_is_lost=true makes another CA; all clients need its ca.pem."
    )
    return [sentence]


def _is_valid(certificates: str, now: float) -> bool:
    """Say whether one of these certificates of CAs has not expired."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        context.load_verify_locations(cadata=certificates)
    except (ssl.SSLError, ValueError):
        # Nothing, or no certificate.
        return False
    ends = [str(of["notAfter"]) for of in context.get_ca_certs()]
    return any(ssl.cert_time_to_seconds(end) > now for end in ends)


def _shared_addresses(
    hosts: Iterable[str], variables: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    sentences = []
    for variable in ("base_address", "ansible_host"):
        by_address: dict[str, list[str]] = defaultdict(list)
        for name in hosts:
            address = str(variables.get(name, {}).get(variable, ""))
            port = variables.get(name, {}).get("ansible_port", "")
            # Machines behind forwarded ports share an address of the controller.
            if address and "{{" not in address:
                by_address[f"{address} {port if variable == 'ansible_host' else ''}"].append(name)
        sentences += [
            f"{joined(names)} have the same {variable}, {address.strip()}: a host has its own."
            for address, names in by_address.items()
            if len(names) > 1
        ]
    return sentences


def _wrong_sets(
    hosts: Mapping[str, Sequence[str]], variables: Mapping[str, Mapping[str, Any]]
) -> list[str]:
    def of(group: str) -> list[str]:
        return [name for name, groups in hosts.items() if group in groups]

    sentences = []
    named = {str(variables.get(name, {}).get("replication_primary", "")) for name in hosts} - {""}
    if len(named) > 1:
        sentences.append(
            f"replication_primary is {joined(sorted(named))}, and a site has one primary: set it"
            " once, in group_vars/all."
        )
    if len(of("ssh")) > 1 and not of("broker"):
        sentences.append(
            f"{joined(of('ssh'))} would both take pushes, and nothing would bring them together:"
            " put a host into the group broker, or leave one host in the group ssh."
        )
    trusted = any(variables.get(name, {}).get("web_trusted_proxies") for name in of("web"))
    if len(of("web")) > 1 and not of("proxy") and not trusted:
        sentences.append(
            f"{joined(of('web'))} are web hosts, and no proxy sends readers to them: put a host"
            " into the group proxy, or name your own in web_trusted_proxies."
        )
    return sentences


def group_problems(registry: object, groups: object) -> list[str]:
    """Return a sentence for each group of the registry that misspells a group of the directory.

    `groups` is directory_groups. A group that resembles none may have been made by hand.
    """
    known = (
        [str(group.get("name")) for group in groups if isinstance(group, dict)]
        if isinstance(groups, list)
        else []
    )
    sentences = []
    for name in sorted(set(_named_groups(registry)) - {*known, "public"}):
        near = difflib.get_close_matches(name, known, 1, SIMILAR)
        if near:
            sentences.append(
                f"The registry names the group {name}, which directory_groups does not have;"
                f" {near[0]} is one."
            )
    return sentences


def _named_groups(node: object) -> Iterable[str]:
    if isinstance(node, dict):
        for key, value in node.items():
            if key in ("read", "push", "create") and isinstance(value, list):
                yield from map(str, value)
            else:
                yield from _named_groups(value)


def refusals(output: str) -> dict[str, list[str]]:
    """Read the output of internal/variables.yml through the callback ansible.posix.json.

    Returns each sentence with its hosts; ValueError for another output. Hosts that do not answer
    are left to internal/state.yml, which asks them as well.
    """
    data = json.loads(output[output.index("{") :])
    by_text: dict[str, list[str]] = {}
    for task in (task for play in data["plays"] for task in play["tasks"]):
        if task["task"]["name"] == "No variable is wrong":
            # It repeats what the roles refused.
            continue
        for host, said in task["hosts"].items():
            if said.get("failed") and not said.get("unreachable"):
                text = " ".join(str(said.get("msg", "no reason given")).split())
                text = text.removeprefix("Task failed: ").removeprefix("Action failed: ")
                by_text.setdefault(text, []).append(host)
    return by_text


def _hosts(names: Sequence[str]) -> str:
    return joined(dict.fromkeys(names))
