from __future__ import annotations

import itertools

import pytest

from hgfleet.steering.order import Endpoint, Line, copies, endpoint_of, steer

EU = Endpoint("eu", "https://eu.example/bundles", "eu")
US = Endpoint("us", "https://us.example/bundles", "us")
CDN = Endpoint("cdn", "https://cdn.example", is_cdn=True)


def line(endpoint: Endpoint, kind: str) -> Line:
    url = f"{endpoint.url}/{kind}"
    return Line(url, kind, url.encode())


ALL = [line(e, kind) for kind in ("stream", "zstd", "gzip") for e in (EU, US, CDN)]


def names(lines: list[Line]) -> list[str]:
    return [
        entry.url.removeprefix("https://").replace(".example", "").replace("/bundles", "")
        for entry in lines
    ]


def test_a_near_client_gets_the_stream_bundle_of_its_region_first() -> None:
    assert names(steer(ALL, [EU, US, CDN], region="us")) == [
        *("us/stream", "us/zstd", "cdn/zstd", "cdn/stream", "eu/zstd", "eu/stream"),
        *("us/gzip", "cdn/gzip", "eu/gzip"),
    ]


@pytest.mark.parametrize("region", [None, "asia"])
def test_a_far_client_gets_a_small_bundle_from_the_cdn_first(region: str | None) -> None:
    assert names(steer(ALL, [EU, US, CDN], region=region)) == [
        *("cdn/zstd", "cdn/stream", "eu/zstd", "us/zstd", "eu/stream", "us/stream"),
        *("cdn/gzip", "eu/gzip", "us/gzip"),
    ]


def test_without_regions_the_order_of_the_manifest_stands_but_for_gzip() -> None:
    endpoint = Endpoint("one", "https://one.example")
    lines = [line(endpoint, kind) for kind in ("gzip", "zstd", "stream")]
    assert names(steer(lines, [endpoint])) == ["one/zstd", "one/stream", "one/gzip"]


def test_nobody_is_sent_to_what_does_not_answer() -> None:
    left = steer(ALL, [EU, US, CDN], region="us", down={"us"}, dead={f"{CDN.url}/zstd"})
    assert names(left)[:2] == ["cdn/stream", "eu/zstd"]
    assert not any(name.startswith("us/") or name == "cdn/zstd" for name in names(left))
    assert steer(ALL, [EU, US, CDN], down={"eu", "us", "cdn"}) == []


def test_a_url_at_no_endpoint_is_left_out() -> None:
    stranger = Line("https://eu.example/bundles-of-others/x", "zstd", b"")
    assert steer([stranger], [EU]) == []


def test_the_longest_address_claims_a_url() -> None:
    inner = Endpoint("inner", f"{EU.url}/mirror")
    assert endpoint_of(f"{EU.url}/mirror/x", [EU, inner]) == inner
    assert endpoint_of(f"{EU.url}/x", [EU, inner]) == EU


def test_copies_stand_beside_what_they_are_copies_of_once_they_were_read() -> None:
    edge = Endpoint("edge", "https://edge.example/eu", is_cdn=True, origin="eu")
    near = Endpoint("near", "https://near.example", "us", origin="eu")
    endpoints = [EU, US, edge, near]
    manifest = [Line(f"{e.url}/a/z", "zstd", f"{e.url}/a/z D=1".encode()) for e in (EU, US)]
    assert copies(f"{EU.url}/a/z", endpoints) == [f"{edge.url}/a/z", f"{near.url}/a/z"]
    assert copies(f"{US.url}/a/z", endpoints) == copies("https://x.example/a", endpoints) == []

    assert steer(manifest, endpoints) == manifest
    read = {f"{edge.url}/a/z", f"{near.url}/a/z"}
    told = steer(manifest, endpoints, region="us", read=read)
    assert [entry.text for entry in told] == [
        f"{url}/a/z D=1".encode() for url in (near.url, US.url, edge.url, EU.url)
    ]
    # A store that is gone takes none of its copies with it.
    left = steer(manifest, endpoints, region="us", down={"eu", "us"}, dead={told[0].url}, read=read)
    assert left == [told[2]]


def test_every_order_of_the_manifest_is_steered_to_the_same() -> None:
    wanted = steer(ALL[:6], [EU, US, CDN], region="eu")
    for shuffled in itertools.permutations(ALL[:6]):
        assert steer(shuffled, [EU, US, CDN], region="eu") == wanted
