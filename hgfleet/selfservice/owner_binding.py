"""Bind repositories and former paths to people: entries of older releases only name their owners.

The timer of the tokens (`hgfleet tokens sweep`) runs each minute on the primary, and asks the
directory about the owners of entries and notes without a person id:

==============================  ==============================================================
the directory says of an owner  the entry
==============================  ==============================================================
enabled or disabled             gets the person id, unless it is older than the person's entry:
                                then it stays as it is, and the operators see it in the log
missing, unclear, nothing       stays as it is, until a later run
==============================  ==============================================================

Until then the name decides, unless the entry is older than the person's: no user owns such an
entry (`Principal.owns`). `hgfleet owners` shows the others, and binds them by hand.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from hgfleet.auth.token_sweep import ask_about
from hgfleet.core import logfmt, person_id
from hgfleet.core.errors import HgfleetError
from hgfleet.directory.person_state import MISSING
from hgfleet.registry.dynamic import dynamic_update, user_repositories

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hgfleet.directory.person_state import PersonState
    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.registry.dynamic.renames import Rename
    from hgfleet.registry.dynamic.user_repositories import Dynamic

MOST_AT_A_TIME: Final = 200
"""Entries that a single change of the file binds; other changes wait for it."""

OLDER: Final = (
    "{count} repositories are older than the entries of their owners in the directory, so no user "
    "owns them: `hgfleet owners` lists them, `hgfleet owners bind NAME` binds them"
)

TODAYS: Final = "today's"
UNBOUND: Final = "not bound yet"
ANOTHER: Final = "another person than today's"
ABSENT: Final = "no user has the name today"
UNKNOWN: Final = "not known: the directory did not answer, or gives no entryUUID"


@dataclass(frozen=True, slots=True)
class Bound:
    """Person ids by path of an entry, and by former path of a note; `older` stay as they are."""

    entries: Mapping[str, str]
    notes: Mapping[str, str]
    older: tuple[str, ...] = ()


def state_of(owner_id: str, person: PersonState | None) -> str:
    """Return how an owner relates to the person of today with that name. Pure."""
    if person is not None and person.state == MISSING:
        return ABSENT
    if person is None or not person.person_id:
        return UNKNOWN
    if not owner_id:
        return UNBOUND
    return TODAYS if owner_id == person.person_id else ANOTHER


def unbound(dynamic: Dynamic) -> set[str]:
    """Return the owners of entries and notes without a person id."""
    entries, notes = _entries(dynamic), _notes(dynamic)
    return {entry.owner for _, entry in entries} | {note.owner for _, note in notes}


def to_bind(dynamic: Dynamic, people: Mapping[str, PersonState], now: float) -> Bound:
    """Return the person ids of owners whose identity is certain. Pure."""
    entries, notes, older = {}, {}, []
    for path, entry in _entries(dynamic):
        if own := _id_of(entry.owner, people):
            if person_id.is_older(entry.created, own, now):
                older.append(path)
            else:
                entries[path] = own
    for old, note in _notes(dynamic):
        if (own := _id_of(note.owner, people)) and not person_id.is_older(note.since, own, now):
            notes[old] = own
    return Bound(entries, notes, tuple(older))


def apply(entries: dynamic_update.Update, bound: Bound) -> None:
    """Write the person ids."""
    for path, own in bound.entries.items():
        entries[path] = replace(entries[path], owner_id=own)
    for old, own in bound.notes.items():
        entries.note_owner(old, own)


def _id_of(owner: str, people: Mapping[str, PersonState]) -> str:
    return people[owner].person_id if owner in people else ""


def _entries(dynamic: Dynamic) -> Iterator[tuple[str, Entry]]:
    for path, value in dynamic.raw.items():
        # Nearly all entries of a large site are bound, and those are not parsed.
        if isinstance(value, dict) and not value.get("owner_id"):
            entry = dynamic.repositories.get(path)
            if entry is not None:
                yield path, entry


def _notes(dynamic: Dynamic) -> Iterator[tuple[str, Rename]]:
    for old, note in dynamic.renamed.items():
        if not note.owner_id:
            yield old, note


@dataclass
class Binder:
    """Binds owners again and again."""

    path: str
    ask: Callable[[str], PersonState]
    may_change: Callable[[], None]
    """Raises TemporaryError where another host is the primary."""
    log: logfmt.Log
    _problem: str = ""

    def poll(self) -> None:
        """Bind owners once.

        A problem is logged when it differs from the problem of the last time.
        """
        try:
            problem = self._poll()
        except HgfleetError as error:
            problem = str(error)
        if problem != self._problem:
            self.log(logfmt.line("owner-binding", problem=problem or None))
            self._problem = problem

    def _poll(self) -> str:
        self.may_change()
        people, problem = ask_about(unbound(user_repositories.load(self.path)), self.ask)
        if not any(person.person_id for person in people.values()):
            return problem
        while True:
            with dynamic_update.update(self.path) as entries:
                bound = to_bind(entries.dynamic, people, time.time())
                part = dict(list(bound.entries.items())[:MOST_AT_A_TIME])
                apply(entries, replace(bound, entries=part))
            if part or bound.notes:
                self.log(logfmt.line("owner-binding", bound=len(part), notes=len(bound.notes)))
            if len(part) == len(bound.entries):
                return problem or (OLDER.format(count=len(bound.older)) if bound.older else "")
