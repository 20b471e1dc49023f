"""The copy of a push that the roles replication and mercurial require."""

from __future__ import annotations

from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar

from hgfleet.hg import required_copy
from testing.unit.ansible.role_variables import ROLES, of_role, refused, value


def templar(*mirrors: str, **changes: Any) -> Templar:
    groups = {"ssh": ["hg1"], "web": ["hg1", *mirrors], "broker": ["broker1"]}
    given = {"groups": groups, **of_role("mercurial"), **of_role("replication"), **changes}
    return Templar(DataLoader(), variables=given)


def told(variables: Templar, rules: str = "with_brokers") -> str:
    return refused(variables, "replication", "replication_require", rules)


def test_without_a_word_of_the_inventory_nothing_is_required() -> None:
    variables = templar("hgweb1")
    assert value(variables, "mercurial_require_copy") == required_copy.NONE
    assert told(variables) == ""


@pytest.mark.parametrize("role", ["replication", "mercurial"])
def test_the_choices_are_those_of_the_service(role: str) -> None:
    spec = yaml.safe_load((ROLES / role / "meta/argument_specs.yml").read_text("utf-8"))
    name = {"replication": "replication_require", "mercurial": "mercurial_require_copy"}[role]
    choices = spec["argument_specs"]["main"]["options"][name]["choices"]
    assert tuple(choices) == required_copy.CHOICES


@pytest.mark.parametrize("required", ["broker", "mirror"])
def test_what_the_inventory_requires_is_for_sessions(required: str) -> None:
    variables = templar("hgweb1", replication_require=required)
    assert value(variables, "mercurial_require_copy") == required
    assert told(variables) == ""


def test_a_copy_that_no_host_can_have_is_refused() -> None:
    assert "this site has no mirror" in told(templar(replication_require="mirror"))
    assert told(templar(replication_require="broker")) == ""
    alone = templar(replication_require="broker", replication_brokers=[])
    assert "no host in the group broker" in told(alone, "without")
    assert told(templar(replication_brokers=[]), "without") == ""
