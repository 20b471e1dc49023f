"""The settings of steering: `/etc/hgfleet/steering.toml`, written by the role `steering`."""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from hgfleet.core.errors import ConfigurationError
from hgfleet.objectstore.presign import DEFAULT_PATH as SIGNING
from hgfleet.steering import networks, ranges
from hgfleet.steering.order import Endpoint

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from hgfleet.steering.networks import Network

DEFAULT_PATH: Final = Path("/etc/hgfleet/steering.toml")
HEALTH: Final = Path("/run/hgfleet-steering/health.json")


@dataclass(frozen=True, slots=True)
class Provider:
    """A published file of networks: its shape, its URL, and our names of its regions."""

    name: str
    url: str
    regions: Mapping[str, str]


@dataclass(frozen=True)
class Config:
    """What is advertised, where clients are, and how endpoints are probed.

    Each endpoint is asked every `interval` seconds and has `timeout` seconds to answer a probe
    completely. `read_rate` (bytes per second) is how fast the content of all objects is read at
    each endpoint, again and again. `ca` is a file of PEM certificates that endpoints are verified
    with, `signing` one with the keys of private stores. `state` is a folder for what providers
    published.
    """

    endpoints: tuple[Endpoint, ...]
    networks: tuple[tuple[Network, str], ...] = ()
    providers: tuple[Provider, ...] = ()
    state: Path = Path("/var/lib/hgfleet-steering")
    manifests: Path = Path("/var/lib/hgfleet/manifests")
    health: Path = HEALTH
    ca: Path = Path("/etc/ssl/certs/ca-certificates.crt")
    signing: Path = SIGNING
    interval: float = 3.0
    timeout: float = 4.0
    read_rate: int = 65536


def load(path: Path) -> Config:
    """Read the settings. Raises ConfigurationError that names the setting and what it should be."""
    try:
        return parse(tomllib.loads(path.read_text("utf-8")))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read the settings of steering ({error.strerror}); "
            "the role `steering` writes them"
        ) from error
    except (ValueError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse(data: Mapping[str, Any]) -> Config:
    """Check the values of the file; raises ValueError."""
    unknown = set(data) - {
        *("endpoint", "networks", "provider", "state", "manifests", "health", "ca"),
        *("interval", "signing", "timeout", "read_rate"),
    }
    if unknown:
        raise ValueError(f"got unknown settings {', '.join(sorted(unknown))}")
    endpoints = tuple(_endpoint(one) for one in _list(data, "endpoint"))
    if len({endpoint.name for endpoint in endpoints}) != len(endpoints):
        raise ValueError("endpoint: got two of one name, expected each name once")
    for endpoint in endpoints:
        if endpoint.origin and endpoint.origin not in {e.name for e in endpoints if not e.origin}:
            raise ValueError(
                f"endpoint {endpoint.name}: got the origin {endpoint.origin!r}, expected the name "
                "of an endpoint that has none itself"
            )
    return Config(
        endpoints=endpoints,
        networks=_networks(data.get("networks", {})),
        providers=tuple(_provider(one) for one in _list(data, "provider")),
        state=_path(data, "state", Config.state),
        manifests=_path(data, "manifests", Config.manifests),
        health=_path(data, "health", HEALTH),
        ca=_path(data, "ca", Config.ca),
        signing=_path(data, "signing", Config.signing),
        interval=_seconds(data, "interval", Config.interval),
        timeout=_seconds(data, "timeout", Config.timeout),
        read_rate=_rate(data),
    )


def _list(data: Mapping[str, Any], name: str) -> Sequence[Any]:
    value = data.get(name, [])
    if not isinstance(value, list):
        raise ValueError(f"{name}: got {value!r}, expected tables [[{name}]]")
    return value


def _endpoint(value: object) -> Endpoint:
    if not isinstance(value, dict):
        raise ValueError(f"endpoint: got {value!r}, expected a table")
    unknown = set(value) - {"name", "url", "region", "cdn", "origin"}
    if unknown:
        raise ValueError(f"endpoint: got unknown settings {', '.join(sorted(unknown))}")
    name, url, region = value.get("name"), value.get("url"), value.get("region")
    if not isinstance(name, str) or not name.isprintable() or not name:
        raise ValueError(f"endpoint: got the name {name!r}, expected a text")
    if region is not None and (not isinstance(region, str) or not region):
        raise ValueError(f"endpoint {name}: got the region {region!r}, expected a text")
    if not isinstance(value.get("cdn", False), bool):
        raise ValueError(f"endpoint {name}: cdn is true or false")
    origin = value.get("origin", "")
    if not isinstance(origin, str):
        raise ValueError(f"endpoint {name}: got the origin {origin!r}, expected a text")
    return Endpoint(name, _url(f"endpoint {name}", url), region, value.get("cdn", False), origin)


def _url(what: str, value: object) -> str:
    parts = urlsplit(value) if isinstance(value, str) else None
    # Also what keeps the prober from other schemes, such as file:.
    if parts is None or parts.scheme not in ("http", "https") or not parts.hostname or parts.query:
        raise ValueError(f"{what}: got {value!r}, expected a URL like https://host/path")
    return str(value).rstrip("/")


def _provider(value: object) -> Provider:
    known = ", ".join(ranges.PROVIDERS)
    if not isinstance(value, dict) or value.get("name") not in ranges.PROVIDERS:
        raise ValueError(f"provider: got {value!r}, expected a table with the name {known}")
    name, regions = value["name"], value.get("regions")
    if not isinstance(regions, dict) or not all(isinstance(r, str) for r in regions.values()):
        raise ValueError(f"provider {name}: regions: expected our name for each of its regions")
    return Provider(name, _url(f"provider {name}", value.get("url")), regions)


def _networks(value: object) -> tuple[tuple[Network, str], ...]:
    if not isinstance(value, dict) or not all(isinstance(nets, list) for nets in value.values()):
        raise ValueError("networks: expected a list of networks for each region")
    pairs = [(str(net), region) for region, nets in value.items() for net in nets]
    try:
        return tuple(networks.parse(pairs))
    except ValueError as error:
        raise ValueError(f"networks: {error}") from error


def _path(data: Mapping[str, Any], name: str, default: Path) -> Path:
    value = data.get(name, str(default))
    if not isinstance(value, str) or not value.startswith("/"):
        raise ValueError(f"{name}: got {value!r}, expected an absolute path")
    return Path(value)


def _seconds(data: Mapping[str, Any], name: str, default: float) -> float:
    value = data.get(name, default)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if not number or not 0.1 <= value <= 60:
        raise ValueError(f"{name}: got {value!r}, expected seconds from 0.1 to 60")
    return float(value)


def _rate(data: Mapping[str, Any]) -> int:
    value = data.get("read_rate", Config.read_rate)
    if not isinstance(value, int) or isinstance(value, bool) or not 0 < value <= 2**34:
        raise ValueError(f"read_rate: got {value!r}, expected bytes per second, 1 or more")
    return value
