"""Hosts and their tests: the cluster's environment, and the test files of the roles of a host.

The hosts of the cluster have the tests of the roles that they carry. The gate runs none of them
(`tiers.of_gate`).
"""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import ROOT
from controller.tests.commands import tool

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def cluster_environment() -> dict[str, str]:
    """Return the variables of the cluster, which the stage `up` has brought to this checkout."""
    return parse_exports(bootstrap.run([str(ROOT / "cluster"), "env"], what="./cluster env"))


def parse_exports(text: str) -> dict[str, str]:
    """Read the `export NAME=VALUE` lines of `./cluster env`."""
    result = {}
    for line in text.splitlines():
        words = shlex.split(line)
        if len(words) == 2 and words[0] == "export" and "=" in words[1]:
            name, _, value = words[1].partition("=")
            result[name] = value
    return result


def host_tests(env: Mapping[str, str]) -> list[tuple[str, str, list[str]]]:
    """Return every host of the cluster with its container and the test files of its roles."""
    listing = bootstrap.run(
        tool("ansible-inventory", "-i", "ansible/inventories/cluster/hosts.yml", "--list"),
        what="Reading the inventory",
        env={**bootstrap.controller_environment(), **env},
        cwd=ROOT,
    )
    return tests_of_hosts(
        json.loads(listing), env["HGFLEET_CLUSTER_NAME"], lambda name: (ROOT / name).exists()
    )


def tests_of_hosts(
    inventory: dict[str, dict[str, object]], cluster: str, exists: Callable[[str], bool]
) -> list[tuple[str, str, list[str]]]:
    """Match hosts with test files: the groups of a host are its roles, and `base` is on all."""
    variables = inventory["_meta"]["hostvars"]
    assert isinstance(variables, dict)
    groups = {
        name: members(inventory, name) for name in sorted(inventory) if name not in ("_meta", "all")
    }
    result = []
    for host in sorted(variables):
        own = [name for name, inside in groups.items() if host in inside]
        present = role_tests(own, exists)
        if present:
            result.append((host, f"{cluster}-{host}", present))
    return result


def role_tests(groups: Iterable[str], exists: Callable[[str], bool]) -> list[str]:
    """Return the test files of a host in these groups: each is a role, and `base` is on all."""
    own = ["base", *groups]
    if "ssh" in own and "directory" not in own:
        # As site.yml does: the role directory, in another mode.
        own.append("directory_replica")
    tests = [f"testing/roles/test_{name}.py" for name in dict.fromkeys(own)]
    return [name for name in tests if exists(name)]


def members(inventory: Mapping[str, Mapping[str, object]], group: str) -> set[str]:
    """Return the hosts of a group and of the groups in it, from `ansible-inventory --list`."""
    content = inventory.get(group, {})
    names = set(_strings(content.get("hosts")))
    for child in _strings(content.get("children")):
        names |= members(inventory, child)
    return names


def _strings(value: object) -> Iterable[str]:
    return [str(item) for item in value] if isinstance(value, list) else []
