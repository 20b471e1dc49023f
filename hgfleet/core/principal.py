"""Principal: an authenticated person, the things the person owns, and the operator of a command.

Separate from `names`, because importing dataclasses takes longer than a whole key lookup.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hgfleet.core.person_id import is_older

if TYPE_CHECKING:
    from typing import Protocol

    class Owned(Protocol):
        """A repository, entry, token or note with its owner; `owner_id` is "" if unknown."""

        @property
        def owner(self) -> str | None:
            """The name of the owner; None for a repository of the inventory."""

        @property
        def owner_id(self) -> str:
            """The person id of the owner; "" where a release before wrote it."""

        @property
        def created(self) -> str:
            """When the owner made it, RFC 3339 in UTC; "" if not known."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A person the service knows, with the groups of the directory."""

    name: str
    groups: frozenset[str] = frozenset()
    person_id: str = ""
    """The entryUUID of the person's entry; "" if the directory does not give it."""

    def owns(self, owned: Owned) -> bool:
        """Whether this person is the owner, and not another person with the owner's name.

        A name may be given to another person later, a person id never. If a thing has no person id,
        the name decides, unless the thing is older than the person's entry in the directory: a
        former person of the name made it then, until an operator binds it to this person (`hgfleet
        owners`).
        """
        if owned.owner != self.name:
            return False
        if owned.owner_id:
            return owned.owner_id == self.person_id
        return not is_older(owned.created, self.person_id)


def operator() -> str:
    """Return the name of the person who runs a command as root, for logs."""
    return os.environ.get("SUDO_USER") or "root"
