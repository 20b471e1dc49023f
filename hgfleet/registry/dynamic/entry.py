"""Entry of a user repository in the dynamic registry: its values, and their checks. Pure.

Each SSH session imports this module, so it imports nothing slow.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import identity as identities
from hgfleet.core import names

if TYPE_CHECKING:
    from hgfleet.registry.model.registry import Read

MAX_DESCRIPTION: Final = 200
"""Characters, as in registry.yml."""

TIME: Final = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")


@dataclass(frozen=True, slots=True)
class Entry:
    """Entry of a repository in the dynamic registry; None is "inherited"."""

    owner: str
    description: str = ""
    created: str = ""
    read: Read | None = None
    push: tuple[str, ...] | None = None
    forked_from: str | None = None
    archived: str | None = None
    publishing: bool | None = None
    moved_from: str | None = None
    """The path at which its folder may still be, after an interrupted rename."""
    identity: str = ""
    """Identity of the repository; empty in an entry of an older release, until `registry apply`."""
    owner_id: str = ""
    """Person id of the owner; empty in an entry of an older release, until the sweep finds it."""

    def to_json(self) -> dict[str, Any]:
        """Return the entry as the file has it."""
        return {
            "owner": self.owner,
            "description": self.description,
            "created": self.created,
            "read": list(self.read) if isinstance(self.read, tuple) else self.read,
            "push": None if self.push is None else list(self.push),
            "forked_from": self.forked_from,
            "archived": self.archived,
            "publishing": self.publishing,
            "moved_from": self.moved_from,
            "identity": self.identity or None,
            "owner_id": self.owner_id or None,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Entry:
        """Check every value; raises ValueError, TypeError or KeyError with the wrong value."""
        if not isinstance(value, Mapping):
            raise TypeError(f"got {value!r}, expected a mapping")
        read, push = value["read"], value["push"]
        entry = cls(
            owner=_person(value["owner"]),
            description=value["description"],
            created=_time("created", value["created"]),
            read=read if read in (None, "public") else _groups("read", read),
            push=None if push is None else _groups("push", push),
            forked_from=value["forked_from"],
            archived=None if value["archived"] is None else _time("archived", value["archived"]),
            # Entries of earlier releases do not have it.
            publishing=value.get("publishing"),
            moved_from=value.get("moved_from"),
            identity=value.get("identity") or "",
            owner_id=value.get("owner_id") or "",
        )
        if entry.publishing not in (None, True, False):
            raise ValueError(f"publishing: got {entry.publishing!r}, expected true or false")
        if entry.identity and not identities.is_identity(entry.identity):
            raise ValueError(f"identity: got {entry.identity!r}, expected 32 hexadecimal digits")
        if entry.owner_id and not names.is_person_id(entry.owner_id):
            raise ValueError(f"owner_id: got {entry.owner_id!r}, expected an entryUUID")
        if problem := description_problem(entry.description):
            raise ValueError(f"description: expected {problem}")
        for name in ("forked_from", "moved_from"):
            path = getattr(entry, name)
            if path is not None and (not isinstance(path, str) or names.path_problem(path)):
                raise ValueError(f"{name}: got {path!r}, expected the path of a repository")
        return entry


def description_problem(text: object) -> str | None:
    """Return the expected form of a description, or None if it has that form; "" has it.

    It goes into an hgrc, into pages and onto terminals: no line ends, no control characters, no
    characters that change the direction of text.
    """
    # isprintable() is true of the empty text.
    is_line = isinstance(text, str) and text == text.strip() and text.isprintable()
    if is_line and len(str(text)) <= MAX_DESCRIPTION:
        return None
    return f"one line of printable text, at most {MAX_DESCRIPTION} characters"


def _person(value: object) -> str:
    if not isinstance(value, str) or not names.is_person(value):
        raise ValueError(f"owner: got {value!r}")
    return value


def _time(name: str, value: object) -> str:
    if not isinstance(value, str) or not TIME.fullmatch(value):
        raise ValueError(f"{name}: got {value!r}")
    return value


def _groups(name: str, value: object) -> tuple[str, ...]:
    # Here, a string would be taken for a list of one-letter groups.
    if not isinstance(value, list) or len(value) > 100:
        raise TypeError(f"{name}: got {value!r}, expected a list of groups")
    for group in value:
        if not isinstance(group, str) or names.group_problem(group):
            raise ValueError(f"{name}: got {group!r}, expected the name of a group")
    return tuple(value)


BAD: Final = (ValueError, TypeError, KeyError, RecursionError)


def problem_of(path: str, value: Any) -> str:
    """Return the problem of a wrong entry."""
    if problem := names.path_problem(path):
        return f"expected {problem}"
    try:
        Entry.from_json(value)
    except KeyError as error:
        return f"no {error.args[0]}"
    except BAD as error:
        return str(error)
    return "fine"


def entry_of(path: str, value: Any) -> Entry | None:
    """Return the entry of a path, or None if it is wrong."""
    if names.path_problem(path):
        return None
    try:
        return Entry.from_json(value)
    except BAD:
        return None
