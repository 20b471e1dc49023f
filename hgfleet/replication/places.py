"""Repositories on a mirror's disk: where each is, and the end of its push log."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from hgfleet.core.errors import PushlogError
from hgfleet.core.names import MAX_SEGMENTS, path_problem
from hgfleet.core.owner import Owner
from hgfleet.pushlog import log_file
from hgfleet.registry import provision
from hgfleet.replication.jobs import Place

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.replication.settings import Settings


def paths(root: Path) -> Iterator[str]:
    """Yield the paths of all repositories below a folder."""
    folders = [""]
    while folders:
        above = folders.pop()
        try:
            with os.scandir(root / above) as found:
                names = [one.name for one in found if one.is_dir(follow_symlinks=False)]
        except OSError:
            continue
        if above and ".hg" in names:
            yield above
            continue
        for name in names:
            path = f"{above}/{name}" if above else name
            if path.count("/") < MAX_SEGMENTS and not path_problem(path):
                folders.append(path)


def find(root: Path) -> dict[str, Place]:
    """Return the repositories with a push log by its identity.

    A log that cannot be read is left out: the job of its repository names the problem.
    """
    found = {}
    for path in paths(root):
        store = root / path / ".hg/store"
        try:
            tip = log_file.tip(store / log_file.NAME)
        except (OSError, PushlogError):
            continue
        if tip.id:
            found[tip.repository] = Place(path, tip, (store / "journal").exists())
    return found


def target(settings: Settings) -> provision.Target:
    """Return where this process provisions repositories, as their owner."""
    return provision.Target(
        root=settings.repositories,
        compiled=settings.compiled,
        manifests=settings.manifests,
        pull_bundles=settings.pull_bundles,
        hgrc=settings.hgrc,
        dynamic=settings.dynamic,
        owner=Owner(os.geteuid(), os.getegid()),
        hg=str(settings.hg),
    )
