"""`hgfleet owners`: whether the owners of repositories and tokens are the people of today."""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hgfleet.auth import token_file
from hgfleet.auth.token_sweep import ask_about
from hgfleet.core import logfmt
from hgfleet.core.errors import UsageError
from hgfleet.core.paths import DYNAMIC, HGRC
from hgfleet.core.principal import operator
from hgfleet.directory import person_state
from hgfleet.directory.person_state import DISABLED, ENABLED
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.selfservice import owner_binding
from hgfleet.selfservice.owner_binding import Bound

if TYPE_CHECKING:
    import argparse
    from collections.abc import Mapping

    from hgfleet.auth.tokens import Tokens
    from hgfleet.directory.person_state import PersonState
    from hgfleet.registry.dynamic.user_repositories import Dynamic

_EPILOG: Final = """\
examples:
  hgfleet owners                       owners who are not (surely) today's people of their names
  hgfleet owners bind bob --check      show the repositories and tokens for today's bob
  hgfleet owners bind bob              bob is the same person, with a new entry in the directory
  hgfleet owners bind --all            all are the same: the directory was filled again by hand

`bind` gives all repositories and tokens of the name to the person who has the name today. Be sure
that this is the same person. `hgfleet repo give` gives a single repository. `hgfleet owners` runs
on the primary, as root.
"""


@dataclass(frozen=True, slots=True)
class Holding:
    """Numbers of the repositories, former paths and tokens of an owner."""

    repositories: int = 0
    paths: int = 0
    tokens: int = 0

    @property
    def text(self) -> str:
        """The numbers, as text for a person."""
        parts = {"repositories": self.repositories, "paths": self.paths, "tokens": self.tokens}
        return ", ".join(f"{count} {kind}" for kind, count in parts.items() if count)


def holdings(dynamic: Dynamic, tokens: Tokens) -> dict[tuple[str, str], Holding]:
    """Return the holdings by name and person id of the owner. Pure."""
    numbers: dict[tuple[str, str], Holding] = {}
    for field, owned in (
        ("repositories", dynamic.repositories.values()),
        ("paths", dynamic.renamed.values()),
        ("tokens", tokens.values()),
    ):
        for item in owned:
            key = item.owner, item.owner_id
            before = numbers.get(key, Holding())
            numbers[key] = replace(before, **{field: getattr(before, field) + 1})
    return numbers


def to_bind(
    dynamic: Dynamic, tokens: Tokens, people: Mapping[str, PersonState]
) -> tuple[Bound, dict[str, str]]:
    """Return the person ids to write: of entries and notes, and of tokens. Pure."""
    ids = {
        name: person.person_id
        for name, person in people.items()
        if person.state in (ENABLED, DISABLED) and person.person_id
    }
    entries = {p: ids[e.owner] for p, e in dynamic.repositories.items() if e.owner in ids}
    notes = {p: ids[n.owner] for p, n in dynamic.renamed.items() if n.owner in ids}
    bound = Bound(
        {p: own for p, own in entries.items() if dynamic.repositories[p].owner_id != own},
        {p: own for p, own in notes.items() if dynamic.renamed[p].owner_id != own},
    )
    return bound, {
        name: ids[token.owner]
        for name, token in tokens.items()
        if token.owner in ids and token.owner_id != ids[token.owner]
    }


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `owners` and its command."""
    parser = subparsers.add_parser(
        "owners",
        help="show whose repositories and tokens are not today's people's, and bind them",
        description="Owners of repositories and tokens, compared with the people of today.",
        epilog=_EPILOG,
    )
    parser.add_argument("--dynamic", default=DYNAMIC, metavar="FILE")
    parser.add_argument("--tokens", default=token_file.PATH, metavar="FILE")
    parser.add_argument("--hgrc", default=HGRC, metavar="FILE")
    parser.add_argument("--people", default=person_state.SOCKET, metavar="SOCKET")
    parser.add_argument("--user", default="hg", help="owner of the files (hg)")
    parser.set_defaults(run=_list)
    commands = parser.add_subparsers(metavar="COMMAND")
    bind = commands.add_parser("bind", help="bind everything of a name to the person of today")
    bind.add_argument("names", nargs="*", metavar="NAME")
    bind.add_argument("--all", action="store_true", help="for every name")
    bind.add_argument("--check", action="store_true", help="show the changes, and bind nothing")
    bind.set_defaults(run=_bind)


def _list(options: argparse.Namespace) -> int:
    from hgfleet.registry import owned_files

    owned_files.become(options.user)
    numbers = holdings(user_repositories.load(options.dynamic), token_file.load(options.tokens))
    people, problem = _people({name for name, _ in numbers}, options)
    states = {owner: owner_binding.state_of(owner[1], people.get(owner[0])) for owner in numbers}
    rows = [
        (owner, state) for owner, state in sorted(states.items()) if state != owner_binding.TODAYS
    ]
    for (name, owner_id), state in rows:
        print(f"{name}: {numbers[name, owner_id].text}; {state}{owner_id and f' ({owner_id})'}")
    print(f"owners={len(numbers)} others={len(rows)}")
    if problem:
        print(f"warning: {problem}", file=sys.stderr)
    return 0


def _people(names: set[str], options: argparse.Namespace) -> tuple[dict[str, PersonState], str]:
    return ask_about(names, lambda name: person_state.ask(name, options.people))


def _bind(options: argparse.Namespace) -> int:
    from pathlib import Path

    from hgfleet.registry import owned_files
    from hgfleet.selfservice import change_refusals

    if bool(options.names) == options.all:
        raise UsageError("got neither names nor --all, or both; expected one of them")
    change_refusals.check(Path(options.hgrc).read_text("utf-8"))
    owned_files.become(options.user)
    tokens = token_file.load(options.tokens)
    known = {name for name, _ in holdings(user_repositories.load(options.dynamic), tokens)}
    people, problem = _people(known if options.all else set(options.names), options)
    for name in options.names:
        if name not in people or not people[name].person_id:
            said = people[name].state if name in people else problem
            raise UsageError(
                f"{name}: got {said!r} from the directory, expected a person with an entryUUID; "
                "nothing was bound"
            )
    with dynamic_update.update(options.dynamic) as entries:
        bound, _ = to_bind(entries.dynamic, {}, people)
        if not options.check:
            owner_binding.apply(entries, bound)
    with token_file.update(options.tokens) as kept:
        _, of_tokens = to_bind(user_repositories.NOTHING, kept, people)
        if not options.check:
            kept.update({n: replace(kept[n], owner_id=own) for n, own in of_tokens.items()})
    verb = "would be bound" if options.check else "bound"
    for path in sorted(bound.entries):
        print(f"{path}: {verb}")
    counts = f"repositories={len(bound.entries)} paths={len(bound.notes)} tokens={len(of_tokens)}"
    print(f"{verb}: {counts}")
    if not options.check:
        log = logfmt.to_syslog("hgfleet-owners")
        names = ",".join(options.names) or "all"
        log(logfmt.line("owners", action="bind", names=names, detail=counts, by=operator()))
    if problem:
        print(f"warning: {problem}", file=sys.stderr)
    return 0
