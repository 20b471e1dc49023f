"""Settings of steering: `/etc/hgfleet/steering.toml`, written by the role `steering`."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import paths
from hgfleet.core.settings_file import read
from hgfleet.objectstore.presign import DEFAULT_PATH as SIGNING
from hgfleet.steering import networks, ranges
from hgfleet.steering.order import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.core.settings_file import Table
    from hgfleet.steering.networks import Network

DEFAULT_PATH: Final = Path("/etc/hgfleet/steering.toml")
HEALTH: Final = Path("/run/hgfleet-steering/health.json")


@dataclass(frozen=True, slots=True)
class Provider:
    """A provider's file of networks: its format, its URL, and the site's names of its regions."""

    name: str
    url: str
    regions: Mapping[str, str]


@dataclass(frozen=True)
class Config:
    """Endpoints, networks of clients, and the rate of probes.

    Each endpoint is probed every `interval_seconds` and has `timeout_seconds` to answer a probe
    completely. `read_rate` (bytes per second) is the speed at which the prober reads the content of
    all objects at each endpoint, over and over. `ca` is a file of PEM certificates that verifies
    the endpoints, `signing` a file with the keys of private stores. `state` is a folder for the
    networks of providers.
    """

    endpoints: tuple[Endpoint, ...]
    networks: tuple[tuple[Network, str], ...] = ()
    providers: tuple[Provider, ...] = ()
    state: Path = Path("/var/lib/hgfleet-steering")
    manifests: Path = Path(paths.MANIFESTS)
    health: Path = HEALTH
    ca: Path = Path(paths.CA_CERTIFICATES)
    signing: Path = SIGNING
    interval_seconds: float = 3.0
    timeout_seconds: float = 4.0
    read_rate: int = 65536


def load(path: Path) -> Config:
    """Read the settings. Raises ConfigurationError that names a wrong setting."""
    return read(path, parse, "the settings of steering", "the role `steering` writes them")


def parse(table: Table) -> Config:
    """Take the settings out of the parsed file."""
    return Config(
        endpoints=_endpoints(table),
        networks=_networks(table.table("networks")),
        providers=tuple(_provider(provider) for provider in table.tables("provider")),
        state=table.file("state", Config.state),
        manifests=table.file("manifests", paths.MANIFESTS),
        health=table.file("health", HEALTH),
        ca=table.file("ca", paths.CA_CERTIFICATES),
        signing=table.file("signing", SIGNING),
        interval_seconds=table.seconds("interval", Config.interval_seconds, least=0.1, most=60),
        timeout_seconds=table.seconds("timeout", Config.timeout_seconds, least=0.1, most=60),
        read_rate=table.integer(
            "read_rate", Config.read_rate, least=1, most=2**34, unit="bytes per second"
        ),
    )


def _endpoints(table: Table) -> tuple[Endpoint, ...]:
    tables = table.tables("endpoint")
    endpoints = tuple(_endpoint(settings) for settings in tables)
    names = [endpoint.name for endpoint in endpoints]
    origins = {endpoint.name for endpoint in endpoints if not endpoint.origin}
    for settings, endpoint in zip(tables, endpoints, strict=True):
        if names.count(endpoint.name) > 1:
            raise settings.error("name", endpoint.name, "each name once")
        if endpoint.origin and endpoint.origin not in origins:
            raise settings.error(
                "origin", endpoint.origin, "the name of an endpoint without an origin of its own"
            )
    return endpoints


def _endpoint(table: Table) -> Endpoint:
    return Endpoint(
        table.text("name"),
        table.url("url"),
        table.text("region") if "region" in table else None,
        table.flag("cdn", default=False),
        table.optional_text("origin"),
    )


def _provider(table: Table) -> Provider:
    name, regions = table.choice("name", ranges.PROVIDERS), table.table("regions")
    return Provider(name, table.url("url"), {name: regions.text(name) for name in regions.names()})


def _networks(table: Table) -> tuple[tuple[Network, str], ...]:
    """Take the networks of each region."""
    parsed: list[tuple[Network, str]] = []
    for region in table.names():
        texts = table.texts(region, (), expected="a list of networks such as 192.0.2.0/24")
        try:
            parsed += networks.parse([(text, region) for text in texts])
        except ValueError as error:
            raise table.error(region, list(texts), f"networks: {error}") from error
    return tuple(parsed)
