from __future__ import annotations

import pytest

from hgfleet.core.errors import ConfigurationError
from hgfleet.core.settings_file import parse_table
from hgfleet.steering import settings
from hgfleet.steering.order import Endpoint

ORIGIN = {"name": "eu", "url": "https://eu.example"}


def test_settings_name_the_origin_of_copies() -> None:
    edge = {"name": "edge", "url": "https://edge.example/", "cdn": True, "origin": "eu"}
    read = parse_table("x", {"endpoint": [edge, ORIGIN], "read_rate": 5}, settings.parse)
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
        parse_table("x", data, settings.parse)
