"""Identities that `registry apply` gives to the repositories of a primary. Pure but for `found`.

A repository of this release has its identity from its creation on. A repository of an older release
gets its identity here, from its push log if it has a log, so that mirrors and messages agree.
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
    """The witnesses of a repository's identity; each is "" if it does not name it."""

    registered: str = ""
    stored: str = ""
    """In the file of its store."""
    logged: str = ""
    """In the records of its push log."""


def found(place: Path, registered: str) -> Found:
    """Read the witnesses of the repository at a place, or of none (I/O)."""
    return Found(registered, identity.of(place), logged(place))


def decide(
    repositories: Mapping[str, Found], make: Callable[[], str] = identity.made
) -> tuple[dict[str, str], dict[str, str]]:
    """Return the identity of each repository by its path, and the problems by path.

    A repository with a problem has no identity here: its registry entry stays as it is.
    """
    # A repository has up to three witnesses of its identity: the registry, the file in its store,
    # and its push log. All that exist must agree; a repository without any gets a new identity. An
    # identity that another path has already marks a copy. A single disagreement is resolved here:
    # a session of an older release, which did not know the file, began the log with an identity
    # of its own. Messages have been sent under that identity, so it wins.
    given: dict[str, str] = {}
    problems: dict[str, str] = {}
    # Identities in the registry are certain; a copied folder may have another repository's.
    known = {
        witnesses.registered: path
        for path, witnesses in repositories.items()
        if witnesses.registered
    }
    for path, witnesses in sorted(repositories.items()):
        named = {name for name in witnesses if name}
        mine = witnesses.registered or witnesses.stored or witnesses.logged
        if _began_without(witnesses) and witnesses.logged not in known:
            mine, named = witnesses.logged, {witnesses.logged}
        if len(named) > 1:
            problems[path] = _disagree(witnesses)
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
    """Return what `decide` returns, on a mirror: the primary's registry has the identities.

    A folder with the log of another repository gets no identity here; the applier sets it aside.
    """
    given = {path: witnesses.registered for path, witnesses in repositories.items()}
    wrong = [
        path
        for path, witnesses in repositories.items()
        if witnesses.logged not in ("", witnesses.registered)
    ]
    return {**given, **dict.fromkeys(wrong, "")}, {}


def _began_without(witnesses: Found) -> bool:
    """Whether a session of an older release began the push log of a repository after its upgrade.

    Such a session made an identity of its own, which is in the messages about its pushes.
    """
    return (
        bool(witnesses.logged)
        and witnesses.registered in ("", witnesses.stored)
        and witnesses.stored != witnesses.logged
    )


def _disagree(witnesses: Found) -> str:
    sources = {
        "the registry": witnesses.registered,
        identity.FILE: witnesses.stored,
        f".hg/store/{log_file.NAME}": witnesses.logged,
    }
    said = ", ".join(f"{name} says {value}" for name, value in sources.items() if value)
    return (
        f"it is another repository than the registered one ({said}); move the folder away and put "
        "the right repository in its place, from a backup or a mirror"
    )
