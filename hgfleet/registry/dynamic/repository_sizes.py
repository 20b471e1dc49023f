"""Sizes of user repositories, stored with each repository, and the quota of an owner.

A size is the disk space of the store, in blocks: a repository of many small files takes far
more than their content. A push adds its bytes to the recorded size of its repository
(`hgext/owner_quota`), so no push walks through a store. A size that is missing or older than
RECOUNT_S is measured again. By then, a kill between a push and its record, or a storage upgrade, no
longer matters.
"""

from __future__ import annotations

import contextlib
import re
import time
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.core.stored_time import age
from hgfleet.hg import store_size
from hgfleet.registry.dynamic import user_repositories

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hgfleet.core.principal import Principal

NAME: Final = "hgfleet-disk-size"
"""In .hg: bytes of the store's blocks, in decimal. `hgfleet-size` of older releases had content."""

RECOUNT_S: Final = 7 * 86_400

_UNITS: Final = {"": 1, "b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


def parse_size(text: str) -> int:
    """Read a size in Mercurial's notation, such as "5 GB"; 0, no limit, for anything else."""
    match = re.fullmatch(r"\s*([0-9]+)\s*([kmgtb]?)b?\s*", text, re.IGNORECASE)
    return int(match[1]) * _UNITS[match[2].lower()] if match else 0


def mebibytes(size: int) -> str:
    """Return a number of bytes as people read it."""
    return f"{size / 2**20:,.1f} MiB"


def refusal(owner: str, used: int, growth: int, allowed: int) -> str | None:
    """Return the refusal of a change that adds so many bytes, None if it may be made.

    A change that adds nothing is never refused: it is how an owner gets below the quota.
    """
    if allowed <= 0 or growth <= 0 or used + growth <= allowed:
        return None
    return (
        f"the repositories of {owner} would have {mebibytes(used + growth)}, and the limit is "
        f"{mebibytes(allowed)} (used: {mebibytes(used)}); archive and delete a repository, or "
        "ask an operator for more; nothing was changed"
    )


def disk_refusal(size: int, free: int, reserved: int, least: int) -> str | None:
    """Return the refusal of a copy of this size, None if it leaves `least` bytes free on the disk.

    `free` are the bytes free on the disk, `reserved` the bytes that other copies will write.
    """
    if free - reserved - size >= least:
        return None
    others = f", {mebibytes(reserved)} of it for copies that are under way" if reserved else ""
    return (
        f"the disk of this service has {mebibytes(free)} left{others}, and this copy needs "
        f"{mebibytes(size)} where {mebibytes(least)} stay free; nothing was changed; tell the "
        "operators"
    )


def owned(dynamic: str | Path, owner: Principal) -> list[str]:
    """Return the repositories of an owner, including archived ones. Raises RegistryError."""
    return user_repositories.load(dynamic).owned_by(owner)


def total(root: Path, paths: Iterable[str]) -> int:
    """Return the bytes of these repositories."""
    return sum(remembered(root / path) for path in paths)


def remembered(place: Path) -> int:
    """Return the size of a repository, measured only if it is not known; 0 without a repository."""
    known = recorded(place)
    if known is None:
        known = measured(place)
        remember(place, known)
    return known


def recorded(place: Path) -> int | None:
    """Return the size if it was recorded lately."""
    note = place / ".hg" / NAME
    try:
        if age(note.stat().st_mtime, time.time()) >= RECOUNT_S:
            return None
        return int(note.read_text("ascii"))
    except (OSError, ValueError):
        return None


def remember(place: Path, size: int) -> None:
    """Record the size of a repository; a full disk is not a reason to fail."""
    with contextlib.suppress(OSError):
        files.replace(place / ".hg" / NAME, f"{size}\n")


def measured(place: Path) -> int:
    """Return the bytes of the blocks of the repository's store, from a walk through it."""
    return store_size.on_disk(f"{place}/.hg/store")
