"""The tables of arguments cover Mercurial's own: a new argument is closed until it is listed."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from mercurial import pushkey, ui, wireprototypes, wireprotov1server
from mercurial.exchanges import bundle_caps
from mercurial.repo import factory

from hgfleet.hg import wire_arguments, wire_commands
from hgfleet.policies import access_rules

if TYPE_CHECKING:
    from pathlib import Path


def names(table: object) -> set[str]:
    """Return the names of a table of core."""
    return {name.decode() for name in table}  # type: ignore[attr-defined]


def test_arguments_of_open_commands_are_those_of_core() -> None:
    commands = wireprotov1server.commands
    arguments = {name: commands[name.encode()].args.decode() for name in wire_commands.OPEN}
    assert arguments == wire_arguments.ARGUMENTS


def test_arguments_of_getbundle_are_listed_or_closed() -> None:
    both = wire_arguments.GETBUNDLE | wire_arguments.GETBUNDLE_CLOSED
    assert both == names(wireprototypes.GETBUNDLE_ARGUMENTS) | wire_arguments.GETBUNDLE_CLOSED
    assert wire_arguments.GETBUNDLE.isdisjoint(wire_arguments.GETBUNDLE_CLOSED)


def test_namespaces_of_keys_are_those_of_core() -> None:
    assert names(pushkey._namespaces) == wire_arguments.READ_NAMESPACES
    assert wire_arguments.PUSHED_NAMESPACES < wire_arguments.READ_NAMESPACES


def test_variables_of_a_push_are_those_that_a_policy_reads() -> None:
    assert {access_rules.OVERRIDE} == wire_arguments.VARIABLES


def test_capabilities_of_bundle2_are_listed_or_left_out(tmp_path: Path) -> None:
    listed = wire_arguments.OFFERED | wire_arguments.NOT_OFFERED
    # An extension of another test may have changed the fixed capabilities.
    repo = factory.repository(ui.ui.load(), os.fsencode(tmp_path / "empty"), create=True)
    repo.ui.setconfig(b"experimental", b"evolution", b"all")
    offered = bundle_caps.get_repo_caps(repo, role=b"server")
    assert names(offered) | wire_arguments.NOT_OFFERED == listed
    assert wire_arguments.OFFERED.isdisjoint(wire_arguments.NOT_OFFERED)
