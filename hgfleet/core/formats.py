"""Formats of the state that outlives a release: the format it writes, and all that it reads.

The build writes them to `formats.json` of the release (`docker/release/assemble.sh`), and
`./deploy` refuses a release from which there is no way back (`controller/deploy/formats.py`). A new
format takes two releases: the first reads both formats and still writes the old format, the second
writes the new format. Caches are not listed: a release that cannot read a cache rebuilds it.
"""

from __future__ import annotations

import json
from typing import Final, TypedDict


class Format(TypedDict):
    """The number of the format that is written, and all that are read."""

    writes: int
    reads: list[int]


FORMATS: Final[dict[str, Format]] = {
    "compiled-registry": {"writes": 2, "reads": [2]},
    "dynamic-registry": {"writes": 1, "reads": [1]},
    # Of messages in the stream, which keeps them for 7 days. The release before declares no format,
    # and reads 1.
    "message-id": {"writes": 2, "reads": [1, 2]},
    "push-record": {"writes": 1, "reads": [1]},
    "tokens": {"writes": 1, "reads": [1]},
}

if __name__ == "__main__":
    print(json.dumps(FORMATS, indent=1))
