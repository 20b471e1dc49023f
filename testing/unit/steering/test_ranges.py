from __future__ import annotations

import pytest

from hgfleet.steering import ranges

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
    networks, _ = ranges.read(provider, data, {region: "ours"})
    assert [(str(net), name) for net, name in networks] == [(net, "ours") for net in expected]


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
