"""Filters of the firewall of the role `base`: from the table of ports to the rules of a host.

The table is `roles/base/files/ports.yml`. Addresses of hosts come from the inventory: a rule set
with names would need DNS before the network is up, and would trust it.
"""

from __future__ import annotations

import ipaddress
from collections import ChainMap
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    Network = ipaddress.IPv4Network | ipaddress.IPv6Network
    Row = Mapping[str, Any]
    Variables = Mapping[str, Mapping[str, Any]]

TABLE: Final = Path(__file__).resolve().parents[2] / "roles/base/files/ports.yml"

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is faster

EVERYONE: Final = frozenset(map(ipaddress.ip_network, ("0.0.0.0/0", "::/0")))

PROTOCOLS: Final = ("tcp", "udp")


@dataclass(frozen=True)
class Opening:
    """Ports of a host that some networks may connect to."""

    protocol: str
    ports: frozenset[int]
    networks: frozenset[Network]


@cache
def table() -> tuple[Row, ...]:
    """Return the table of ports."""
    return tuple(yaml.load(TABLE.read_text("utf-8"), Loader=_LOADER))  # noqa: S506  (a SafeLoader)


def ports_of(row: Row, variables: Mapping[str, Any]) -> list[int]:
    """Return the ports of a row on a host with these variables; 0 switches a listener off."""
    ports = []
    for name, default in row["ports"].items():
        value = variables.get(name, default)
        ports += [int(port) for port in (value if isinstance(value, list) else [value])]
    return sorted({port for port in ports if port})


def listens(row: Row, host: str, groups: Mapping[str, Sequence[str]]) -> bool:
    """Tell whether the part of a row listens on a host."""
    if "part" not in row or host not in groups.get(row["part"], ()):
        return False
    return "if" not in row or bool(groups.get(row["if"]))


def sources(
    row: Row, host: str, groups: Mapping[str, Sequence[str]], hostvars: Variables, own: Row
) -> list[tuple[str, str]]:
    """Return the addresses and networks that may connect, each with its place in the inventory."""
    if row["open_to"] == "everyone":
        return [(str(network), "") for network in EVERYONE]
    if row["open_to"] == "administrators":
        networks = own["base_firewall_administrators"]
        return [(str(network), "base_firewall_administrators") for network in networks]
    pairs = []
    for client in dict.fromkeys(name for group in row["open_to"] for name in groups.get(group, ())):
        # A host reaches itself through its loopback interface.
        if client != host:
            variables = hostvars[client]
            addresses = variables.get("base_firewall_addresses") or [
                variables.get("base_address", client)
            ]
            pairs += [(str(address), f"base_address of {client}") for address in addresses]
    name = row.get("and_to", "")
    return pairs + [(str(network), name) for network in hostvars[host].get(name) or ()]


def _network(text: str) -> Network | None:
    try:
        return ipaddress.ip_network(text)
    except ValueError:
        return None


def _wrong_ports(row: Row, variables: Mapping[str, Any]) -> list[str]:
    values = {name: variables.get(name, default) for name, default in row["ports"].items()}
    return [
        f"{name} is {port!r}, expected a port such as 443."
        for name, value in values.items()
        for port in (value if isinstance(value, list) else [value])
        if not str(port).isdecimal()
    ]


def firewall_problems(
    own: Row, host: str, groups: Mapping[str, Sequence[str]], hostvars: Variables
) -> list[str]:
    """Return a sentence for each value of the inventory that no rule can be made from."""
    wanted = [
        pair
        for row in table()
        if listens(row, host, groups)
        for pair in sources(row, host, groups, hostvars, own)
    ]
    problems = [
        f"{place} is {text}, and {host} has to let it in: expected an IP address or a network "
        "such as 192.0.2.0/24. A host whose base_address is a name has its IP addresses in "
        "base_firewall_addresses."
        for text, place in dict.fromkeys(wanted)
        if _network(text) is None
    ]
    problems += [
        problem
        for row in table()
        if listens(row, host, groups)
        for problem in _wrong_ports(row, ChainMap(own, hostvars[host]))  # type: ignore[arg-type]
    ]
    for entry in own["base_firewall_open"]:
        problems += [
            f"base_firewall_open has {text!r} in `from`, expected an IP address or a network such "
            "as 192.0.2.0/24."
            for text in map(str, entry["from"])
            if _network(text) is None
        ]
        problems += [
            f"base_firewall_open has the port {port}, expected 1 to 65535."
            for port in entry["ports"]
            if not 0 < int(port) < 65536
        ]
    return problems


