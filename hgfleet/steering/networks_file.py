"""The table of networks in a file that is searched in place.

The table of 20,000 networks takes 0.6 s to build, and each SSH session looks up a single address.
So the prober writes the flattened table into the folder of its state; a reader maps the file and
bisects it. A file that was made from other settings, or from other files of providers, is not used.

    {"format": 1, "sources": [[inode, mtime_ns, size], ...], "regions": [...], "counts": {...}}
    for IPv4, then for IPv6: first addresses (4 or 16 bytes) with the number of a region (2 bytes)
"""

from __future__ import annotations

import json
import mmap
from bisect import bisect_right
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import files
from hgfleet.steering import networks, provider_networks

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from hgfleet.steering.networks import Interval
    from hgfleet.steering.settings import Config

FORMAT: Final = 1
NAME: Final = "networks"
NOWHERE: Final = 0xFFFF
"""The number that stands for "no region"."""

MAX_HEADER: Final = 65536
_ADDRESS: Final = {4: 4, 6: 16}
_REGION: Final = 2


def build(config: Config) -> networks.Networks:
    """Build the table from the settings and the files of providers."""
    return networks.Networks([*provider_networks.load(config), *config.networks])


def write(settings: Path, config: Config) -> None:
    """Write the table of these settings into the folder of the prober's state; raises OSError."""
    sources = _sources(settings, config)
    content = dump(build(config).intervals, sources)
    if sources == _sources(settings, config):
        files.replace(config.health.with_name(NAME), content, durable=False)


def read(settings: Path, config: Config) -> Table | None:
    """Open the table of these settings; None if it is missing, outdated or in another format."""
    try:
        with config.health.with_name(NAME).open("rb") as file:
            data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        header = json.loads(data[: data.find(b"\n", 0, MAX_HEADER)])
        if header["format"] != FORMAT or header["sources"] != _sources(settings, config):
            return None
        return Table(data, header)
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _sources(settings: Path, config: Config) -> list[list[int] | None]:
    """Return inode, time and size of the files from which the table is made."""
    states: list[list[int] | None] = []
    for path in (settings, *provider_networks.paths(config)):
        try:
            status = path.stat()
            states.append([status.st_ino, status.st_mtime_ns, status.st_size])
        except OSError:
            states.append(None)
    return states


def dump(intervals: Mapping[int, Sequence[Interval]], sources: object) -> bytes:
    """Return the content of the file."""
    regions = sorted({region for some in intervals.values() for _, region in some if region})
    numbers = {region: number for number, region in enumerate(regions)}
    # The interval after the last network may begin beyond the last address of its version.
    kept = {
        version: [
            interval
            for interval in intervals[version]
            if interval[0] < 2 ** (8 * _ADDRESS[version])
        ]
        for version in networks.VERSIONS
    }
    header = {
        "format": FORMAT,
        "sources": sources,
        "regions": regions,
        "counts": {str(version): len(of_version) for version, of_version in kept.items()},
    }
    pieces = [json.dumps(header).encode("ascii"), b"\n"]
    for version, of_version in kept.items():
        for start, region in of_version:
            number = NOWHERE if region is None else numbers[region]
            pieces.append(start.to_bytes(_ADDRESS[version], "big"))
            pieces.append(number.to_bytes(_REGION, "big"))
    return b"".join(pieces)


class Table:
    """A table in a mapped file; raises ValueError, KeyError or TypeError if it is malformed."""

    def __init__(self, data: mmap.mmap | bytes, header: Mapping[str, Any]) -> None:
        self._data = data
        self._regions = [str(region) for region in header["regions"]]
        self._counts = {version: int(header["counts"][str(version)]) for version in _ADDRESS}
        self._places: dict[int, int] = {}
        place = data.find(b"\n") + 1
        for version in networks.VERSIONS:
            self._places[version] = place
            place += self._counts[version] * (_ADDRESS[version] + _REGION)
        if place != len(data):
            raise ValueError(f"got {len(data)} bytes, expected {place}")

    def region(self, address: str) -> str | None:
        """Return the region of an address as text; None if unknown, or for any other text."""
        parsed = networks.parse_address(address)
        if parsed is None:
            return None
        version = parsed.version
        size, place = _ADDRESS[version], self._places[version]

        def field(number: int, start: int, end: int) -> int:
            first = place + number * (size + _REGION)
            return int.from_bytes(self._data[first + start : first + end], "big")

        entries = range(self._counts[version])
        index = bisect_right(entries, int(parsed), key=lambda number: field(number, 0, size)) - 1
        if index < 0:
            return None
        region = field(index, size, size + _REGION)
        return None if region == NOWHERE else self._regions[region]
