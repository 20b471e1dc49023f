"""Rounds of probes: every endpoint at the same time, then the health file for hg to read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.core import files
from hgfleet.steering import health
from hgfleet.steering.health import Condition, Health
from hgfleet.steering.manifest_watcher import ManifestWatcher
from hgfleet.steering.order import Endpoint, copies, endpoint_of
from hgfleet.steering.prober import Prober

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.manifest import Entry
    from hgfleet.steering.config import Config


def run(config: Config, say: Callable[..., None], is_over: Callable[[float], bool]) -> None:
    """Probe until `is_over(seconds to wait)` is true; call `say(event, **fields)` for changes."""
    probers = [Prober(endpoint, config) for endpoint in config.endpoints]
    manifests = ManifestWatcher(config.manifests)
    with ThreadPoolExecutor(max(1, len(probers)), "probe") as pool:
        while True:
            started = time.monotonic()
            shares = share(manifests.entries(), config.endpoints)
            before = [(prober.condition, prober.dead) for prober in probers]
            list(pool.map(Prober.round, probers, shares))
            for prober, (condition, dead) in zip(probers, before, strict=True):
                _tell_changes(prober, condition, dead, say)
            write(
                config.health,
                Health(
                    time.time(),
                    {prober.endpoint.name: prober.condition for prober in probers},
                    {url: why for prober in probers for url, why in prober.dead.items()},
                    frozenset(u for p in probers if p.endpoint.origin for u in p.read),
                ),
            )
            if is_over(max(0.0, config.interval_seconds - (time.monotonic() - started))):
                return


def share(entries: Sequence[Entry], endpoints: Sequence[Endpoint]) -> list[list[Entry]]:
    """Return the entries of each endpoint, in their order, with copies of other endpoints."""
    shares: dict[Endpoint, list[Entry]] = {endpoint: [] for endpoint in endpoints}
    for entry in entries:
        # A signature is for one host, so a private object has no copies.
        others = [] if entry.private else copies(entry.url, endpoints)
        for url in (entry.url, *others):
            if (endpoint := endpoint_of(url, endpoints)) is not None:
                shares[endpoint].append(replace(entry, url=url))
    return list(shares.values())


def _tell_changes(
    prober: Prober, before: Condition, was_dead: Mapping[str, str], say: Callable[..., None]
) -> None:
    name, now = prober.endpoint.name, prober.condition
    if now.is_up != before.is_up:
        say(
            "endpoint-up" if now.is_up else "endpoint-down",
            endpoint=name,
            reason=now.problem or None,
        )
    for url in prober.dead.keys() - was_dead.keys():
        say("object-dead", endpoint=name, url=url, reason=prober.dead[url])
    for url in was_dead.keys() - prober.dead.keys():
        say("object-back", endpoint=name, url=url)


def write(path: Path, state: Health) -> None:
    """Replace the health file atomically."""
    files.replace(path, health.dump(state), durable=False)
