"""Commands about the person: `whoami`, `keys`, and the greeting of a bare login."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import repository_sizes
from hgfleet.registry.model import permissions
from hgfleet.selfservice import repositories, rules

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hgfleet.selfservice.command import Call
    from hgfleet.selfservice.context import Context

LISTED: Final = 20
"""Repositories that a line names; `repo list` has them all."""


def whoami(context: Context, _call: Call) -> str:
    """`whoami`: name, groups and permissions."""
    person, registry = context.principal, context.effective
    readable = [r for r in registry.repositories.values() if permissions.may_read(r, person)]
    pushable = [r.path for r in readable if permissions.may_push(r, person)]
    return (
        f"name:      {person.name}\n"
        f"groups:    {', '.join(sorted(person.groups)) or 'none'}\n"
        f"may push:  {_listed(pushable)}\n"
        f"may read:  {_listed([r.path for r in readable])}\n"
        f"create at: {_places(context)}\n"
        f"{_size(context)}"
    )


def _size(context: Context) -> str:
    """The line about the size quota, if there is a quota."""
    if not context.size_quota:
        return ""
    try:
        used = repository_sizes.mebibytes(repositories.used(context))
    except RegistryError:
        return ""
    return f"size:      {used} of {repository_sizes.mebibytes(context.size_quota)} used\n"


def _places(context: Context) -> str:
    """Where the person may create repositories, and how much of the quota is used."""
    person, registry = context.principal, context.effective
    open_ = list(rules.open_namespaces(person, registry))
    if not open_:
        return "nothing"
    try:
        entries = context.entries
    except RegistryError:
        return "nothing at the moment"
    return ", ".join(
        f"{rules.form(namespace, person)} "
        f"({len(rules.owned(person, namespace, registry, entries))} of {namespace.quota} used)"
        for namespace in open_
    )


def greeting(context: Context, call: Call) -> str:
    """Return the greeting of a login without a command."""
    return (
        f"Hello {context.principal.name}: your key works.\n\n"
        f"{whoami(context, call)}\n"
        'This is a Mercurial server without a shell. "ssh hg@HOST help" shows the commands.\n'
    )


def keys(context: Context, _call: Call) -> str:
    """`keys`: the key of this session."""
    used = context.fingerprint or "a certificate (its key is not in the directory)"
    return (
        f"This session's key:  {used}\n\n"
        "Compare it with the output of `ssh-keygen -l -f KEY.pub`. A key is looked up at each\n"
        "login, and this shell cannot see the others. Operators add and remove keys: send them\n"
        "the line in KEY.pub, never the file without .pub. Tell them at once of a key that you\n"
        "lost: it stops working when they remove it.\n"
    )


def _listed(paths: Sequence[str]) -> str:
    if not paths:
        return "nothing"
    more = f" and {len(paths) - LISTED} more" if len(paths) > LISTED else ""
    return ", ".join(paths[:LISTED]) + more
