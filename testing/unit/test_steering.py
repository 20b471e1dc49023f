"""Steering: where a client is, what answers, and what it is told about."""

from __future__ import annotations

import ipaddress
import itertools
import random
from datetime import UTC, datetime

import pytest

from hgfleet.bundles.manifest import Entry
from hgfleet.core.config import parse_table
from hgfleet.core.errors import ConfigurationError
from hgfleet.steering import config, health, networks, ranges, selection
from hgfleet.steering.connection import EndpointError
from hgfleet.steering.health import Condition, Health
from hgfleet.steering.networks import Networks
from hgfleet.steering.order import Endpoint, Line, copies, endpoint_of, steer
from hgfleet.steering.selection import ObjectState

# --- networks -------------------------------------------------------------------------------


def table(**regions: str) -> Networks:
    pairs = [(net, name) for name, nets in regions.items() for net in nets.split()]
    return Networks(networks.parse(pairs))


def test_the_longest_network_around_an_address_decides() -> None:
    known = table(eu="10.0.0.0/8", us="10.1.0.0/16 2001:db8::/32", lab="10.1.2.0/24 10.1.2.128/32")
    assert known.region("10.0.0.1") == "eu"
    assert known.region("10.1.0.1") == "us"
    assert known.region("10.1.2.3") == "lab"
    assert known.region("10.1.3.0") == "us"
    assert known.region("10.2.0.0") == "eu"
    assert known.region("2001:db8:ffff::1") == "us"


def test_an_address_in_no_network_is_nowhere() -> None:
    known = table(eu="10.0.0.0/8", us="192.0.2.0/24")
    for address in ("9.255.255.255", "11.0.0.0", "192.0.3.0", "1.0.0.0", "::1"):
        assert known.region(address) is None


@pytest.mark.parametrize(
    "text", ["", "nonsense", "10.0.0.1/8", "10.0.0", "10.0.0.1\n", "::g", "010.0.0.1"]
)
def test_what_is_no_address_is_nowhere(text: str) -> None:
    assert table(eu="0.0.0.0/0 ::/0").region(text) is None


def test_a_client_of_ipv4_is_the_same_through_a_socket_for_both() -> None:
    known = table(eu="10.0.0.0/8", wrong="::/0")
    assert known.region("::ffff:10.1.2.3") == "eu"
    assert known.region("fe80::1%eth0") == "wrong"


def test_flattening_agrees_with_the_definition() -> None:
    dice = random.Random(7)
    nets = []
    for _ in range(300):
        length = dice.randint(20, 32)
        number = int(ipaddress.ip_address("10.9.0.0")) + dice.getrandbits(12)
        nets.append(
            (ipaddress.ip_network((number, length), strict=False), f"r{dice.randint(0, 4)}")
        )
    known = Networks(nets)
    latest = dict(nets)
    for offset in range(0, 5000, 3):
        address = ipaddress.ip_address("10.8.255.0") + offset
        around = [net for net in latest if address in net]
        expected = latest[max(around, key=lambda net: net.prefixlen)] if around else None
        assert known.region(str(address)) == expected


def test_neighbours_of_one_region_are_one_interval() -> None:
    nets = networks.parse([("10.0.0.0/9", "eu"), ("10.128.0.0/9", "eu"), ("10.7.0.0/16", "eu")])
    start = int(ipaddress.ip_address("10.0.0.0"))
    assert networks.flatten(nets, 4) == [(start, "eu"), (start + 2**24, None)]


# --- order ----------------------------------------------------------------------------------

EU = Endpoint("eu", "https://eu.example/bundles", "eu")
US = Endpoint("us", "https://us.example/bundles", "us")
CDN = Endpoint("cdn", "https://cdn.example", is_cdn=True)


def line(endpoint: Endpoint, kind: str) -> Line:
    url = f"{endpoint.url}/{kind}"
    return Line(url, kind, url.encode())


ALL = [line(e, kind) for kind in ("stream", "zstd", "gzip") for e in (EU, US, CDN)]


