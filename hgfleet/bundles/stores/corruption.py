"""Findings of corrupt bundles: when each place last returned a corrupt bundle, for metrics.

    {"format": 1, "places": {"s3-1": 1795440000.1, "s3-2": 0.0, "pull bundles": 0.0}}

A run replaces a corrupt bundle at once, so neither its outcome nor a manifest shows it. But a place
that changed an object may have changed others. A place is a store, or the disk that has the pull
bundles. Times are seconds since 1970, 0 for a place without a finding.
"""

from __future__ import annotations

import fcntl
import json
from typing import TYPE_CHECKING, Final

from hgfleet.core import files

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

NAME: Final = "corrupt.json"
FORMAT: Final = 1

PULL_BUNDLES: Final = "pull bundles"
"""The place of pull bundles; the space keeps it apart from the names of stores."""


def merged(known: Mapping[str, float], found: Mapping[str, float]) -> dict[str, float]:
    """Return the last finding at each place. Pure."""
    return {
        place: max(known.get(place, 0.0), found.get(place, 0.0)) for place in {**known, **found}
    }


def note(folder: Path, found: Mapping[str, float]) -> None:
    """Add findings to the file, also while other runs do so. Raises OSError."""
    with files.open_folder(folder) as descriptor:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        try:
            known = parse((folder / NAME).read_bytes())
        except (FileNotFoundError, ValueError):
            known = {}
        places = merged(known, found)
        if places != known:
            data = {"format": FORMAT, "places": places}
            files.replace(folder / NAME, json.dumps(data, sort_keys=True) + "\n")


def parse(text: str | bytes) -> dict[str, float]:
    """Read the file. Raises ValueError if it is damaged."""
    try:
        data = json.loads(text)
        if data["format"] != FORMAT:
            raise ValueError(f"got the format {data['format']!r}, expected {FORMAT}")
        return {str(place): float(time) for place, time in data["places"].items()}
    except (KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"not the findings of corrupt bundles: {error!r}") from error
