"""The networks of cloud providers, fetched daily and kept until a good newer file arrives."""

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

    from hgfleet.steering.networks import Network
    from hgfleet.steering.settings import Config, Provider

FORMAT: Final = 1
INTERVAL: Final = 86_400.0
"""Seconds between two downloads; providers change their files a few times a week."""

MAX_BYTES: Final = 32 * 1024 * 1024
"""The most bytes of a file; the largest published file has some 5 MB."""

TIMEOUT: Final = 60.0
"""Timeout of each wait for a provider, in seconds."""


def load(config: Config) -> list[tuple[Network, str]]:
    """Return the networks of those providers in the settings that were fetched so far."""
    parsed: list[tuple[Network, str]] = []
    for provider in config.providers:
        kept = _kept(config.state, provider)
        parsed += networks.parse([(net, region) for net, region in kept[0]]) if kept else []
    return parsed


def refresh(config: Config, log: Callable[..., None]) -> None:
    """Fetch every provider's file; a bad file is reported, and the file before is kept."""
    for provider in config.providers:
        kept = _kept(config.state, provider)
        try:
            before = kept[1] if kept else 0
            data = _fetch(config, provider)
            parsed, total = ranges.read(provider.name, data, provider.regions, before)
        except (ranges.BadRangesError, OSError, ValueError) as error:
            log("ranges-refused", provider=provider.name, reason=error)
            continue
        text = json.dumps(
            {
                "format": FORMAT,
                "regions": dict(sorted(provider.regions.items())),
                "count": total,
                "networks": [[str(net), region] for net, region in parsed],
            }
        )
        files.replace(_path(config.state, provider), text)
        log("ranges", provider=provider.name, networks=len(parsed), published=total)


def _fetch(config: Config, provider: Provider) -> object:
    context = ssl.create_default_context(cafile=str(config.ca))
    opener = urllib.request.build_opener(urllib.request.HTTPSHandler(context=context))
    with opener.open(provider.url, timeout=TIMEOUT) as answer:
        text = answer.read(MAX_BYTES + 1)
    if len(text) > MAX_BYTES:
        raise ranges.BadRangesError(f"{provider.name}: more than {MAX_BYTES:,} bytes")
    return json.loads(text)


def paths(config: Config) -> list[Path]:
    """Return the files with the networks of the providers."""
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
