"""Version of a client over HTTPS, and the bundles that it cannot apply. Pure.

hg sends its version with each request: `mercurial/proto-1.0 (Mercurial 7.2.4)`. Before 4.2 it sent
`mercurial/proto-1.0`. Over SSH a client sends no version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGENT = re.compile(r"mercurial/proto-1\.0(?: \(Mercurial ([0-9]{1,3})\.([0-9]{1,3})[^)]*\))?")

OLDEST_WITH_ZSTD_REVLOGS: Final = (5, 0)
"""The oldest hg that can read zstd in revlogs, and so a stream bundle of such a repository.

An older hg believes that it supports the entry, and fails.
"""

_ZSTD_REVLOGS: Final = b"revlog-compression-zstd"


def parse(agent: str) -> tuple[int, int] | None:
    """Return the version of hg, (0, 0) for an hg older than 4.2, None for any other program."""
    match = _AGENT.fullmatch(agent)
    if match is None:
        return None
    return (int(match[1]), int(match[2])) if match[1] else (0, 0)


def supported(lines: Sequence[bytes], agent: str) -> list[bytes]:
    """Leave out the lines of a manifest that this client would take but cannot apply."""
    version = parse(agent)
    if version is None or version >= OLDEST_WITH_ZSTD_REVLOGS:
        return list(lines)
    return [line for line in lines if _ZSTD_REVLOGS not in line]
