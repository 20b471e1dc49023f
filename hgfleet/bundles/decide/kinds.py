"""The kinds of clone bundles. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of bundle.

    `hg_type` is the argument of `hg bundle --type`, `label` the part of the key that names it.
    """

    name: str
    hg_type: str
    label: str


KINDS: Final = {
    kind.name: kind
    for kind in (
        # A copy of the store as it is: fastest for client and server, but larger. It has the
        # compression of the store's own revlogs. `zstd-v2;stream=v2` would be accepted by hg 7.2
        # and silently write the same uncompressed file.
        Kind("stream", "none-v2;stream=v2", "stream-v2"),
        Kind("zstd", "zstd-v2", "zstd-v2"),
        # For clients built without zstd; slower to make and to apply than either of the others.
        Kind("gzip", "gzip-v2", "gzip-v2"),
    )
}
