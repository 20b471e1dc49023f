"""Repositories of Mercurial, opened for an upgrade."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any, Final

from mercurial import ui as ui_module
from mercurial.repo import creation, factory

from hgfleet.hg import repository_settings

if TYPE_CHECKING:
    from pathlib import Path

LOCK_WAIT_SECONDS: Final = 600
"""The time for which a push may keep the lock that the upgrade waits for."""


def new_ui() -> Any:
    """Return a ui with the configuration of HGRCPATH that asks no questions."""
    ui = ui_module.ui.load()
    # `hgfleet storage` begins as root.
    repository_settings.skip(ui)
    for section, name, value in (
        (b"ui", b"interactive", b"no"),
        (b"ui", b"quiet", b"yes"),
        (b"ui", b"timeout", b"%d" % LOCK_WAIT_SECONDS),
        # Paths must lead to the store that is there now, and not to a pinned store.
        (b"extensions", b"pinned_store", b"!"),
    ):
        ui.setconfig(section, name, value, b"hgfleet.storage")
    return ui


def open_repository(path: Path) -> Any:
    """Open a repository with all its changesets, including hidden changesets."""
    return factory.repository(new_ui(), os.fsencode(path)).unfiltered()


def create_repository(path: Path) -> Any:
    """Create a repository in an empty folder."""
    return factory.repository(new_ui(), os.fsencode(path), create=True).unfiltered()


def wanted() -> frozenset[str]:
    """Return the requirements of a repository created now with the configuration of HGRCPATH."""
    ui = new_ui()
    names = creation.new_repo_requirements(ui, creation.default_create_opts(ui))
    return frozenset(name.decode("ascii") for name in names)
