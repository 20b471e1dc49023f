"""Routing of a URL's path: into a repository, to an index of repositories, or nowhere."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from hgfleet.core.names import MAX_SEGMENTS
from hgfleet.registry.model.permissions import may_read, renamed

if TYPE_CHECKING:
    from collections.abc import Callable

    from hgfleet.core.principal import Principal
    from hgfleet.registry.model.registry import Registry, Repository


@dataclass(frozen=True, slots=True)
class InRepository:
    """The path leads into a repository that may be read; `rest` is the path in it: "" or "/..."."""

    repository: Repository
    rest: str


@dataclass(frozen=True, slots=True)
class Index:
    """The path is a folder with readable repositories below it; "" is the top."""

    folder: str


def resolve(
    path: str,
    registry: Registry,
    principal: Principal | None,
    is_folder: Callable[[str, Principal | None], bool],
) -> InRepository | Index | None:
    """Decide on whole segments, for a person or (None) for the public; None is "not found".

    Nothing is normalised: a path with empty, `.` or `..` segments before the end of a repository's
    name names no repository. A repository that this person may not read is "not found", and so is a
    folder that has only such repositories: neither the answer nor its time tells that they exist.
    `is_folder` says whether a repository that the person may read lies below a folder.
    """
    if not path.startswith("/"):
        return None
    is_hidden = False
    segments = path[1:].split("/", MAX_SEGMENTS)
    for count in range(1, min(len(segments), MAX_SEGMENTS) + 1):
        name = "/".join(segments[:count])
        repository = registry.repositories.get(name)
        if repository is not None:
            if may_read(repository, principal):
                return InRepository(repository, path[1 + len(name) :])
            is_hidden = True
            break
    folder = path[1:].removesuffix("/")
    if not folder:
        return Index("") if path == "/" else None
    return Index(folder) if not is_hidden and is_folder(folder, principal) else None


def new_location(
    path: str, raw_path: str, registry: Registry, principal: Principal | None = None
) -> str | None:
    """Return where a path in a renamed repository is now, for those who may read it there.

    `raw_path` is the path as the client wrote it, with its query; the location has its rest.
    """
    segments = path[1:].split("/", MAX_SEGMENTS)
    for count in range(1, min(len(segments), MAX_SEGMENTS) + 1):
        old = "/".join(segments[:count])
        if old in registry.repositories:
            return None
        new = renamed(registry, old, principal)
        rest = raw_path.removeprefix(f"/{old}")
        if new is not None and rest != raw_path and rest[:1] in ("", "/", "?"):
            return f"/{new}{rest}" if rest.isascii() and rest.isprintable() else None
    return None


def is_canonical(raw_path: str, route: InRepository) -> bool:
    """Whether the path, as the client wrote it, spells the repository's name plainly.

    Names consist of characters that need no percent-encoding, so `%2F`, `%61` and the like in that
    part come from a probe; each repository has a single URL.
    """
    plain = "/" + route.repository.path
    return raw_path == plain or raw_path.startswith((plain + "/", plain + "?"))
