"""Permissions to read and to push: pure decisions over a registry entry and a principal.

The SSH shell, the hook inside hg and the web workers all decide here, so the decision and its
refusal are the same everywhere.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core.text import alternatives

if TYPE_CHECKING:
    from hgfleet.core.principal import Principal
    from hgfleet.registry.model.registry import Registry, Repository


def owns(repository: Repository, principal: Principal | None) -> bool:
    """Whether the person created the repository (never true for the inventory's repositories)."""
    return principal is not None and principal.owns(repository)


def owner_text(repository: Repository, principal: Principal) -> str | None:
    """Return the owner for a sentence to the person; None for a repository of the inventory."""
    if repository.owner == principal.name and not principal.owns(repository):
        return f"another person of the name {repository.owner}"
    return repository.owner


def may_read(repository: Repository, principal: Principal | None) -> bool:
    """Whether the person (None: an anonymous client, over HTTPS) may read the repository."""
    if repository.read == "public" or owns(repository, principal):
        return True
    return principal is not None and not principal.groups.isdisjoint(repository.read)


def renamed(registry: Registry, path: str, principal: Principal | None) -> str | None:
    """Return the new path of a repository that had this path, if the person may read it there."""
    if path in registry.repositories:
        return None
    repository = registry.repositories.get(registry.renamed.get(path, ""))
    if repository is None or not may_read(repository, principal):
        return None
    return repository.path


def may_push(repository: Repository, principal: Principal) -> bool:
    """Whether the person may push now. Pushing needs the right to read, too."""
    return repository.read_only is None and would_push(repository, principal)


def would_push(repository: Repository, principal: Principal) -> bool:
    """Whether the person may push when the repository is not read-only for the moment."""
    if owns(repository, principal):
        return True
    return may_read(repository, principal) and not principal.groups.isdisjoint(repository.push)


def push_refusal(repository: Repository, principal: Principal) -> str:
    """Return the refusal of a push: the people who may, and the way out."""
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
        who = f"{owner_text(repository, principal)}, who owns it"
        is_former = repository.owner == principal.name
        helper = "an operator to give it to you" if is_former else f"{repository.owner} to push"
        if repository.push:
            who += f", and members of {alternatives(repository.push)}"
            helper = "one of them to push"
        return f"{start} only {who}, may; ask {helper}, or push to a fork of your own"
    if not repository.push:
        return f"{start} it is read-only; an operator can name groups for it in the registry"
    return (
        f"{start} members of {alternatives(repository.push)} may; ask one of them to push, or an "
        "operator to add you"
    )
