from __future__ import annotations

import ipaddress
import random

import pytest

from hgfleet.steering import networks
from hgfleet.steering.networks import Networks


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
