"""Readers before changesets: a mirror shows no push under readers older than the push.

The dynamic registry of the primary has a stamp, which each message of a push carries. A mirror
whose registry has that stamp applies the push. Otherwise it asks the source for the present stamp,
and waits for the documents unless its own registry has this stamp. Repositories that the inventory
declares have their readers from there, and do not wait.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Final, Protocol

from hgfleet.core import generation
from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.dynamic.effective import stamp_of
from hgfleet.replication.repositories.errors import MissingError, StaleReadersError

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from hgfleet.replication.protocol.settings import Settings
    from hgfleet.replication.repositories.registry_paths import RegistryPaths

NONE: Final = "none"
"""Stamp of a primary without a dynamic registry, so no repository has readers there."""

UNKNOWN: Final = ""
"""Stamp of a registry that cannot be read, or of a message that names no stamp."""

_DIGITS: Final = 16


def stamp(content: bytes | None) -> str:
    """Return the stamp of a registry's content."""
    return stamp_digits(hashlib.sha256(content).hexdigest()) if content else NONE


def stamp_digits(sha256: str) -> str:
    """Return the stamp of the content with this sha256."""
    return sha256[:_DIGITS]


def covers(here: str, needed: Iterable[str]) -> bool:
    """Decide whether the registry of a mirror has the readers of pushes, by their stamps."""
    return all(wanted == NONE or (wanted != UNKNOWN and wanted == here) for wanted in needed)


class RegistryStamp:
    """Stamp of a dynamic registry, computed again when the file changes. Safe in threads."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._last: tuple[tuple[int, ...], str] | None = None

    def read(self) -> str:
        """Return the stamp; UNKNOWN if the file cannot be read."""
        before, last = stamp_of(self._file), self._last
        if last is None or last[0] != before:
            try:
                last = before, stamp(user_repositories.read_content(self._file))
            except (RegistryError, OSError):
                return UNKNOWN
            self._last = last
        return last[1]


class Source(Protocol):
    """Requests of the gate to the primary."""

    def registry_stamp(self) -> str:
        """Return the stamp of the primary's registry; raises UnavailableError."""


class Gate:
    """The check of a mirror, before changesets become visible."""

    def __init__(self, settings: Settings, source: Source, paths: RegistryPaths) -> None:
        self._here, self._dynamic = RegistryStamp(settings.dynamic), settings.dynamic
        self._source, self._paths = source, paths

    def check(self, path: str, needed: Iterable[str] = (UNKNOWN,)) -> None:
        """Raise StaleReadersError unless the registry is at least as new as pushes that came.

        Raises MissingError while this mirror refuses the registry of the primary: no document
        brings the readers, so the repository is parked, and the mirror serves the others.

        `needed` has the stamps of the pushes. If a push has no stamp, the source is asked, so call
        this after the pushes came.
        """
        if path in self._paths.read().declared or covers(self._here.read(), needed):
            return
        there = self._source.registry_stamp()
        if covers(self._here.read(), (there,)):
            return
        if refused := generation.read_beside(self._dynamic).refused:
            raise MissingError(
                f"{path}: its readers are in a registry that this mirror refuses ({refused}); see "
                "`hgfleet replication status`"
            )
        raise StaleReadersError(
            f"{path}: the readers of repositories have changed on the primary; the push waits "
            "until the registry has arrived"
        )
