"""Identity of a repository that hg has opened, read from the store that hg reads everything from.

A program that starts hg for an entry of the registry names the identity of the entry in `VARIABLE`.

With `hgext/pinned_store.py`, that is the opened store itself, and not the store that is at its path
now: a folder that is moved after it was opened keeps its identity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hgfleet.core import identity

if TYPE_CHECKING:
    from typing import Final

VARIABLE: Final = "HGFLEET_IDENTITY"
"""In the environment of hg: the identity of the repository that it was started for."""

SOURCE: Final = "HGFLEET_SOURCE_IDENTITY"
"""In the environment of an hg that copies: the identity of the repository that it is to copy."""

_NAME: Final = identity.NAME.encode("ascii")


def of(repo: Any) -> str:
    """Return the identity of a local repository; "" if it has none, or an unreadable one."""
    try:
        data: bytes = repo.svfs.tryread(_NAME)
    except OSError:
        return ""
    text = data.decode("ascii", "replace").removesuffix("\n")
    return text if identity.is_identity(text) else ""
