"""Principal: a person whose name and groups are established; the operator of a command.

Apart from `names`, because dataclasses takes longer to import than a whole key lookup.
"""

from __future__ import annotations

import os
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A person the service knows, with the groups of the directory."""

    name: str
    groups: frozenset[str] = frozenset()


def operator() -> str:
    """Return the name of the person who runs a command as root, for logs."""
    return os.environ.get("SUDO_USER") or "root"
