"""Identity of a repository: 32 hexadecimal digits that outlive its path.

A repository gets its identity when it is created, keeps it through renames, and gives it up only
when it is deleted. A repository that is created again at the same path has another identity. It is
in the registry's entry, in a file of the repository's store, and in each record of its push log.

Web workers and SSH sessions read it for each request, so this module imports nothing slow.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Final

NAME: Final = "identity"
"""Name of the file with the identity, in the store of a repository."""

FILE: Final = f".hg/store/{NAME}"

LENGTH: Final = 32

_DIGITS: Final = frozenset("0123456789abcdef")


def made() -> str:
    """Make the identity of a new repository: 128 random bits."""
    return os.urandom(LENGTH // 2).hex()


def is_identity(text: object) -> bool:
    """Whether a value can be the identity of a repository."""
    return isinstance(text, str) and len(text) == LENGTH and _DIGITS.issuperset(text)


def of(place: str | os.PathLike[str], directory: int | None = None) -> str:
    """Return the identity of the repository at a place; "" if it is missing or not readable.

    With `directory`, an open folder, `place` is relative to it. A link is not followed.
    """
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        descriptor = os.open(os.path.join(place, FILE), flags, dir_fd=directory)  # noqa: PTH118
    except OSError:
        return ""
    try:
        text = os.read(descriptor, LENGTH + 2).decode("ascii", "replace").removesuffix("\n")
    except OSError:
        return ""
    finally:
        os.close(descriptor)
    return text if is_identity(text) else ""


def text(identity: str) -> str:
    """Return the content of the file; raises ValueError if it is no identity."""
    if not is_identity(identity):
        raise ValueError(f"got {identity!r:.80}, expected {LENGTH} hexadecimal digits")
    return f"{identity}\n"


def problem(place: str | os.PathLike[str], expected: str) -> str | None:
    """Return why the repository at a place is not the expected repository, or None if it is.

    The registry entry has no identity (`expected` is "") on a host that has not received the
    registry yet, or after a release before. Any repository matches such an entry.
    """
    if not expected or (actual := of(place)) == expected:
        return None
    got = f"repository {actual}" if actual else "a repository without identity"
    return f"{os.fspath(place)}: got {got}, expected {expected}; it is being brought to its place"
