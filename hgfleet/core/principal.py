"""Principal: a person whose name and groups are established.

Apart from `names`, because dataclasses takes longer to import than a whole key lookup.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Principal:
    """A person the service knows, with the groups of the directory."""

    name: str
    groups: frozenset[str] = frozenset()
