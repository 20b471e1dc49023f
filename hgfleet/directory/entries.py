"""Entries of the directory: attributes by name, the enabled person, the groups of a person.

Key lookup imports this module twice at each login, so it imports nothing slow.
"""

from __future__ import annotations

from hgfleet.core.names import is_group, is_person, is_person_id
from hgfleet.directory.filters import DISABLED

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import Final

    Attributes = Mapping[str, Sequence[bytes]]
    Entry = tuple[str, Attributes]

ENTRY_UUID: Final = "entryUUID"
"""The person id. The server makes it with the entry (RFC 4530), and replicas have the same id. It
is an operational attribute, which a server only returns to a client that asks for it by name."""

MAX_GROUPS: Final = 200
"""Groups of a person; with the longest names they make a command of 13 KiB, which sshd takes."""


class DeniedError(Exception):
    """The directory's answer admits no single person; `reason` is for the log, not for clients.

    | reason | means |
    | --- | --- |
    | unknown | no entry was found |
    | ambiguous | several entries were found: none of them is accepted |
    | name | the person's name is missing, not single, or unsafe in a command line |
    | disabled | the person is disabled, although the filter excludes them |
    | groups | the person is in more groups than a command line can hold |

    `ssh` adds reasons of its own.
    """

    def __init__(self, reason: str, detail: str | None = None, person: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.detail = detail
        self.person = person
        self.source: str | None = None


def values(attributes: Attributes, name: str) -> tuple[bytes, ...]:
    """Return the values of an attribute; upper and lower case of its name do not matter."""
    for attribute, given in attributes.items():
        if attribute.lower() == name.lower():
            return tuple(given)
    return ()


def texts(attributes: Attributes, name: str) -> tuple[str, ...]:
    """Return the values of an attribute as text."""
    return tuple(v.decode("utf-8", "backslashreplace") for v in values(attributes, name))


def person_id_of(attributes: Attributes) -> str:
    """Return the id of the person; "" where the server does not give it."""
    ids = [text.lower() for text in texts(attributes, ENTRY_UUID)]
    return ids[0] if len(ids) == 1 and is_person_id(ids[0]) else ""


def person_of(entries: Sequence[Entry]) -> tuple[str, str, Attributes]:
    """Check that the directory returned a single enabled person; return name, DN and attributes."""
    if not entries:
        raise DeniedError("unknown")
    if len(entries) > 1:
        raise DeniedError("ambiguous", " ".join(dn for dn, _ in entries[:5]))
    dn, attributes = entries[0]
    names = [value.decode("utf-8", "replace") for value in values(attributes, "uid")]
    if len(names) != 1 or not is_person(names[0]):
        raise DeniedError("name", dn)
    # A server without the ppolicy overlay does not know the attribute of the filter.
    if DISABLED.encode() in values(attributes, "pwdAccountLockedTime"):
        raise DeniedError("disabled", person=names[0])
    return names[0], dn, attributes


def groups_of(entries: Sequence[Entry]) -> tuple[tuple[str, ...], int]:
    """Return the safe names among the person's groups, sorted, and the number of other names.

    The directory of a site is full of groups with other kinds of names. They cannot be written into
    the command, and the registry cannot name them either, so leaving them out takes no right away.
    """
    names = set()
    unsafe = 0
    for _, attributes in entries:
        group_names = [value.decode("utf-8", "replace") for value in values(attributes, "cn")]
        if len(group_names) == 1 and is_group(group_names[0]):
            names.add(group_names[0])
        else:
            unsafe += 1
    if len(names) > MAX_GROUPS:
        raise DeniedError("groups", f"{len(names)}, at most {MAX_GROUPS}")
    return tuple(sorted(names)), unsafe
