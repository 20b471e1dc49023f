"""Parked repositories: the mirror neither updates nor serves them.

The applier of the part `replication` writes their identities into its state file:

    {"role": "mirror", "caught_up": true, "unserved": ["5f2c..."]}

A parked repository may be behind for days. So this host answers 503 for it, and goes on with all
others: a problem with a repository takes no mirror out of service.
"""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Final

from hgfleet.core import identity
from hgfleet.registry.dynamic.effective import stamp_of

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.registry.dynamic.effective import Stamp

MOST_BYTES: Final = 16 * 1024 * 1024
"""Bound of the file; a repository has some 40 bytes."""


def parked_of(state: bytes) -> frozenset[str]:
    """Return the identities of the parked repositories of a state file; none if it is damaged.

    A damaged file fails the health check of this host (`health.mirror_problem`). A file of the
    release before has no identities: it names paths.
    """
    try:
        names = json.loads(state)["unserved"]
        return frozenset(name for name in names if identity.is_identity(name))
    except (ValueError, TypeError, KeyError, RecursionError):
        return frozenset()


class Parked:
    """The parked repositories of this host, read again when the file has changed. Thread-safe."""

    def __init__(self, path: Path | None) -> None:
        """Without a path, this host is no mirror and has none."""
        self._path = path
        self._lock = threading.Lock()
        self._read: tuple[Stamp, frozenset[str]] = ((), frozenset())

    def has(self, identity: str) -> bool:
        """Whether a repository is parked; without an identity it is not known to be."""
        if self._path is None or not identity:
            return False
        stamp = stamp_of(self._path)
        if stamp != self._read[0]:
            with self._lock:
                if stamp != self._read[0]:
                    self._read = stamp, self._load(self._path)
        return identity in self._read[1]

    def _load(self, path: Path) -> frozenset[str]:
        try:
            with path.open("rb") as file:
                return parked_of(file.read(MOST_BYTES))
        except OSError:
            return frozenset()
