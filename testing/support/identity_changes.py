"""Changes that people make on a primary, chosen by hypothesis: for models of identities."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import hypothesis.strategies as st

from testing.support.identity_world import CREATED, READS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.registry.model.registry import Read
    from testing.support.identity_world import World

    Change = tuple[str, int, int, Read]

PATHS: Final = ("a", "b", "c/d")
ASKED: Final = (None, "public", "private", "staff")
"""Readers that the maker of a fork asks for."""

_OF_ANY: Final = ("delete", "delete and make again", "give")
_OF_PEOPLE: Final = ("token", "revoke", "exchange", "bind", "withdraw")
CHANGES: Final = (
    *("create", "push", "rename", "readers", "archive", "restore", "fork", "publish"),
    # Dangerous combinations are rarely drawn at random, so these sequences are drawn as a whole.
    *("readers and push", "readers and push", "move and make again", "publish and move"),
    *(*_OF_ANY, *_OF_PEOPLE),
)
_numbers = st.integers(0, 7)


def changes(kinds: Sequence[str] = CHANGES) -> st.SearchStrategy[Change]:
    """Return a change: its kind, two numbers that choose what it is about, and readers."""
    return st.tuples(st.sampled_from(kinds), _numbers, _numbers, st.sampled_from(READS))


def carry_out(world: World, change: Change) -> None:
    """Make a change, if there is anything to change."""
    kind, number, other, read = change
    if kind in _OF_PEOPLE:
        _of_people(world, kind, number)
        return
    free = [path for path in PATHS if path not in world.folders]
    among = world.in_service()
    if kind == "create":
        among = free
    elif kind == "restore":
        among = world.archived()
    elif kind in _OF_ANY:
        among = sorted(world.folders)
    if not among or (kind in ("rename", "fork", "move and make again") and not free):
        return
    path = among[number % len(among)]
    match kind:
        case "create":
            world.create(path, read, knows_ids=other % 3 > 0)
        case "push":
            world.push(path)
        case "rename":
            world.rename(path, free[other % len(free)])
        case "fork":
            world.fork(path, free[0], ASKED[other % len(ASKED)])
        case "readers" | "readers and push":
            world.set(path, read=read)
            if kind == "readers and push":
                world.push(path)
        case "archive" | "restore":
            world.set(path, archived=CREATED if kind == "archive" else None)
        case "delete":
            world.delete(path)
        case "give":
            world.give(path)
        case "publish" | "publish and move":
            world.publish(path)
            if kind == "publish and move" and free:
                world.rename(path, free[other % len(free)])
                world.create(path, read)
        case _:
            if kind.startswith("move"):
                world.rename(path, free[other % len(free)])
            else:
                world.delete(path)
            world.create(path, read)
            world.push(path)


def _of_people(world: World, kind: str, number: int) -> None:
    match kind:
        case "token":
            world.make_token(knows_ids=number % 2 > 0)
        case "revoke" if world.tokens:
            world.revoke(sorted(world.tokens)[number % len(world.tokens)])
        case "exchange":
            world.exchange()
        case "bind":
            world.bind()
        case "withdraw":
            world.withdraw()
        case _:
            pass
