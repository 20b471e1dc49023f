"""Addresses of hosts, and values that are no address."""

from __future__ import annotations

import pytest

from testing.support import loading

addresses = loading.module("ansible/plugins/filter/addresses.py")
ip_addresses, no_addresses = addresses.ip_addresses, addresses.no_addresses


def test_hosts_without_an_address_or_with_a_name_are_passed_over() -> None:
    hosts = [{"base_address": "192.0.2.7"}, {}, {"base_address": "hg1.example.org"}]
    assert ip_addresses([*hosts, {"base_address": "2001:db8::7"}]) == ["192.0.2.7", "2001:db8::7"]
    assert ip_addresses([]) == []


@pytest.mark.parametrize(
    "wrong",
    ["", "hg1", "192.0.2.256", "192.0.2", "192.0.2.7 ", "192.0.2.7\n", "192.0.2.7/d;w /x", ":::",
     "192.0.2.0/33", "192.0.2.0/255.255.255.0", "192.0.2.0/24/24", "١٩٢.0.2.7",
     "fe80::1%eth0", "fe80::1%;x"],
)  # fmt: skip
def test_a_value_that_is_neither_address_nor_network_is_named(wrong: str) -> None:
    right = ["192.0.2.7", "2001:db8::7"]
    assert no_addresses([*right, wrong]) == [wrong]
    assert no_addresses([*right, wrong], networks=True) == [wrong]


def test_networks_are_taken_only_where_they_are_asked_for() -> None:
    networks = ["192.0.2.0/24", "192.0.2.7/24", "2001:db8::/32"]
    assert no_addresses(networks) == networks
    assert no_addresses(networks, networks=True) == []
