"""Rules for new repositories: where, how many, and readable for whom. Pure decisions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.core import names
from hgfleet.core.errors import AccessDeniedError, UsageError
from hgfleet.core.text import alternatives
from hgfleet.selfservice.argv import quoted
from hgfleet.selfservice.service_address import UNKNOWN

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.core.principal import Principal
    from hgfleet.registry.dynamic.user_repositories import Dynamic
    from hgfleet.registry.model.registry import Namespace, Read, Registry, Repository


def governing(path: str, registry: Registry) -> Namespace | None:
    """The namespace whose settings apply to a path: the longest above it."""
    for above in names.parents(path):
        if above in registry.namespaces:
            return registry.namespaces[above]
    return None


def open_namespaces(principal: Principal, registry: Registry) -> Iterator[Namespace]:
    """The namespaces in which the person may create repositories."""
    for namespace in registry.namespaces.values():
        if not principal.groups.isdisjoint(namespace.create):
            yield namespace


def form(namespace: Namespace, principal: Principal) -> str:
    """The form of this person's paths in a namespace."""
    return (
        f"{namespace.path}/{principal.name}/NAME"
        if namespace.personal
        else f"{namespace.path}/NAME"
    )


def owned(
    person: Principal, namespace: Namespace, registry: Registry, entries: Dynamic
) -> list[str]:
    """The repositories of a person that count for the quota of a namespace, archived ones too."""
    return [path for path in entries.owned_by(person) if governing(path, registry) == namespace]


def check_creation(
    path: str,
    principal: Principal,
    registry: Registry,
    entries: Dynamic,
    url: str = UNKNOWN,
) -> Namespace:
    """Refuse a path for a new repository, or return the namespace that it will be in.

    `registry` is the static registry, `url` the address of the service. Raises UsageError and
    AccessDeniedError. That a hidden repository has a name cannot be concealed; the refusal does not
    reveal its kind.
    """
    if problem := names.path_problem(path):
        raise UsageError(f"{quoted(path)} cannot be a repository here. Expected: {problem}.")
    namespace = governing(path, registry)
    if namespace is None or principal.groups.isdisjoint(namespace.create):
        forms = [form(namespace, principal) for namespace in open_namespaces(principal, registry)]
        where = f"You may at {alternatives(forms)}." if forms else "An operator can open a place."
        raise AccessDeniedError(f"{principal.name} may not create repositories at {path}. {where}")
    below = path.removeprefix(f"{namespace.path}/").split("/")
    if namespace.personal and (len(below) != 2 or below[0] != principal.name):
        raise AccessDeniedError(
            f"Repositories below {namespace.path} are personal: yours are at "
            f"{form(namespace, principal)}."
        )
    own = entries.repositories.get(path)
    if own is not None and principal.owns(own):
        if own.archived is None:
            raise AccessDeniedError(
                f"You have {path} already: {url}/{path}. Choose another name for this repository."
            )
        raise AccessDeniedError(
            f'You have archived {path}; "repo restore {path}" brings it back, "repo delete '
            f'{path} {path}" frees the name.'
        )
    former = entries.renamed.get(path)
    holder = own or former
    is_former = holder is not None and holder.owner == principal.name and not principal.owns(holder)
    if is_former and namespace.personal:
        # In the person's own folder, this reveals no more than that the name is taken.
        raise AccessDeniedError(
            f"The name {path} still belongs to another person, who was {principal.name} before "
            "you: choose another name, or ask an operator to free it or to give it to you."
        )
    if is_taken(path, registry, entries) or (former and not principal.owns(former)):
        raise not_available(path)
    mine = owned(principal, namespace, registry, entries)
    if len(mine) >= namespace.quota:
        archived = sum(entries.repositories[owned_path].archived is not None for owned_path in mine)
        count = f", {archived} of them archived" if archived else ""
        way = "Delete an archived repository to free its place, or ask" if archived else "Ask"
        raise AccessDeniedError(
            f"You own {len(mine)} repositories below {namespace.path}{count}, and the limit is "
            f"{namespace.quota}. {way} an operator to raise it."
        )
    return namespace


def not_available(path: str) -> AccessDeniedError:
    """The refusal of a name that cannot be had, the same for every reason."""
    return AccessDeniedError(f"The name {path} is not available: choose another name.")


def is_taken(path: str, registry: Registry, entries: Dynamic) -> bool:
    """Whether something of the registry is at, above or below this path, in service or not."""
    if path in registry.namespaces:
        return True
    prefix = f"{path}/"
    # The keys as they stand in the file: an entry that cannot be parsed holds its name, too.
    for paths in (registry.repositories, entries.raw):
        if any(above in paths for above in (path, *names.parents(path))):
            return True
        if any(taken.startswith(prefix) for taken in paths):
            return True
    return False


def readers(asked: str | None, inherited: Read, source: Repository | None = None) -> Read | None:
    """Return the readers of a new repository; None for the readers of its namespace.

    A repository is never more public than its namespace, and a fork never more than its source.
    """
    private_source = source.read if source is not None and source.read != "public" else None
    if asked is None:
        return private_source
    if asked == "public":
        if private_source is not None:
            raise AccessDeniedError("A fork of a private repository cannot be public.")
        if inherited != "public":
            raise AccessDeniedError(
                "Repositories there cannot be public: the registry says who may read there, and "
                "only operators change it."
            )
        return "public"
    groups = () if asked == "private" else tuple(asked.split(","))
    for group in groups:
        if problem := names.group_problem(group):
            raise UsageError(f"{quoted(group)} cannot be a reader. Expected: {problem}.")
    if private_source is not None and not set(groups) <= set(private_source):
        who = f"members of {alternatives(private_source)}" if private_source else "only you"
        raise AccessDeniedError(f"A fork may not have more readers than its source: {who}.")
    return tuple(dict.fromkeys(groups))


def readers_text(read: Read, owner: str | None = None) -> str:
    """Name the readers in a sentence."""
    if read == "public":
        return "everybody"
    people = [
        *([owner] if owner else []),
        *([f"members of {alternatives(read)}"] if read else []),
    ]
    return " and ".join(people) or "nobody"


def writers_text(repository: Repository) -> str:
    """Name the people who may push in a sentence."""
    if repository.read_only is not None:
        return f"no user at the moment: {repository.read_only}"
    push = repository.push
    people = [
        *([repository.owner] if repository.owner else []),
        *([f"members of {alternatives(push)}"] if push else []),
    ]
    return " and ".join(people) or "nobody"
