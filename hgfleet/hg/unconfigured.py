"""Environment of Mercurial without any configuration: of the service, a user or a repository.

Neither hooks nor extensions run then, and the verified or restored repository has no say in it.
"""

from __future__ import annotations

import os
from typing import Final

VARIABLES: Final[dict[str, str]] = {"HGRCPATH": "", "HGPLAIN": "1", "HGRCSKIPREPO": "1"}
"""Variables that Mercurial reads, also in a process of our own."""


def environment() -> dict[str, str]:
    """Return the whole environment of another process."""
    return {
        **VARIABLES,
        "HOME": "/nonexistent",
        "LANG": "C.UTF-8",
        "PATH": os.environ.get("PATH", os.defpath),
    }
