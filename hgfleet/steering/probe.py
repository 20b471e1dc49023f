"""Rounds of probes: every endpoint at the same time, then the health file for hg to read."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import TYPE_CHECKING

from hgfleet.core import files
from hgfleet.steering import health
from hgfleet.steering.health import Condition, Findings, Health
from hgfleet.steering.manifest_watcher import ManifestWatcher
from hgfleet.steering.order import Endpoint, copies, endpoint_of
from hgfleet.steering.prober import Prober

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence
    from pathlib import Path

    from hgfleet.bundles.decide.manifest import Entry
    from hgfleet.steering.settings import Config


def run(config: Config, log: Callable[..., None], is_over: Callable[[float], bool]) -> None:
    """Probe until `is_over(seconds to wait)` is true; call `log(event, **fields)` for changes."""
    probers = [Prober(endpoint, config) for endpoint in config.endpoints]
    manifests = ManifestWatcher(config.manifests)
    written: tuple[int, ...] | None = None
    with ThreadPoolExecutor(max(1, len(probers)), "probe") as pool:
        while True:
            started = time.monotonic()
            added, removed = manifests.changes()
            shares = zip(
                share(added, config.endpoints), share(removed, config.endpoints), strict=True
            )
            before = [(prober.condition, dict(prober.objects.dead)) for prober in probers]
            for prober, (new, old) in zip(probers, shares, strict=True):
                prober.change(new, old)
            list(pool.map(Prober.round, probers))
            for prober, (condition, dead) in zip(probers, before, strict=True):
                _log_changes(prober, condition, dead, log)
            versions = tuple(prober.objects.version for prober in probers)
            if versions != written:
                write_findings(config.health, findings(probers))
                written = versions
            conditions = {prober.endpoint.name: prober.condition for prober in probers}
            write(config.health, Health(time.time(), conditions))
            if is_over(max(0.0, config.interval_seconds - (time.monotonic() - started))):
                return


def findings(probers: Iterable[Prober]) -> Findings:
    """Return the findings of all probers about objects; only copies are listed as read."""
    dead: dict[str, str] = {}
    read: set[str] = set()
    for prober in probers:
        dead |= prober.objects.dead
        if prober.endpoint.origin:
            read |= prober.objects.read
    return Findings(dead, read)


def share(entries: Sequence[Entry], endpoints: Sequence[Endpoint]) -> list[list[Entry]]:
    """Return the entries of each endpoint, in their order, with copies of other endpoints."""
    shares: dict[Endpoint, list[Entry]] = {endpoint: [] for endpoint in endpoints}
    for entry in entries:
        # A signature is valid for a single host, so a private object has no copies.
        others = [] if entry.private else copies(entry.url, endpoints)
        for url in (entry.url, *others):
            if (endpoint := endpoint_of(url, endpoints)) is not None:
                shares[endpoint].append(replace(entry, url=url))
    return list(shares.values())


def _log_changes(
    prober: Prober, before: Condition, was_dead: Mapping[str, str], log: Callable[..., None]
) -> None:
    name, now = prober.endpoint.name, prober.condition
    if now.is_up != before.is_up:
        log(
            "endpoint-up" if now.is_up else "endpoint-down",
            endpoint=name,
            reason=now.problem or None,
        )
    for url in prober.objects.dead.keys() - was_dead.keys():
        log("object-dead", endpoint=name, url=url, reason=prober.objects.dead[url])
    for url in was_dead.keys() - prober.objects.dead.keys():
        log("object-back", endpoint=name, url=url)


def write(path: Path, state: Health) -> None:
    """Replace the state of the endpoints atomically."""
    files.replace(path, health.dump(state), durable=False)


def write_findings(path: Path, findings: Findings) -> None:
    """Replace the findings about objects atomically, in the folder of the endpoints' state."""
    files.replace(health.objects_file(path), health.dump_findings(findings), durable=False)
