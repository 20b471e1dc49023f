"""Filters for lists of IP addresses: of hosts, and of wrong addresses in a variable."""

from __future__ import annotations

import ipaddress
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping


def ip_addresses(hosts: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return `base_address` of the hosts (their variables) where it is an address, not a name."""
    given = [str(host["base_address"]) for host in hosts if "base_address" in host]
    return [text for text in given if _is_read_by(ipaddress.ip_address, text)]


def no_addresses(values: Iterable[object], networks: bool = False) -> list[str]:
    """Return the values that are no IP address nor, with `networks`, a network: 192.0.2.0/24."""
    reads = _network if networks else ipaddress.ip_address
    return [text for text in map(str, values) if not _is_read_by(reads, text)]


def _network(text: str) -> object:
    address, _, prefix = text.partition("/")
    # A mask such as 255.255.255.0 is no prefix to nginx.
    if not prefix.isdigit():
        return ipaddress.ip_address(text)
    return ipaddress.ip_network(f"{address}/{prefix}", strict=False)


def _is_read_by(reads: Callable[[str], object], text: str) -> bool:
    # An address with a zone, such as fe80::1%eth0, means nothing on another host.
    if "%" in text:
        return False
    try:
        reads(text)
    except ValueError:
        return False
    return True


class FilterModule:
    """The name of the class that Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., object]]:
        """Return the filters by name."""
        return {"ip_addresses": ip_addresses, "no_addresses": no_addresses}
