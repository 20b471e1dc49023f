"""Fences of single repositories, as sessions read them: files of a folder, named by identity.

The relay makes a fence if the log of a repository differs from the mirrors' log
(`hgfleet/replication/terms/repository_fences.py`). The first line of the file is the sentence for
people.

SSH sessions import this module, so it does without pathlib.
"""

from __future__ import annotations

import os
from typing import Final

MOST: Final = 4096
"""Bytes of a file that are read."""

GENERAL: Final = (
    "operators have to decide about its last pushes first, which mirrors have and this host does "
    "not; operators: `hgfleet replication fences`"
)
"""The sentence if the file has none."""


def is_any(folder: str) -> bool:
    """Whether a host has a fenced repository; an unreadable folder may hold a fence."""
    try:
        with os.scandir(folder) as entries:
            return any(True for _ in entries)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        return True


def refusal(folder: str, identity: str) -> str | None:
    """Return why a repository takes no pushes, None if it takes them.

    A file that cannot be read refuses too.
    """
    if not identity:
        return None
    try:
        with open(os.path.join(folder, identity), "rb") as file:  # noqa: PTH118, PTH123
            text = file.read(MOST).decode("utf-8", "replace")
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError:
        return GENERAL
    return text.partition("\n")[0].strip() or GENERAL
