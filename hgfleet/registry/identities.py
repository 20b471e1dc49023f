"""Identities that `registry apply` gives to the repositories of a primary. Pure but for `found`.

A repository of this release has its identity from its creation on. One of a release before gets it
here: that of its push log, where it has one, so that mirrors and messages agree about it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from hgfleet.core import identity
from hgfleet.pushlog import log_file
from hgfleet.pushlog.identities import logged

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path


class Found(NamedTuple):
    """What names the identity of a repository; each is "" where it does not."""

    registered: str = ""
    stored: str = ""
    """In the file of its store."""
    logged: str = ""
    """In the records of its push log."""


def found(place: Path, registered: str) -> Found:
    """Look at the repository at a place, or at none (I/O)."""
    return Found(registered, identity.of(place), logged(place))


def decide(
    repositories: Mapping[str, Found], make: Callable[[], str] = identity.made
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the identity of each repository by its path, and the problems by path.

    A repository with a problem has no identity here: its registry entry stays as it is.
    """
    given: dict[str, str] = {}
    problems: dict[str, str] = {}
    # The registry's are certain; a folder that was copied may have another one's.
    known = {one.registered: path for path, one in repositories.items() if one.registered}
    for path, one in sorted(repositories.items()):
        named = {name for name in one if name}
        mine = one.registered or one.stored or one.logged
        if _began_without(one) and one.logged not in known:
            mine, named = one.logged, {one.logged}
        if len(named) > 1:
            problems[path] = _disagree(one)
        elif mine and (other := known.get(mine, path)) != path:
            problems[path] = (
                f"it is a copy of {other}, whose identity it has; to make it a repository of its "
                f"own, remove {identity.FILE} and .hg/store/{log_file.NAME} from it"
            )
        else:
            given[path] = mine or make()
            known[given[path]] = path
    return given, problems


def of_mirror(repositories: Mapping[str, Found]) -> tuple[dict[str, str], dict[str, str]]:
    """Return what `decide` does, on a mirror: the registry of the primary says it.

    A folder with the log of another repository gets nothing here; the applier sets it aside.
    """
    given = {path: one.registered for path, one in repositories.items()}
    wrong = [path for path, one in repositories.items() if one.logged not in ("", one.registered)]
    return {**given, **dict.fromkeys(wrong, "")}, {}


def _began_without(one: Found) -> bool:
    """Whether a session of the release before began the push log of a repository after its upgrade.

    It made an identity of its own, under which its pushes were told of.
    """
    return bool(one.logged) and one.registered in ("", one.stored) and one.stored != one.logged


def _disagree(one: Found) -> str:
    sources = {
        "the registry": one.registered,
        identity.FILE: one.stored,
        f".hg/store/{log_file.NAME}": one.logged,
    }
    said = ", ".join(f"{name} says {value}" for name, value in sources.items() if value)
    return (
        f"it is another repository than the registered one ({said}); move the folder away and put "
        "the right one in its place, from a backup or a mirror"
    )
