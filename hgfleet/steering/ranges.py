"""Networks of cloud providers, taken out of the files that they publish.

Each provider has its own format. A file in another format, or a file that has suddenly lost most of
its networks, is refused as a whole, and the file before stays in force: a wrong table silently
sends clients across an ocean.
"""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from hgfleet.steering.networks import Network

MAX_NETWORKS: Final = 200_000
"""The most networks of a file; the largest file (Azure, all services) has some 80,000 prefixes."""

MIN_SHARE: Final = 0.5
"""The least share of the former number of networks; a provider does not halve overnight."""


class BadRangesError(Exception):
    """A file that is not in its provider's format; the message gives the reason."""


def read(
    provider: str, data: object, regions: Mapping[str, str], known: int = 0
) -> tuple[list[tuple[Network, str]], int]:
    """Take the networks out of a provider's file (parsed JSON), with the site's names of regions.

    `regions` maps the provider's regions to the site's regions; other networks are left out.
    `known` is the number of networks in the accepted file before. Returns the networks, and the
    number of all networks in the file. Raises BadRangesError.
    """
    networks: list[tuple[Network, str]] = []
    seen = 0
    try:
        for text, region in PROVIDERS[provider](data):
            seen += 1
            if seen > MAX_NETWORKS:
                raise BadRangesError(f"{provider}: more than {MAX_NETWORKS:,} networks")
            network = ipaddress.ip_network(text, strict=True)
            if region in regions:
                networks.append((network, regions[region]))
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise BadRangesError(
            f"{provider}: not the file it publishes ({type(error).__name__}: {error})"
        ) from error
    missing = set(regions.values()) - {region for _, region in networks}
    if missing:
        raise BadRangesError(f"{provider}: no network for {', '.join(sorted(missing))}")
    if seen < known * MIN_SHARE:
        raise BadRangesError(f"{provider}: {seen:,} networks, and {known:,} before")
    return networks, seen


def _aws(data: Any) -> Iterator[tuple[str, str]]:
    """ip-ranges.json of Amazon Web Services."""
    for entry in data["prefixes"]:
        yield entry["ip_prefix"], entry["region"]
    for entry in data["ipv6_prefixes"]:
        yield entry["ipv6_prefix"], entry["region"]


def _google(data: Any) -> Iterator[tuple[str, str]]:
    """cloud.json of Google Cloud."""
    for entry in data["prefixes"]:
        yield entry.get("ipv4Prefix") or entry["ipv6Prefix"], entry["scope"]


def _azure(data: Any) -> Iterator[tuple[str, str]]:
    """ServiceTags_Public.json of Azure; only the tags of whole regions."""
    for entry in data["values"]:
        properties = entry["properties"]
        if properties["region"] and entry["name"] == f"AzureCloud.{properties['region']}":
            for prefix in properties["addressPrefixes"]:
                yield prefix, properties["region"]


PROVIDERS: Final[Mapping[str, Callable[[Any], Iterator[tuple[str, str]]]]] = {
    "aws": _aws,
    "azure": _azure,
    "google": _google,
}
