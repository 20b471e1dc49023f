"""The networks that cloud providers publish."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.steering import provider_networks
from hgfleet.steering.settings import Config, Provider

if TYPE_CHECKING:
    from testing.integration.support.store import Store


def test_a_providers_networks_are_fetched_and_kept_until_a_better_file_comes(
    config: Config, store: Store
) -> None:
    provider = Provider("aws", f"{store.url}/ranges", {"us-east-1": "us"})
    config = replace(config, providers=(provider,))
    told: list[str] = []

    def refresh(file: object) -> list[tuple[str, str]]:
        store.content["ranges"] = json.dumps(file).encode()
        provider_networks.refresh(config, lambda event, **_: told.append(event))
        return [(str(net), region) for net, region in provider_networks.load(config)]

    assert provider_networks.load(config) == []
    prefixes = [{"ip_prefix": f"192.0.{n}.0/24", "region": "us-east-1"} for n in range(4)]
    all_of_it = {"prefixes": prefixes, "ipv6_prefixes": []}
    known = refresh(all_of_it)
    assert known == [(f"192.0.{n}.0/24", "us") for n in range(4)]
    for bad in ({"prefixes": prefixes[:1], "ipv6_prefixes": []}, {"error": "sorry"}, "<html>"):
        assert refresh(bad) == known
    store.fault = "500"
    assert refresh(all_of_it) == known
    assert told == ["ranges", *["ranges-refused"] * 4]
    # With other regions, the file before says nothing about these.
    other = replace(provider, regions={"us-east-1": "elsewhere"})
    assert provider_networks.load(replace(config, providers=(other,))) == []
