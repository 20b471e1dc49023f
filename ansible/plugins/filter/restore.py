"""Filter for a restore: which host has the newest version of the registry, or of the tokens.

A document names its generation (term, number), which never goes back. A document of a release
before has none, and is older than any other.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def newest_document(
    documents: Mapping[str, str], here: str, is_backup: bool = True
) -> dict[str, str]:
    """Return the host with the newest document, given each host's in base64, and a problem.

    `here` is the host that gets it: it keeps its own where that is the newest. With `is_backup`,
    its own without a generation is the backup's, and any other is at least as new.
    """
    versions = {
        host: version for host in documents if (version := _version(documents[host])) is not None
    }
    if not versions:
        return {"host": here, "problem": ""}
    newest = max(generation for generation, _ in versions.values())
    best = {host: digest for host, (generation, digest) in versions.items() if generation == newest}
    if is_backup and newest == _NONE and len(best) > 1:
        best.pop(here, None)
    if len(set(best.values())) > 1:
        told = f"generation {newest[0]}.{newest[1]}" if newest != _NONE else "no generation"
        problem = f"{', '.join(sorted(best))} have different versions of it with {told}"
        return {"host": here, "problem": problem}
    return {"host": here if here in best else min(best), "problem": ""}


_NONE = (0, 0)


def _version(encoded: str) -> tuple[tuple[int, int], str] | None:
    """Return generation and digest of a document; None if it cannot be read."""
    try:
        content = base64.b64decode(encoded)
        data = json.loads(content)
    except (binascii.Error, ValueError, RecursionError):
        return None
    if not isinstance(data, dict):
        return None
    return _generation(data.get("generation")), hashlib.sha256(content).hexdigest()


def _generation(value: Any) -> tuple[int, int]:
    if not isinstance(value, dict):
        return _NONE
    pair = value.get("term"), value.get("number")
    return pair if all(type(part) is int for part in pair) else _NONE  # type: ignore[return-value]


class FilterModule:
    """What Ansible loads."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {"newest_document": newest_document}
