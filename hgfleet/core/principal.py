"""Principal: a person who is established, and the things of that person; operator of a command.

Apart from `names`, because dataclasses takes longer to import than a whole key lookup.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hgfleet.core.person_id import is_older

if TYPE_CHECKING:
    from typing import Protocol

    class Owned(Protocol):
        """A repository, entry, token or note with its owner; `owner_id` is "" where not known."""

        @property
        def owner(self) -> str | None:
            """The name of the owner; None for a repository of the inventory."""

        @property
        def owner_id(self) -> str:
            """The person id of the owner; "" where a release before wrote it."""

        @property
        def created(self) -> str:
            """When the owner made it, RFC 3339 in UTC; "" where that is not known."""


@dataclass(frozen=True, slots=True)
class Principal:
    """A person the service knows, with the groups of the directory."""

    name: str
    groups: frozenset[str] = frozenset()
    person_id: str = ""
    """The entryUUID of the person's entry; "" where the directory does not tell it."""

    def owns(self, owned: Owned) -> bool:
        """Whether this person is the owner, and not another person with the owner's name.

        A name is given again, a person id never. Where a thing has none, the name decides, unless
        the thing is older than the person's entry in the directory: then a former person of the
        name made it, or an operator binds it (`hgfleet owners`).
        """
        if owned.owner != self.name:
            return False
        if owned.owner_id:
            return owned.owner_id == self.person_id
        return not is_older(owned.created, self.person_id)


def operator() -> str:
    """Return the name of the person who runs a command as root, for logs."""
    return os.environ.get("SUDO_USER") or "root"
