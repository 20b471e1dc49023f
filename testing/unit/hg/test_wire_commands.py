"""The table of wire commands covers Mercurial's own, each command once."""

from __future__ import annotations

from itertools import combinations

from mercurial import wireprotov1server

from hgfleet.hg import wire_commands


def test_every_command_of_core_is_listed_once() -> None:
    sets = (
        wire_commands.REPLAYABLE,
        wire_commands.STREAMING,
        wire_commands.PUSHING,
        wire_commands.CLOSED,
    )
    listed = {name.encode() for names in sets for name in names}
    assert listed == set(wireprotov1server.commands)
    assert all(names.isdisjoint(other) for names, other in combinations(sets, 2))
    assert wire_commands.OPEN.isdisjoint(wire_commands.CLOSED)
