"""A file of user repositories, for tests of its reading and writing."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry

if TYPE_CHECKING:
    from pathlib import Path

BOB = Entry("bob", "Bob's", "2026-11-21T00:00:00Z")


def written(file: Path, **repositories: Entry) -> Path:
    """The paths have a slash, so they are given with a double underscore."""
    with dynamic_update.update(file) as entries:
        for path, entry in repositories.items():
            entries[path.replace("__", "/")] = entry
    return file