def names(lines: list[Line]) -> list[str]:
    return [
        one.url.removeprefix("https://").replace(".example", "").replace("/bundles", "")
        for one in lines
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
    one = Endpoint("one", "https://one.example")
    lines = [line(one, kind) for kind in ("gzip", "zstd", "stream")]
    assert names(steer(lines, [one])) == ["one/zstd", "one/stream", "one/gzip"]


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
    assert [one.text for one in told] == [
        f"{url}/a/z D=1".encode() for url in (near.url, US.url, edge.url, EU.url)
    ]
    # A store that is gone takes none of its copies with it.
    left = steer(manifest, endpoints, region="us", down={"eu", "us"}, dead={told[0].url}, read=read)
    assert left == [told[2]]


def test_every_order_of_the_manifest_is_steered_to_the_same() -> None:
    wanted = steer(ALL[:6], [EU, US, CDN], region="eu")
    for shuffled in itertools.permutations(ALL[:6]):
        assert steer(shuffled, [EU, US, CDN], region="eu") == wanted


# --- health ---------------------------------------------------------------------------------


def after(*problems: str | None) -> Condition:
    condition = Condition()
    for problem in problems:
        condition = condition.after(problem)
    return condition


def test_the_first_probe_decides_at_once() -> None:
    assert after(None).is_up
    assert not after("refused").is_up


def test_one_failure_takes_an_endpoint_out_and_three_good_probes_bring_it_back() -> None:
    assert not after(None, None, None, "timeout").is_up
    assert after(None, "timeout").problem == "timeout"
    assert not after(None, "timeout", None, None).is_up
    assert after(None, "timeout", None, None, None).is_up


def test_an_endpoint_that_answers_every_other_time_stays_out() -> None:
    assert not after(*[None, "timeout"] * 10, None).is_up


def test_a_state_survives_being_written() -> None:
    state = Health(5.5, {"eu": after(None), "us": after("403")}, {"https://x/y": "404"})
    assert health.parse(health.dump(state)) == state


@pytest.mark.parametrize(
    "text", ["", "{", "[]", "{}", '{"format": 2}', '{"format": 1, "written": "x"}', "[" * 100_000]
)
def test_a_damaged_state_is_none(text: str) -> None:
    assert health.parse(text) is None


def test_who_is_not_known_to_be_up_is_down() -> None:
    state = Health(0, {"eu": after(None), "us": after("x")})
    assert state.down(["eu", "us", "new"]) == {"us", "new"}


def test_a_state_is_trusted_for_a_while_only() -> None:
    state = Health(1000.0)
    assert state.is_current(1000.0 + health.MAX_AGE)
    assert not state.is_current(1001.0 + health.MAX_AGE)
    assert not state.is_current(999.0 - health.MAX_AGE)


# --- whose a 403 is -------------------------------------------------------------------------

GONE = "the answer is 404"


@pytest.mark.parametrize(
    ("answers", "is_the_endpoints"),
    [
        ([], False),
        ([""], False),
        ([GONE], False),
        (["", GONE], False),
        ([selection.REFUSED], True),
        ([selection.REFUSED] * 3, True),
        ([selection.REFUSED, ""], False),
        (["", selection.REFUSED, selection.REFUSED], False),
        # What does not answer well is no witness: it may be a cache that remembers.
        ([GONE, selection.REFUSED], True),
        ([GONE, selection.REFUSED, ""], False),
    ],
)
def test_a_403_is_the_endpoints_if_nothing_answers(
    answers: list[str], is_the_endpoints: bool
) -> None:
    assert selection.is_closed(answers) == is_the_endpoints


@pytest.mark.parametrize(
    ("status", "length", "problem"),
    [
        (200, 5, None),
        (206, 5, None),
        (200, 4, "it has 4 bytes instead of 5"),
        (403, 0, selection.REFUSED),
        (404, 0, "the answer is 404"),
        (410, 0, "the answer is 410"),
    ],
)
def test_headers_tell_what_is_wrong_with_an_object(
    status: int, length: int, problem: str | None
) -> None:
    if problem is None:
        selection.classify(status, length, 5)
    else:
        with pytest.raises(selection.ObjectError, match=f"^{problem}$"):
            selection.classify(status, length, 5)


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 503])
def test_any_other_answer_is_the_endpoints(status: int) -> None:
    with pytest.raises(EndpointError, match=f"^the answer is {status}$"):
        selection.classify(status, 5, 5)


def test_who_answered_well_a_moment_ago_is_asked_whose_a_403_is() -> None:
    refused, old, late, dead, new = (
        Entry(name, "zstd-v2", "", 1, 1, datetime(2026, 11, 20, tzinfo=UTC)) for name in "roldn"
    )
    known = {
        refused: ObjectState(asked=7),
        old: ObjectState(asked=5),
        dead: ObjectState(asked=6, headers=GONE),
        new: ObjectState(),
        late: ObjectState(asked=6),
    }
    assert selection.witnesses(known, {refused}) == [late, old, new, dead]
    assert selection.witnesses({refused: ObjectState(asked=7)}, {refused}) == []
    many = {Entry(str(n), "", "", 1, 1, refused.made): ObjectState(asked=n) for n in range(50)}
    assert [e.url for e in selection.witnesses(many, ())] == [
        str(49 - n) for n in range(selection.OTHERS)
    ]


# --- published ranges -----------------------------------------------------------------------

