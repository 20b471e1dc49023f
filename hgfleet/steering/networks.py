"""Networks of regions: a client is in the region of the longest network around its address.

A table has tens of thousands of networks, most of them published by cloud providers, and each
process that answers a clone looks up a single address. So the nested networks are flattened once
into intervals that do not overlap, and a lookup is a bisection.
"""

from __future__ import annotations

import ipaddress
from bisect import bisect_right
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Address = ipaddress.IPv4Address | ipaddress.IPv6Address
    Interval = tuple[int, str | None]
    """An address as a number, and the region from that address up to the next interval."""

VERSIONS: Final = (4, 6)


def flatten(networks: Iterable[tuple[Network, str]], version: int) -> list[Interval]:
    """Turn nested networks of one IP version into intervals, in the order of addresses.

    Inside of an inner network its own region counts (longest prefix match). If a network is named
    twice, the last region counts.
    """
    latest = {network: region for network, region in networks if network.version == version}
    # Sorted like this, an outer network comes before the networks inside of it. `open_` is the
    # stack of networks around the current address. Each network first closes those that end before
    # it, and after each of these the region of the network around it continues.
    ordered = sorted(latest, key=lambda n: (int(n.network_address), n.prefixlen))
    result: list[Interval] = []
    open_: list[tuple[int, str]] = []  # end (exclusive) and region

    def close(up_to: int | None) -> None:
        while open_ and (up_to is None or open_[-1][0] <= up_to):
            end, _ = open_.pop()
            _append(result, end, open_[-1][1] if open_ else None)

    for network in ordered:
        start = int(network.network_address)
        close(start)
        _append(result, start, latest[network])
        open_.append((start + network.num_addresses, latest[network]))
    close(None)
    return result


def _append(intervals: list[Interval], start: int, region: str | None) -> None:
    """Add an interval, unless it is empty or has the region of the interval before."""
    if intervals and intervals[-1][0] == start:
        intervals.pop()
    if (intervals[-1][1] if intervals else None) != region:
        intervals.append((start, region))


class Networks:
    """A table of networks and their regions."""

    def __init__(self, networks: Iterable[tuple[Network, str]]) -> None:
        """Build the table; see `flatten`."""
        known = list(networks)
        self.intervals = {version: flatten(known, version) for version in VERSIONS}
        self._starts = {
            v: [start for start, _ in intervals] for v, intervals in self.intervals.items()
        }

    def region(self, address: str) -> str | None:
        """Return the region of an address as text; None if unknown, or for any other text."""
        parsed = parse_address(address)
        if parsed is None:
            return None
        index = bisect_right(self._starts[parsed.version], int(parsed)) - 1
        return self.intervals[parsed.version][index][1] if index >= 0 else None


def parse_address(text: str) -> Address | None:
    """Parse the address of a client; None for any other text."""
    try:
        parsed = ipaddress.ip_address(text.partition("%")[0])
    except ValueError:
        return None
    if isinstance(parsed, ipaddress.IPv6Address) and parsed.ipv4_mapped is not None:
        # A socket for both versions shows an IPv4 client like this.
        return parsed.ipv4_mapped
    return parsed


def parse(pairs: Sequence[tuple[str, str]]) -> list[tuple[Network, str]]:
    """Parse networks such as 192.0.2.0/24. Raises ValueError that names the wrong text."""
    return [(ipaddress.ip_network(network, strict=True), region) for network, region in pairs]
