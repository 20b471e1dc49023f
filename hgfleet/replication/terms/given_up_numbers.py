"""Numbers of pushes that operators gave up: another push of the number has a separate event."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.pushlog.committed import Stamp
from hgfleet.replication.terms import given_up

if TYPE_CHECKING:
    from pathlib import Path


class GivenUpNumbers:
    """The file of pushes that were given up, read again when it changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: Stamp | None = None
        self._highest: dict[str, int] = {}

    def highest(self, repository: str) -> int:
        """Return the highest number of a repository that was given up, or 0 (I/O).

        Raises HostError if the file cannot be read.
        """
        try:
            stamp = Stamp.of((self._folder / given_up.FILE).stat())
        except FileNotFoundError:
            return 0
        except OSError:
            # Reading the file, below, raises the error.
            stamp = None
        if stamp is None or stamp != self._stamp:
            pushes = given_up.load(self._folder).pushes
            self._highest = {
                identity: max((number for number, _ in known), default=0)
                for identity, known in pushes.items()
            }
            self._stamp = stamp
        return self._highest.get(repository, 0)
