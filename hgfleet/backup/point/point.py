"""Recovery point: the committed state of a repository that its backup restores to."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HostError

if TYPE_CHECKING:
    from collections.abc import Mapping

FORMAT: Final = 1


@dataclass(frozen=True, slots=True)
class Point:
    """A committed state of a repository. Files are named relative to `.hg`."""

    path: str
    time: float
    """Seconds since 1970."""
    changesets: int
    tip: str
    """Node of the last changeset; empty in an empty repository."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """Size in bytes of each file that transactions append to and that is not a revlog."""
    replaced: Mapping[str, str | None] = field(default_factory=dict)
    """Content of each file that transactions replace; None for a missing file."""
    push_id: int = 0
    push_hash: str = ""
    heads: str = ""
    """Digest of the heads after the last push (`pushlog.record.Heads`); empty without a log."""
    identity: str = ""
    """Identity of the repository; empty in a backup that an earlier release made."""

    def text(self) -> str:
        """Return the content of the file that goes into the backup."""
        return json.dumps({"format": FORMAT} | asdict(self), sort_keys=True) + "\n"


def parse(text: str | bytes) -> Point:
    """Read the content of such a file. Raises HostError."""
    try:
        data: dict[str, Any] = json.loads(text)
        if data.pop("format") != FORMAT:
            raise ValueError("another format")
        return Point(**data)
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise HostError(f"not a recovery point of format {FORMAT}: {error}") from error
