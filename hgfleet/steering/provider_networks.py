"""The networks of cloud providers, fetched once a day and kept until a better file comes."""

from __future__ import annotations

import json
import ssl
import urllib.request
from typing import TYPE_CHECKING, Final

from hgfleet.core import files
from hgfleet.steering import networks, ranges

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from hgfleet.steering.config import Config, Provider
    from hgfleet.steering.networks import Network

FORMAT: Final = 1
INTERVAL: Final = 86_400.0
"""Seconds between two downloads; providers change their files some times a week."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of one file; the largest published one has some 5 MB."""

TIMEOUT: Final = 60.0
"""Seconds that each wait for a provider may take."""


def load(config: Config) -> list[tuple[Network, str]]:
    """Return the networks of all providers in the settings, as far as they were fetched."""
    found: list[tuple[Network, str]] = []
    for provider in config.providers:
        kept = _kept(config.state, provider)
        found += networks.parse([(net, region) for net, region in kept[0]]) if kept else []
    return found


def refresh(config: Config, say: Callable[..., None]) -> None:
    """Fetch every provider's file; a refused file is reported, and the file before stays."""
    for provider in config.providers:
        kept = _kept(config.state, provider)
        try:
            before = kept[1] if kept else 0
            data = _fetch(config, provider)
            found, total = ranges.read(provider.name, data, provider.regions, before)
        except (ranges.BadRangesError, OSError, ValueError) as error:
            say("ranges-refused", provider=provider.name, reason=error)
            continue
        text = json.dumps(
            {
                "format": FORMAT,
                "regions": dict(sorted(provider.regions.items())),
                "count": total,
                "networks": [[str(net), region] for net, region in found],
            }
        )
        files.replace(_path(config.state, provider), text)
        say("ranges", provider=provider.name, networks=len(found), published=total)


def _fetch(config: Config, provider: Provider) -> object:
    context = ssl.create_default_context(cafile=str(config.ca))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    with opener.open(provider.url, timeout=TIMEOUT) as answer:
        text = answer.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ranges.BadRangesError(f"{provider.name}: more than {MAX_BYTES:,} bytes")
    return json.loads(text)


def paths(config: Config) -> list[Path]:
    """Return the files that keep the networks of the providers."""
    return [_path(config.state, provider) for provider in config.providers]


def _path(state: Path, provider: Provider) -> Path:
    return state / f"ranges-{provider.name}.json"


def _kept(state: Path, provider: Provider) -> tuple[list[tuple[str, str]], int] | None:
    """Return the networks and the total of the file before; None if its regions differ."""
    try:
        data = json.loads(_path(state, provider).read_text("utf-8"))
        if data["format"] != FORMAT or data["regions"] != dict(provider.regions):
            return None
        return [(str(net), str(region)) for net, region in data["networks"]], int(data["count"])
    except (OSError, ValueError, KeyError, TypeError):
        return None
