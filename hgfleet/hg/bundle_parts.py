"""Parts of bundle2 that this service accepts, by the direction that they come from. Pure.

Core (mercurial/bundle2_part_handlers.py, 7.2) has a single table of handlers for all directions: a
server applies parts of a push that core's own clients only put into files and answers. A part that
is in no set here is refused in every direction, so a part that a later Mercurial adds stays refused
until it is listed; a test compares the sets with core's table.
"""

from __future__ import annotations

from enum import Enum
from typing import TYPE_CHECKING, Final

from hgfleet.core.text import shown

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping


class Direction(Enum):
    """Where a part comes from."""

    PUSH = "a push"
    """A client sends it with `unbundle`."""
    TAKEN = "a bundle or an answer"
    """A process of this service pulls it, or reads it from a file."""
    INTERRUPTION = "an interruption"
    """A part inside the data of another part: the sender failed in the middle."""


_NONE: Final[frozenset[str]] = frozenset()

PUSHED: Final[Mapping[str, frozenset[str]]] = {
    "bookmarks": _NONE,
    "changegroup": frozenset({"version", "nbchanges"}),
    "check:bookmarks": _NONE,
    "check:heads": _NONE,
    "check:phases": _NONE,
    "check:updated-heads": _NONE,
    "obsmarkers": _NONE,
    "phase-heads": _NONE,
    "pushkey": frozenset({"namespace", "key", "old", "new"}),
    # Its parameters are variables: see `wire_arguments.VARIABLES`.
    "pushvars": _NONE,
    "replycaps": _NONE,
}
"""Parts of a push, with their parameters. All their changes are in the transaction."""

CLOSED_PARAMETERS: Final[Mapping[str, frozenset[str]]] = {
    "changegroup": frozenset(
        {
            # Core writes `.hg/requires` of an empty repository for it, outside of the transaction.
            "treemanifest",
            # The part `phase-heads` is for the phases of changesets, and policies and the log know
            # it.
            "targetphase",
            "exp-sidedata",
            "exp-wanted-sidedata",
        }
    ),
}
"""Parameters of listed parts that core knows and that pushes do not have."""

ANSWERED: Final = frozenset(
    {
        "error:abort",
        "error:pushkey",
        "error:pushraced",
        "error:unsupportedcontent",
        "listkeys",
        "output",
        "reply:changegroup",
        "reply:obsmarkers",
        "reply:pushkey",
    }
)
"""Parts that only occur in answers to pushes and pulls."""

RAW: Final = frozenset({"stream2", "stream3-exp"})
"""Files of a store as they are.

Core writes them outside of the transaction. So a copy without a push log can begin with them, but a
registered repository cannot.
"""

TAKEN: Final = ANSWERED | RAW | {"bookmarks", "changegroup", "obsmarkers", "phase-heads"}
"""Parts that a process of this service accepts when it pulls or unbundles."""

REBUILT: Final = TAKEN - ANSWERED - RAW
"""Parts of a clone bundle that a mirror's repository is made from."""

INTERRUPTING: Final = frozenset({"error:abort"})

CLOSED: Final = frozenset(
    {
        # Core takes both for caches. It takes the first without any check, outside of the
        # transaction, although it decides which tags the repository has.
        "hgtagsfnodes",
        "cache:rev-branch-cache",
        # Core fetches the URL in it.
        "remote-changegroup",
    }
)
"""Parts that nothing here accepts. Optional parts are skipped, unless they are part of a push."""

VERSIONS: Final = frozenset({"01", "02", "03"})
"""Versions of changegroups in a push. Version 04 is for stores of another format."""

_WHY: Final[Mapping[str, str]] = {
    "stream2": "raw files of a store would bypass policies, quota and push log",
    "stream3-exp": "raw files of a store would bypass policies, quota and push log",
    "hgtagsfnodes": "the server finds the tags of a repository itself",
    "cache:rev-branch-cache": "the server makes its caches itself",
    "remote-changegroup": "the server fetches nothing for a client",
}


_MAX_NAME: Final = 48


class Answer(Enum):
    """How a part is treated."""

    TAKE = "take"
    SKIP = "skip"
    REFUSE = "refuse"


def answer(
    direction: Direction, part: str, *, mandatory: bool, known: bool, logged: bool
) -> Answer:
    """Decide about a part by its name.

    `mandatory` parts may not be skipped. `known` says whether core has a handler: if it has none,
    core itself skips the part or refuses it. `logged` repositories have a push log.
    """
    if direction is Direction.INTERRUPTION:
        return Answer.TAKE if part in INTERRUPTING else Answer.REFUSE
    if direction is Direction.PUSH:
        if part in PUSHED or not (known or part in CLOSED):
            return Answer.TAKE
        return Answer.REFUSE
    if part in RAW and logged:
        return Answer.REFUSE
    if part in TAKEN or not known:
        return Answer.TAKE
    return Answer.REFUSE if mandatory else Answer.SKIP


def name(text: str) -> str:
    """Return the beginning of a client's name for something, safe to print and short enough."""
    return shown(text)[:_MAX_NAME]


def refusal(direction: Direction, part: str) -> str:
    """Return the sentence for a part that is refused."""
    if direction is Direction.TAKEN:
        if part in RAW:
            return (
                "raw files of a store cannot be unbundled into a registered repository: they "
                "bypass its push log; make the bundle with --type zstd-v2, or use hg pull; "
                "nothing was changed"
            )
        return f"this service takes no part {name(part)} of {direction.value}: nothing was changed"
    why = _WHY.get(part, "this service does not take it from clients")
    return (
        f"a push may not have the part {name(part)}: {why}; nothing was changed, use an unchanged "
        "hg push"
    )


def parameters_refusal(
    part: str, parameters: Collection[str], known: Collection[str]
) -> str | None:
    """Return the sentence for parameters of a push's part that are refused, or None.

    Core itself decides about parameters that it does not know.
    """
    closed = sorted((set(parameters) & set(known)) - PUSHED.get(part, _NONE))
    if not closed:
        return None
    return (
        f"a push may not have the parameter {name(closed[0])} of the part {name(part)}; nothing "
        "was changed, use an unchanged hg push"
    )


def version_refusal(version: str, offered: Collection[str]) -> str | None:
    """Return the sentence for a changegroup of a version that was not offered, or None."""
    allowed = sorted(VERSIONS & set(offered))
    if version in allowed:
        return None
    return (
        f"a push may not have the version {name(version)} of the part changegroup, expected "
        f"{', '.join(allowed)}; nothing was changed, use an unchanged hg push"
    )
