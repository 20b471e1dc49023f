"""Files that the service has in a repository: its configuration, links, identity and marks.

Each function works in the folder that a descriptor has open, with the rights of its owner.
"""

from __future__ import annotations

import difflib
import os
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from hgfleet.core import files, identity
from hgfleet.pushlog import log_file
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model import repository_hgrc
from hgfleet.registry.owned_files import OPEN_FOLDER, exists, read_link, read_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.registry.model.registry import Repository


FILE_MODE: Final = 0o640


@dataclass(slots=True)
class Changes:
    """Changes of a run: made, or with `write` unset due.

    They are counted, and `report` gets them.
    """

    write: bool
    diff: bool
    report: Callable[[str], None]
    count: int = field(default=0, init=False)

    def record(self, text: str) -> None:
        """Count and report a change."""
        self.count += 1
        self.report(text)

    def show(self, name: str, before: str, after: str) -> None:
        """Show the difference of a file, if the run shows any."""
        if self.diff:
            lines = difflib.unified_diff(
                before.splitlines(),
                after.splitlines(),
                f"{name} (now)",
                f"{name} (new)",
                lineterm="",
            )
            for line in lines:
                self.report(line)


@contextmanager
def _control(descriptor: int) -> Iterator[int]:
    control = os.open(".hg", OPEN_FOLDER, dir_fd=descriptor)
    try:
        yield control
    finally:
        os.close(control)


def mark_from_start(descriptor: int) -> None:
    """Record in a new, empty repository that its push log covers all of its history."""
    with _control(descriptor) as control:
        files.replace_at(control, log_file.FROM_START, "", mode=FILE_MODE)


def configure(
    repository: Repository,
    descriptor: int,
    links: dict[str, str | None],
    changes: Changes,
    uid: int,
    *,
    is_new: bool = False,
) -> None:
    """Write .hg/hgrc, the links by their names in .hg, and the identity, where they differ.

    A new repository counts as a single change, which its creation reports.
    """
    with _control(descriptor) as control:
        text = repository_hgrc.render(repository)
        before = read_text(control, "hgrc", uid, FILE_MODE)
        if before != text:
            if not is_new:
                changes.record(f"{repository.path}: .hg/hgrc written")
                changes.show(f"{repository.path}/.hg/hgrc", before or "", text)
            if changes.write:
                files.replace_at(control, "hgrc", text, mode=FILE_MODE)
        for name, link in links.items():
            if read_link(control, name) != link:
                if not is_new:
                    change = f"links to {link}" if link else "removed"
                    changes.record(f"{repository.path}: .hg/{name} {change}")
                if changes.write and link is None:
                    os.unlink(name, dir_fd=control)
                elif changes.write and link is not None:
                    files.replace_link_at(control, name, link)
    identify(repository.path, repository.identity, descriptor, changes, is_new=is_new)


def identify(
    path: str,
    wanted: str,
    descriptor: int,
    changes: Changes,
    *,
    is_new: bool = False,
    other: str = "",
) -> None:
    """Give a repository its identity, unless it has one; `other` is one to be replaced."""
    if not wanted or identity.of("", descriptor) not in ("", other):
        return
    if not is_new:
        changes.record(f"{path}: {identity.FILE} is {wanted}")
    if changes.write:
        store = os.open(".hg/store", OPEN_FOLDER, dir_fd=descriptor)
        try:
            files.replace_at(store, identity.NAME, identity.text(wanted), mode=FILE_MODE)
        finally:
            os.close(store)


def unmark(path: str, descriptor: int, changes: Changes) -> None:
    """Remove the mark of an unregistered repository, which a killed session left."""
    with _control(descriptor) as control:
        if exists(user_repositories.UNREGISTERED, control):
            changes.record(f"{path}: .hg/{user_repositories.UNREGISTERED} removed")
            if changes.write:
                os.unlink(user_repositories.UNREGISTERED, dir_fd=control)
