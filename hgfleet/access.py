"""Who may read and who may push: pure decisions over a registry entry and a person.

Everything that asks (the SSH shell, the hook inside hg, the web workers) asks here, so the answer
and its words are the same everywhere.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.registry import Repository


@dataclass(frozen=True, slots=True)
class Principal:
    """A person the service knows, with the groups of the directory."""

    name: str
    groups: frozenset[str] = frozenset()


def may_read(repository: Repository, principal: Principal | None) -> bool:
    """Whether the person (None: somebody unknown, over HTTPS) may read the repository."""
    if repository.read == "public":
        return True
    return principal is not None and not principal.groups.isdisjoint(repository.read)


def may_push(repository: Repository, principal: Principal) -> bool:
    """Whether the person may push. Who may not read may not push either."""
    return may_read(repository, principal) and not principal.groups.isdisjoint(repository.push)


def push_refusal(repository: Repository, principal: Principal) -> str:
    """One sentence for a person who may not push: who may, and what to do about it."""
    if repository.read != "public" and not may_read(repository, principal):
        return (
            f"{principal.name} may not push to {repository.path}: only members of "
            f"{names(repository.read)} may read it; ask an operator to add you"
        )
    return push_refusal_of(repository.path, repository.push, principal.name)


def push_refusal_of(path: str, groups: Sequence[str], name: str) -> str:
    """The words of `push_refusal` for callers that have no registry entry at hand."""
    if not groups:
        return (
            f"{name} may not push to {path}: nobody may, it is read-only; "
            "an operator can name groups for it in the registry"
        )
    return (
        f"{name} may not push to {path}: members of {names(groups)} may; "
        "ask one of them to push, or an operator to add you"
    )


def names(values: Sequence[str]) -> str:
    """Join names as a person would: "a", "a or b", "a, b or c"."""
    if len(values) < 2:
        return "".join(values)
    return f"{', '.join(values[:-1])} or {values[-1]}"
