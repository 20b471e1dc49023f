"""The inventories that people copy: complete, and without a variable that no role knows."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections import Counter
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from hgfleet.registry.model import schema
from testing.support import loading

ROOT = Path(__file__).resolve().parents[3]
INVENTORIES = ROOT / "ansible/inventories"
ROLES = ROOT / "ansible/roles"

NAMES = sorted(path.parent.name for path in INVENTORIES.glob("*/hosts.yml"))

SMALL, LARGE = "production-small.example", "production-large.example"

OURS = re.compile(r"(ansible|vault|cluster)_\w+")
"""Variables that are no role's: Ansible's own, places of secrets, settings of containers."""

USED = re.compile(r"\bvault_\w+")


@cache
def listing(name: str) -> dict[str, Any]:
    """Return the output of `ansible-inventory --list`; fails if the inventory cannot be read."""
    done = subprocess.run(
        [
            str(Path(sys.executable).parent / "ansible-inventory"),
            *("-i", str(INVENTORIES / name / "hosts.yml"), "--list"),
        ],
        env={**os.environ, "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg")},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    data: dict[str, Any] = json.loads(done.stdout)
    return data


def groups_of(name: str) -> dict[str, set[str]]:
    """Every host with the groups that it is in itself (parents are of no interest here)."""
    data = listing(name)
    result: dict[str, set[str]] = {host: set() for host in data["_meta"]["hostvars"]}
    for group, content in data.items():
        for host in content.get("hosts", ()):
            result[host].add(group)
    return result


@cache
def options(role: str) -> dict[str, dict[str, Any]]:
    """The variables of a role."""
    specs = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text())
    declared: dict[str, dict[str, Any]] = specs["argument_specs"]["main"]["options"]
    return declared


def roles() -> list[str]:
    return sorted(path.parents[1].name for path in ROLES.glob("*/meta/argument_specs.yml"))


def roles_of(groups: set[str]) -> set[str]:
    """The roles of a host in these groups, as site.yml gives them."""
    hg = {"mercurial"} if groups & {"ssh", "web", "bundles"} else set()
    steering = {"steering"} if groups & {"ssh", "web"} else set()
    return {"base", "release", *hg, *steering, *(group for group in groups if group in roles())}


def test_the_inventories_for_people_are_there() -> None:
    assert {"cluster", SMALL, LARGE, "vagrant"} <= set(NAMES)
    assert "base" in roles()


@pytest.mark.parametrize("name", NAMES)
def test_it_has_hosts_for_every_part(name: str) -> None:
    parts = set().union(*groups_of(name).values())
    assert {"proxy", "ssh", "web", "bundles"} <= parts
    # The large site has both elsewhere.
    assert ({"directory", "objectstore"} <= parts) == (name != LARGE)


def test_the_large_example_survives_the_loss_of_any_host() -> None:
    groups = groups_of(LARGE)
    counts = Counter(group for own in groups.values() for group in own)
    assert (counts["proxy"], counts["ssh"], counts["broker"]) == (2, 2, 3)
    mirrors = {host for host, own in groups.items() if "web" in own and "bundles" not in own}
    assert len(mirrors) >= 2
    assert all("web" in own for own in groups.values() if "ssh" in own)


def test_the_large_example_has_links_for_the_files_of_the_small_one() -> None:
    """A file that both have is written once."""
    large, small = INVENTORIES / LARGE, INVENTORIES / SMALL
    for path in large.rglob("*.yml"):
        twin = small / path.relative_to(large)
        if path.is_symlink():
            assert path.resolve() == twin
        elif twin.exists():
            assert path.read_text() != twin.read_text(), f"{path}: make it a link to {twin}"


@pytest.mark.parametrize("name", NAMES)
def test_every_variable_is_one_of_a_role(name: str) -> None:
    known = {option for role in roles() for option in options(role)}
    unknown = {
        variable
        for variables in listing(name)["_meta"]["hostvars"].values()
        for variable in variables
        if variable not in known and not OURS.fullmatch(variable)
    }
    assert not unknown, "no role knows these: a name is misspelt, or the role has changed"


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_the_firewall_of_each_host_has_the_addresses_it_needs(name: str) -> None:
    firewall = loading.module("ansible/plugins/filter/firewall.py")

    hostvars = listing(name)["_meta"]["hostvars"]
    groups: dict[str, list[str]] = {"all": list(hostvars)}
    for host, own_groups in groups_of(name).items():
        for group in own_groups:
            groups.setdefault(group, []).append(host)
    own = {"base_firewall_administrators": [], "base_firewall_open": []}
    for host in hostvars:
        assert firewall.firewall_problems(own, host, groups, hostvars) == []


@pytest.mark.parametrize("name", NAMES)
def test_every_required_variable_is_set(name: str) -> None:
    variables = listing(name)["_meta"]["hostvars"]
    missing = {
        f"{host}: {option}"
        for host, groups in groups_of(name).items()
        for role in roles_of(groups)
        for option, spec in options(role).items()
        if spec.get("required") and option not in variables[host]
    }
    assert not missing


@pytest.mark.parametrize(
    "path", sorted(INVENTORIES.glob("*/registry.yml")), ids=lambda path: path.parent.name
)
def test_its_registry_is_right(path: Path) -> None:
    assert schema.load(path).repositories


def test_the_groups_of_the_example_are_those_of_its_registry() -> None:
    example = INVENTORIES / SMALL
    directory = yaml.safe_load((example / "group_vars/all/directory.yml").read_text())
    named = {group["name"] for group in directory["directory_groups"]}
    people = {person["name"] for person in directory["directory_people"]}
    loaded = schema.load(example / "registry.yml")
    for repository in loaded.repositories.values():
        read = () if repository.read == "public" else repository.read
        assert {*repository.push, *read} <= named
    for group in directory["directory_groups"]:
        assert set(group["members"]) <= people


@pytest.mark.parametrize("name", [SMALL, LARGE])
def test_the_secrets_of_an_example_are_named_once_and_empty(name: str) -> None:
    """An empty secret is refused by a role's preflight: no secret of the example is deployed."""
    folder = INVENTORIES / name / "group_vars"
    vault = yaml.safe_load((folder / "all/vault.yml").read_text())
    used = {
        name
        for path in folder.rglob("*.yml")
        if path.name != "vault.yml"
        for name in USED.findall(path.read_text())
    }
    assert used == set(vault)
    assert not any(vault.values())
