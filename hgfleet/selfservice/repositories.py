"""Repositories of a person: found, described, archived, restored, configured on disk."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core.errors import AccessDeniedError
from hgfleet.hg import push_spool
from hgfleet.registry.dynamic import dynamic_update, repository_sizes, user_repositories
from hgfleet.registry.dynamic.renames import sentence
from hgfleet.registry.model import permissions
from hgfleet.registry.model.compiled import load_compiled

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.registry.model.registry import Repository
    from hgfleet.selfservice.context import Context


def find(context: Context, path: str) -> Repository:
    """Return a repository that the person may read; the same refusal for all others."""
    path = plain(path)
    repository = context.effective.repositories.get(path)
    if repository is None or not permissions.may_read(repository, context.principal):
        if new := permissions.renamed(context.effective, path, context.principal):
            raise AccessDeniedError(sentence(path, new))
        raise missing(context, path)
    return repository


def plain(path: str) -> str:
    """Remove the slashes that URLs and completion leave at the ends of a path."""
    return path.removeprefix("/").removesuffix("/")


def missing(context: Context, path: str) -> AccessDeniedError:
    """Return the answer for a missing repository, which is also the answer for a hidden one."""
    from hgfleet.selfservice.argv import quoted

    return AccessDeniedError(
        f"There is no repository {quoted(path)} here for {context.principal.name}. "
        'See "ssh hg@HOST repo list".'
    )


def configure_at(context: Context, repository: Repository, place: Path) -> None:
    """Write the configuration of a repository that is at this place."""
    from hgfleet.core.owner import Owner
    from hgfleet.registry.provision import provisioning

    target = provisioning.Target(
        root=Path(context.root),
        compiled=Path(context.registry),
        manifests=Path(context.manifests),
        hgrc=Path(context.hgrc),
        owner=Owner(os.geteuid(), os.getegid()),
    )
    provisioning.configure(repository, target, place)


def configure(context: Context, path: str, entry: Entry) -> None:
    """Update the configuration of a repository in its place to match its entry."""
    place = context.place(path)
    if (place / ".hg").is_dir():
        configure_at(context, user_repositories.effective(path, entry, context.static), place)


def environment(context: Context) -> dict[str, str]:
    """Return the environment of every hg that is started here."""
    return {
        "HGRCPATH": context.hgrc,
        "HGPLAIN": "1",
        "HGENCODING": "utf-8",
        # An unregistered repository has no groups yet; hgext/access.py only admits operators.
        "HGFLEET_USER": "operator:self-service",
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PATH": "/usr/bin:/bin",
    }


def program() -> str:
    """The hg of this release."""
    return str(Path(sys.executable).with_name("hg"))


def size(place: Path) -> int:
    """Bytes of the repository's store."""
    return repository_sizes.measured(place)


def used(context: Context) -> int:
    """Bytes of all repositories of the person, including archived repositories."""
    owned = repository_sizes.owned(context.dynamic, context.principal)
    return repository_sizes.total(Path(context.root), owned)


# --- changes by the owner -------------------------------------------------------------------


def describe(context: Context, path: str, text: str) -> None:
    """Change the description."""
    path = plain(path)
    with mine(context, path) as (entries, entry):
        entries[path] = described = replace(entry, description=text)
        configure(context, path, described)


def keep_drafts(context: Context, path: str, kept: bool) -> None:
    """Leave drafts as they are from now on, or have every push publish its changesets."""
    path = plain(path)
    with mine(context, path) as (entries, entry):
        entries[path] = changed = replace(entry, publishing=not kept)
        configure(context, path, changed)


def archive(context: Context, path: str) -> None:
    """Take a repository out of service: new sessions and requests do not find it.

    A push that is under way goes on to its end; its changesets are archived with the rest.
    """
    path = plain(path)
    with mine(context, path) as (entries, entry):
        entries[path] = replace(entry, archived=user_repositories.now())
    notify_bundle_jobs(context, path)


def restore(context: Context, path: str) -> None:
    """Bring an archived repository back."""
    path = plain(path)
    with dynamic_update.update(context.dynamic) as entries:
        entry = entries.get(path)
        if entry is None or not context.principal.owns(entry):
            raise missing(context, path)
        bring_back(context, path, entries)
    notify_bundle_jobs(context, path)


def bring_back(context: Context, path: str, entries: dynamic_update.Update) -> None:
    """Put an archived repository in service again."""
    entry = entries[path]
    if entry.archived is None:
        raise AccessDeniedError(f"{path} is not archived.")
    static = load_compiled(context.registry)
    place = context.place(path)
    if path in user_repositories.shadowed(static, entries.dynamic):
        raise AccessDeniedError(
            f"{path} cannot come back: the operators have given its place to another repository. "
            "Ask them."
        )
    if not (place / ".hg").is_dir():
        raise AccessDeniedError(f"{path} cannot come back: it has been deleted.")
    # The settings of its namespace may have changed while it was archived.
    restored = replace(entry, archived=None)
    configure_at(context, user_repositories.effective(path, restored, static), place)
    entries[path] = restored


def notify_bundle_jobs(context: Context, path: str) -> None:
    """Let bundles come or go soon; without a spool, the timer of the bundle jobs notices later."""
    with contextlib.suppress(OSError):
        push_spool.mark(str(Path(context.dynamic).parent.parent / push_spool.SPOOL.name), path)


@contextlib.contextmanager
def mine(context: Context, path: str) -> Iterator[tuple[dynamic_update.Update, Entry]]:
    """Change the entry of a repository that the person owns and that is in service."""
    repository = find(context, path)
    with dynamic_update.update(context.dynamic) as entries:
        entry = entries.get(path)
        if repository.owner is None:
            raise AccessDeniedError(
                f"{path} is declared in the inventory of this service: ask an operator."
            )
        if entry is None or not context.principal.owns(entry):
            owner = permissions.owner_text(repository, context.principal)
            raise AccessDeniedError(
                f"{path} belongs to {owner}, and only its owner may do this; an operator can give "
                "it to another person."
            )
        if entry.archived is not None:
            raise missing(context, path)
        yield entries, entry
