"""Catalog of the policies: the classes by the names that the registry uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.policies.access_rules import ClosedTree
from hgfleet.policies.content import (
    FileSize,
    NoCaseCollisions,
    NoSubrepositories,
    NoSymlinks,
    Paths,
)
from hgfleet.policies.history import Author, CommitMessage, NoMerges, SingleHead

if TYPE_CHECKING:
    from hgfleet.policies.base import Policy

POLICIES: Final[dict[str, type[Policy]]] = {
    policy.name: policy
    for policy in (
        SingleHead,
        NoMerges,
        CommitMessage,
        Author,
        FileSize,
        Paths,
        NoCaseCollisions,
        NoSymlinks,
        NoSubrepositories,
        ClosedTree,
    )
}
"""All policies by name, in the order in which they are evaluated."""
