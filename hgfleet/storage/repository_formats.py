"""Storage formats of repositories, and whether they can be upgraded to the current format. Pure.

The current format is not listed here: `/etc/hgfleet/hgrc` decides about it (section `[format]`,
role `mercurial`). A format is a set of requirements, the names in `.hg/requires` and
`.hg/store/requires`.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Collection

SHARE_SAFE: Final = "share-safe"
"""The requirements of the store are in the store, and are exchanged together with it."""

NEEDED: Final = ("revlogv1", "store")
"""Requirements of every repository since Mercurial 1.0; older formats are not tested here."""

MEANINGS: Final = {
    "generaldelta": "deltas are taken against the best revision, not only the one before",
    "sparserevlog": "delta chains may have gaps, so they stay short",
    "revlog-compression-zstd": "compressed with zstd instead of zlib",
    "dotencode": "names with a leading dot or space are encoded",
    "fncache": "long names are hashed",
    SHARE_SAFE: "the store keeps its own list of requirements",
}
"""Requirements that this program can add, with their purpose."""

WORKING_COPY: Final = frozenset(
    {SHARE_SAFE, "dirstate-v2", "dirstate-tracked-key-v1", "exp-sparse", "shared", "relshared"}
)
"""Requirements that stay in `.hg/requires` (7.2.4: `requirements.WORKING_DIR_REQUIREMENTS`)."""

KEPT: Final = frozenset({"dirstate-v2", "dirstate-tracked-key-v1"})
"""Requirements of the working copy, which stay as they are."""


class Action(enum.Enum):
    """What an upgrade does with a repository."""

    CURRENT = "current"
    UPGRADE = "upgrade"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Decision:
    """The decision; `missing` are the requirements to add, `reasons` sentences for operators."""

    action: Action
    reasons: tuple[str, ...] = ()
    missing: tuple[str, ...] = ()


def parse(text: str) -> frozenset[str]:
    """Read a file of requirements."""
    return frozenset(text.split())


def decide(current: Collection[str], wanted: Collection[str]) -> Decision:
    """Decide for a repository with these requirements."""
    current, wanted = frozenset(current), frozenset(wanted)
    if absent := [name for name in NEEDED if name not in current]:
        return _refuse(
            f"it has no {' and no '.join(absent)}, older than all tested formats; upgrade it "
            "with `hg debugupgraderepo --run` while it is not in use"
        )
    if {"shared", "relshared"} & current:
        return _refuse("its store belongs to another repository (hg share); upgrade the other one")
    if strange := current - wanted - KEPT:
        return _refuse(
            f"it has {', '.join(sorted(strange))}, which new repositories do not have; `hg "
            "debugupgraderepo` knows whether that can be removed"
        )
    missing = tuple(sorted(wanted - current))
    if not missing:
        return Decision(Action.CURRENT, ("the same format as new repositories",))
    if unknown := [name for name in missing if name not in MEANINGS]:
        return _refuse(
            f"new repositories have {', '.join(unknown)}, and this program does not know how to "
            "add that; see section [format] of the hgrc"
        )
    return Decision(
        Action.UPGRADE, tuple(f"no {name}: {MEANINGS[name]}" for name in missing), missing
    )


def problem(wanted: Collection[str]) -> str | None:
    """Return why the format of new repositories cannot be a goal, or None."""
    if SHARE_SAFE not in wanted:
        return "new repositories are not share-safe, so a store cannot be exchanged in one step"
    return None


def _refuse(reason: str) -> Decision:
    return Decision(Action.REFUSE, (reason,))


def summary(requirements: Collection[str]) -> str:
    """Return a format in a few words, for tables."""
    zstd = "zstd" if "revlog-compression-zstd" in requirements else "zlib"
    extra = [
        short
        for name, short in (("generaldelta", "generaldelta"), ("sparserevlog", "sparse"))
        if name in requirements
    ]
    return " ".join([zstd, *extra])
