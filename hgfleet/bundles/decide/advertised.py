"""Lines of a manifest that clients of a repository may have.

A manifest is a file outside of the repository. Clients get a line only if it names the identity of
the repository that answers, and if it is for the readers that the repository has now: the manifest
may belong to a former repository at the same path, and readers change before the bundle jobs run.

Processes of hg that answer clients import this module, so it imports nothing slow.
"""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import identity as identities
from hgfleet.core.errors import RegistryError
from hgfleet.registry.dynamic import effective

if TYPE_CHECKING:
    from hgfleet.registry.dynamic.effective import EffectiveRegistry

INLINE: Final = b"peer-bundle-cache://"
"""The beginning of URLs of bundles that come from this server, and are files of the repository."""

PRIVATE: Final = b"private=yes"
_IDENTITY: Final = b"identity="
_KEY: Final = re.compile(rb"/([0-9a-f]{32})/[0-9a-f]{40}\.[^/]*$")

CHOSEN: Final = "hgfleet_chosen"
"""Attribute of an answer of hg whose lines have been chosen: two extensions do."""

GONE: Final = "the registry has no such repository"
FOREIGN: Final = "a bundle of another repository"
FOR_OTHERS: Final = "a bundle for other readers than the repository has now"


def problem(line: bytes, identity: str, is_public: bool | None) -> str:
    """Return why clients of a repository may not have a line, "" if they may. Pure.

    `is_public` is None for a repository that is not in service.
    """
    url, *attributes = line.split() or [b""]
    if url.startswith(INLINE):
        return ""
    if is_public is None:
        return GONE
    named = [attribute for attribute in attributes if attribute.startswith(_IDENTITY)]
    key = _KEY.search(url)
    of_others = key is not None and key[1] != identity.encode("ascii")
    if not identity or of_others or named != [_IDENTITY + identity.encode("ascii")]:
        return FOREIGN
    # Without the object's identity the line is of the release before; only public objects keep it.
    is_private = PRIVATE in attributes
    if is_private and key is None:
        return FOREIGN
    return FOR_OTHERS if is_private == is_public else ""


def choose(
    lines: list[bytes], identity: str, is_public: bool | None
) -> tuple[list[bytes], set[str]]:
    """Return the lines that clients of a repository may have, and why others are left out. Pure."""
    problems = {line: problem(line, identity, is_public) for line in lines}
    return [line for line in lines if not problems[line]], {*problems.values()} - {""}


def choose_for(repo: Any, lines: list[bytes]) -> tuple[list[bytes], set[str]]:
    """Return what `choose` does for a repository that hg has opened, by the registry of now."""
    config = repo.ui.config
    path = (config(b"hgfleet", b"path") or b"").decode("utf-8", "replace")
    files = (os.fsdecode(config(b"hgfleet", name)) for name in (b"compiled", b"dynamic"))
    own = identities.of(os.fsdecode(repo.root))
    return choose(lines, own, readers(effective.of(*files), path, own))


def readers(registry: EffectiveRegistry, path: str, identity: str) -> bool | None:
    """Return whether the registry has a repository in service, and whether it is public.

    None for a repository out of service, and while the registry cannot be read: clients then clone
    from the server.
    """
    try:
        served = registry.required().registry.repositories.get(path)
    except RegistryError:
        return None
    return served.is_public if served is not None and served.identity == identity else None
