"""The user and group that something belongs to."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Owner:
    """A user and a group of this host, by their ids."""

    uid: int
    gid: int
