"""Order of the bundles of a repository for a client.

| the client is | it gets |
| --- | --- |
| in the region of an endpoint | that endpoint, its stream bundle first |
| in another region, or nowhere known | a CDN first, then the other endpoints, zstd first |
| anywhere | gzip after everything else, and nothing that does not answer |

A stream bundle is the fastest to apply and the largest: right where bandwidth costs nothing. A zstd
bundle has half its size: right across an ocean. A CDN has a node near every client, but not in the
client's own network, so it comes after the client's own region and before all other regions.

An endpoint with an `origin` keeps copies of the origin's objects. No manifest names them: `steer`
adds an entry with the same digest for each copy, once the prober has read the copy and found the
digest right.

Without any region or CDN the order of the manifest is kept, which is the registry's order of kinds.
"""

from __future__ import annotations

import enum
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence


@dataclass(frozen=True, slots=True)
class Endpoint:
    """A base URL of bundles: all URLs that begin with `url` and a slash.

    `region` is a region of the table of networks; a CDN is everywhere and has none. `origin` is the
    name of the endpoint whose objects this endpoint copies, to the same paths below its own `url`;
    "" if manifests name its objects.
    """

    name: str
    url: str
    region: str | None = None
    is_cdn: bool = False
    origin: str = ""

    def has(self, url: str) -> bool:
        """Whether an object's URL lies at this endpoint."""
        return url.startswith(f"{self.url.rstrip('/')}/")


class Distance(enum.IntEnum):
    """How far an endpoint is from a client; the nearest comes first."""

    SAME_REGION = 0
    CDN = 1
    ELSEWHERE = 2


@dataclass(frozen=True, slots=True)
class Line:
    """A line of the manifest, with its URL and its kind."""

    url: str
    kind: str
    text: bytes


def distance(endpoint: Endpoint, region: str | None) -> Distance:
    """Return the distance of an endpoint from a client in `region` (None: unknown)."""
    if endpoint.is_cdn:
        return Distance.CDN
    if region is not None and endpoint.region == region:
        return Distance.SAME_REGION
    return Distance.ELSEWHERE


def steer(
    lines: Sequence[Line],
    endpoints: Sequence[Endpoint],
    *,
    region: str | None = None,
    down: Collection[str] = (),
    dead: Collection[str] = (),
    read: Collection[str] = (),
) -> list[Line]:
    """Choose and order the lines for a client.

    `down` has the names of endpoints that do not answer, `dead` the URLs of dead objects, `read`
    the URLs of copies whose whole content was read. A line outside of all endpoints is left out,
    because the prober never requests it.
    """
    # Without regions and CDNs all endpoints are equal.
    knows_places = any(e.region or e.is_cdn for e in endpoints)
    chosen: list[tuple[tuple[int, ...], Line]] = []
    with_copies = [each for line in lines for each in (line, *_copies(line, endpoints, read))]
    for line in with_copies:
        endpoint = endpoint_of(line.url, endpoints)
        if endpoint is None or endpoint.name in down or line.url in dead:
            continue
        far = distance(endpoint, region)
        place = (int(far), _kind_rank(line.kind, far)) if knows_places else ()
        chosen.append(((line.kind == "gzip", *place), line))
    # A stable sort: lines of equal rank keep the order of the manifest.
    return [line for _, line in sorted(chosen, key=lambda pair: pair[0])]


def endpoint_of(url: str, endpoints: Sequence[Endpoint]) -> Endpoint | None:
    """Return the endpoint of a URL; of several, the endpoint with the longest URL."""
    return max((e for e in endpoints if e.has(url)), key=lambda e: len(e.url), default=None)


def copies(url: str, endpoints: Sequence[Endpoint]) -> list[str]:
    """Return the URLs under which other endpoints have copies of an object."""
    at = endpoint_of(url, endpoints)
    if at is None:
        return []
    return [edge.url + url[len(at.url) :] for edge in endpoints if edge.origin == at.name]


def _copies(line: Line, endpoints: Sequence[Endpoint], read: Collection[str]) -> Iterator[Line]:
    for url in copies(line.url, endpoints):
        if url in read:
            rest = line.text.partition(b" ")[2]
            yield replace(line, url=url, text=url.encode("utf-8") + b" " + rest)


def _kind_rank(kind: str, far: Distance) -> int:
    order = ("stream", "zstd") if far is Distance.SAME_REGION else ("zstd", "stream")
    return order.index(kind) if kind in order else len(order)
