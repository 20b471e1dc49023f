"""Who may read and who may push: pure decisions over a registry entry and a person.

Everything that asks (the SSH shell, the hook inside hg, the web workers) asks here, so the answer
and its words are the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core.text import alternatives

if TYPE_CHECKING:
    from hgfleet.core.principal import Principal
    from hgfleet.registry.model import Repository


def owns(repository: Repository, principal: Principal | None) -> bool:
    """Whether it is the person's own: one that they created, not one of the inventory."""
    return principal is not None and principal.name == repository.owner


def may_read(repository: Repository, principal: Principal | None) -> bool:
    """Whether the person (None: somebody unknown, over HTTPS) may read the repository."""
    if repository.read == "public" or owns(repository, principal):
        return True
    return principal is not None and not principal.groups.isdisjoint(repository.read)


def may_push(repository: Repository, principal: Principal) -> bool:
    """Whether the person may push now. Who may not read may not push either."""
    return repository.read_only is None and would_push(repository, principal)


def would_push(repository: Repository, principal: Principal) -> bool:
    """Whether the person may push when the repository is not read-only for the moment."""
    if owns(repository, principal):
        return True
    return may_read(repository, principal) and not principal.groups.isdisjoint(repository.push)


def push_refusal(repository: Repository, principal: Principal) -> str:
    """One sentence for a person who may not push: who may, and what to do about it."""
    if repository.read_only is not None and would_push(repository, principal):
        return (
            f"{principal.name} may not push to {repository.path} now: it is read-only "
            f"({repository.read_only}); nothing was changed, push again later"
        )
    start = f"{principal.name} may not push to {repository.path}:"
    if not may_read(repository, principal):
        if not repository.read:
            return f"{start} only its owner may read it"
        return (
            f"{start} only members of {alternatives(repository.read)} may read it; ask an operator "
            "to add you"
        )
    if repository.owner is not None:
        who = f"{repository.owner}, who owns it"
        if repository.push:
            who += f", and members of {alternatives(repository.push)}"
        return f"{start} only {who}, may; ask one of them to push, or push to a fork of your own"
    if not repository.push:
        return (
            f"{start} nobody may, it is read-only; an operator can name groups for it in the "
            "registry"
        )
    return (
        f"{start} members of {alternatives(repository.push)} may; ask one of them to push, or an "
        "operator to add you"
    )