def openings(
    own: Row, host: str, groups: Mapping[str, Sequence[str]], hostvars: Variables
) -> list[Opening]:
    """Return what a host lets in, in the order of the table; `own` are its variables of `base`."""
    # Not a copy: that would make Ansible fill in every variable of the host.
    variables = ChainMap(own, hostvars[host])  # type: ignore[arg-type]
    opened = []
    for row in table():
        if listens(row, host, groups):
            texts = [text for text, _ in sources(row, host, groups, hostvars, own)]
            opened.append(_opening("tcp", ports_of(row, variables), texts))
    for entry in own["base_firewall_open"]:
        ports = [int(port) for port in entry["ports"]]
        opened.append(_opening(entry.get("protocol", "tcp"), ports, entry["from"]))
    return _simplest(opened)


def _opening(protocol: str, ports: Iterable[int], networks: Iterable[str]) -> Opening:
    return Opening(protocol, frozenset(ports), frozenset(map(ipaddress.ip_network, networks)))


def _simplest(opened: Iterable[Opening]) -> list[Opening]:
    """Leave out ports that another opening opens already, so that no rule depends on the order."""
    everyone = {protocol: frozenset[int]() for protocol in PROTOCOLS}
    for opening in opened:
        if opening.networks >= EVERYONE:
            everyone[opening.protocol] |= opening.ports
    narrower = [
        Opening(opening.protocol, opening.ports - everyone[opening.protocol], opening.networks)
        for opening in opened
        if not opening.networks >= EVERYONE
    ]
    wide = [Opening(name, ports, EVERYONE) for name, ports in everyone.items()]
    merged: dict[tuple[str, frozenset[Network]], frozenset[int]] = {}
    for opening in [*wide, *narrower]:
        key = (opening.protocol, opening.networks)
        merged[key] = merged.get(key, frozenset()) | opening.ports
    return [
        Opening(protocol, ports, networks)
        for (protocol, networks), ports in merged.items()
        if ports and networks
    ]


@dataclass(frozen=True)
class Limit:
    """What an address (of IPv6, a /64) may have of some ports of a host.

    `connections` at a time, `new` in a second; 0 is no limit. Networks in `unlimited` have none.
    """

    part: str
    ports: tuple[int, ...]
    connections: int
    new: int
    unlimited: tuple[Network, ...]


def limits(
    own: Row, host: str, groups: Mapping[str, Sequence[str]], hostvars: Variables
) -> list[Limit]:
    """Return the limits of a host's parts, in the order of the table."""
    variables: ChainMap[str, Any] = ChainMap(own, hostvars[host])  # type: ignore[arg-type]
    result = []
    for row in table():
        if not listens(row, host, groups):
            continue
        connections, new = (
            max((int(variables.get(*pair)) for pair in row.get(kind, {}).items()), default=0)
            for kind in ("connections", "new_per_second")
        )
        if ports := ports_of(row, variables) if connections or new else []:
            unlimited = tuple(_unlimited(row, variables, groups, hostvars))
            result.append(Limit(row["part"], tuple(ports), connections, new, unlimited))
    return result


def _unlimited(
    row: Row, variables: Mapping[str, Any], groups: Mapping[str, Sequence[str]], hostvars: Variables
) -> list[Network]:
    """Return the networks without the limits of a row; names of hosts that are no address, not."""
    texts = [str(text) for name in row.get("unlimited", ()) for text in variables.get(name) or ()]
    for name, default in row.get("unlimited_hosts", {}).items():
        members = [host for group in default for host in groups.get(group, ())]
        for host in variables.get(name, members):
            own = hostvars[host]
            texts += own.get("base_firewall_addresses") or [own.get("base_address", host)]
    return [network for text in dict.fromkeys(texts) if (network := _network(str(text)))]


