"""Version of a client over HTTPS, and the bundles that it cannot apply. Pure.

hg says its version in each request: `mercurial/proto-1.0 (Mercurial 7.2.4)`, and before 4.2
`mercurial/proto-1.0`. Over SSH a client says nothing of its version.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

_AGENT = re.compile(r"mercurial/proto-1\.0(?: \(Mercurial ([0-9]{1,3})\.([0-9]{1,3})[^)]*\))?")

OLDEST_WITH_ZSTD_REVLOGS: Final = (5, 0)
"""The oldest hg that reads repositories with zstd in their revlogs, so a stream bundle of one.

An older hg takes the entry for one that it supports, and fails.
"""

_ZSTD_REVLOGS: Final = b"revlog-compression-zstd"


def parse(agent: str) -> tuple[int, int] | None:
    """Return the version of hg, (0, 0) before it said one, None for any other program."""
    found = _AGENT.fullmatch(agent)
    if found is None:
        return None
    return (int(found[1]), int(found[2])) if found[1] else (0, 0)


def supported(lines: Sequence[bytes], agent: str) -> list[bytes]:
    """Leave out the lines of a manifest that this client would take and could not apply."""
    version = parse(agent)
    if version is None or version >= OLDEST_WITH_ZSTD_REVLOGS:
        return list(lines)
    return [line for line in lines if _ZSTD_REVLOGS not in line]