AWS = {
    "prefixes": [
        {"ip_prefix": "192.0.2.0/25", "region": "eu-central-1", "service": "EC2"},
        {"ip_prefix": "192.0.2.128/25", "region": "us-east-1", "service": "EC2"},
    ],
    "ipv6_prefixes": [{"ipv6_prefix": "2001:db8::/48", "region": "us-east-1"}],
}
GOOGLE = {
    "prefixes": [
        {"ipv4Prefix": "198.51.100.0/24", "scope": "europe-west1"},
        {"ipv6Prefix": "2001:db8:1::/48", "scope": "us-east4"},
    ]
}
AZURE = {
    "values": [
        {"name": "AzureCloud", "properties": {"region": "", "addressPrefixes": ["10.0.0.0/8"]}},
        {
            "name": "Storage.westeurope",
            "properties": {"region": "westeurope", "addressPrefixes": ["10.1.0.0/16"]},
        },
        {
            "name": "AzureCloud.westeurope",
            "properties": {"region": "westeurope", "addressPrefixes": ["203.0.113.0/24"]},
        },
    ]
}


@pytest.mark.parametrize(
    ("provider", "data", "region", "expected"),
    [
        ("aws", AWS, "us-east-1", ["192.0.2.128/25", "2001:db8::/48"]),
        ("google", GOOGLE, "us-east4", ["2001:db8:1::/48"]),
        ("azure", AZURE, "westeurope", ["203.0.113.0/24"]),
    ],
)
def test_networks_of_a_mapped_region_are_taken(
    provider: str, data: object, region: str, expected: list[str]
) -> None:
    found, _ = ranges.read(provider, data, {region: "ours"})
    assert [(str(net), name) for net, name in found] == [(net, "ours") for net in expected]


@pytest.mark.parametrize(
    "data",
    [
        None,
        [],
        {},
        {"prefixes": 7, "ipv6_prefixes": []},
        {"prefixes": [{"ip_prefix": "192.0.2.0/25"}], "ipv6_prefixes": []},
        {"prefixes": [{"ip_prefix": "192.0.2.1/25", "region": "us-east-1"}], "ipv6_prefixes": []},
        {"prefixes": [{"ip_prefix": "<html>", "region": "us-east-1"}], "ipv6_prefixes": []},
        {"prefixes": [{"ip_prefix": "192.0.2.0/25", "region": ["x"]}], "ipv6_prefixes": []},
    ],
)
def test_a_file_of_another_shape_is_refused(data: object) -> None:
    with pytest.raises(ranges.BadRangesError, match="aws"):
        ranges.read("aws", data, {"us-east-1": "us"})


def test_a_file_that_lost_a_region_or_half_of_itself_is_refused() -> None:
    with pytest.raises(ranges.BadRangesError, match="no network for asia"):
        ranges.read("aws", AWS, {"us-east-1": "us", "ap-east-1": "asia"})
    with pytest.raises(ranges.BadRangesError, match="3 networks, and 7 before"):
        ranges.read("aws", AWS, {"us-east-1": "us"}, known=7)
    assert ranges.read("aws", AWS, {"us-east-1": "us"}, known=6)[1] == 3


def test_a_file_without_end_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "MAX_NETWORKS", 2)
    with pytest.raises(ranges.BadRangesError, match="more than 2 networks"):
        ranges.read("aws", AWS, {"us-east-1": "us"})


# --- settings -------------------------------------------------------------------------------

ORIGIN = {"name": "eu", "url": "https://eu.example"}


def test_settings_name_the_origin_of_copies() -> None:
    edge = {"name": "edge", "url": "https://edge.example/", "cdn": True, "origin": "eu"}
    read = parse_table("x", {"endpoint": [edge, ORIGIN], "read_rate": 5}, config.parse)
    assert read.endpoints[0] == Endpoint("edge", "https://edge.example", None, True, "eu")
    assert read.endpoints[1].origin == ""
    assert read.read_rate == 5


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        ({"endpoint": [{**ORIGIN, "origin": "us"}]}, "endpoint.origin: got 'us'"),
        ({"endpoint": [{**ORIGIN, "origin": "eu"}]}, "endpoint.origin: got 'eu'"),
        ({"endpoint": [{**ORIGIN, "origin": 1}]}, "endpoint.origin: got 1"),
        ({"endpoint": [{**ORIGIN, "origins": "us"}]}, "unknown settings endpoint.origins"),
        ({"read_rate": 0}, "read_rate: got 0, expected bytes per second"),
        ({"read_rate": True}, "read_rate: got True"),
    ],
)
def test_settings_that_are_wrong_are_named(data: dict[str, object], problem: str) -> None:
    with pytest.raises(ConfigurationError, match=problem):
        parse_table("x", data, config.parse)