def firewall_limits(
    own: Row, host: str, groups: Mapping[str, Sequence[str]], hostvars: Variables
) -> dict[str, list[str]]:
    """Return the `sets` and `rules` of nftables that refuse an address more than its share.

    A connection above the number is reset, and above the rate it is dropped: the client's system
    tries again a second later, so that a burst of a build farm waits and does not fail. Where the
    kernel's table of connections is full, no rule matches, and nothing is refused.
    """
    made: dict[str, list[str]] = {"sets": [], "rules": []}
    for limit in limits(own, host, groups, hostvars):
        for family, kind, source in (
            ("ip", "ipv4_addr", "ip saddr"),
            ("ip6", "ipv6_addr", "ip6 saddr and ffff:ffff:ffff:ffff::"),
        ):
            version = 4 if family == "ip" else 6
            networks = [network for network in limit.unlimited if network.version == version]
            listed = ", ".join(map(_text, ipaddress.collapse_addresses(networks)))  # type: ignore[type-var]
            which = f"tcp dport {{ {', '.join(map(str, limit.ports))} }} ct state new "
            which += f"{family} saddr != {{ {listed} }} " if listed else ""
            if limit.new:
                name = f"opening_{limit.part}_{version}"
                made["sets"].append(_set(name, kind, "flags dynamic, timeout; timeout 1m;"))
                rate = f"limit rate over {limit.new}/second burst {limit.new} packets"
                made["rules"].append(
                    f"{which}update @{name} {{ {source} {rate} }} counter name refused drop"
                )
            if limit.connections:
                name = f"open_{limit.part}_{version}"
                made["sets"].append(_set(name, kind, "flags dynamic;"))
                made["rules"].append(
                    f"{which}add @{name} {{ {source} ct count over {limit.connections} }} "
                    "counter name refused reject with tcp reset"
                )
    return made


def _set(name: str, kind: str, flags: str) -> str:
    return f"set {name} {{ type {kind}; size 65535; {flags} }}"


def firewall_rules(
    own: Row, host: str, groups: Mapping[str, Sequence[str]], hostvars: Variables
) -> list[str]:
    """Return the rules of nftables that accept what a host lets in, for each address family."""
    rules = []
    for opening in openings(own, host, groups, hostvars):
        listed_ports = ", ".join(map(str, sorted(opening.ports)))
        ports = f"{opening.protocol} dport {{ {listed_ports} }} accept"
        if opening.networks >= EVERYONE:
            rules.append(ports)
            continue
        for family, version in (("ip", 4), ("ip6", 6)):
            networks = [network for network in opening.networks if network.version == version]
            if networks:
                listed = ", ".join(map(_text, ipaddress.collapse_addresses(networks)))
                rules.append(f"{family} saddr {{ {listed} }} {ports}")
    return rules


def _text(network: Network) -> str:
    is_host = network.prefixlen == network.max_prefixlen
    return str(network.network_address if is_host else network)


def firewall_lockout(
    own: Row,
    host: str,
    groups: Mapping[str, Sequence[str]],
    hostvars: Variables,
    connection: str,
) -> str:
    """Return a sentence if the rules would close the way that a connection came; else "".

    `connection` is sshd's SSH_CONNECTION: address and port of the client, then of the host; empty
    for a connection that is not SSH.
    """
    words = connection.split()
    if len(words) != 4:
        return ""
    client = ipaddress.ip_address(words[0].partition("%")[0])
    client = getattr(client, "ipv4_mapped", None) or client
    port = int(words[3])
    for opening in openings(own, host, groups, hostvars):
        is_in = any(client in network for network in opening.networks)
        if opening.protocol == "tcp" and port in opening.ports and is_in:
            return ""
    return (
        f"Ansible is connected from {client} to port {port} of {host}, which the firewall would "
        "close. Add the network to base_firewall_administrators, or the port to "
        "base_firewall_administrators_ports; or leave the firewall out: base_firewall: false."
    )


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., Any]]:
        """Return the filters by name."""
        return {
            "firewall_problems": firewall_problems,
            "firewall_limits": firewall_limits,
            "firewall_rules": firewall_rules,
            "firewall_lockout": firewall_lockout,
        }
