"""Clients without an account see the public repositories and clone them from the object store."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from hgfleet.registry.model import schema

if TYPE_CHECKING:
    from pathlib import Path

    from testing.site.client import Client
    from testing.site.machine import Entrance

MOST_MANIFESTS: Final = 100
CLONES: Final = 3
"""Only a sample is cloned, so that a site with thousands of repositories takes a minute."""

MOST_BYTES: Final = 200_000_000
"""A repository with a larger bundle is in no sample."""

Offers = dict[str, dict[str, int]]


@pytest.fixture(scope="module")
def entrance(entrances: list[Entrance]) -> Entrance:
    if not entrances:
        pytest.skip("the inventory has neither a proxy nor web_public_url")
    return entrances[0]


@pytest.fixture(scope="module")
def public(client: Client, entrance: Entrance) -> list[str]:
    """Return the repositories that the site lists to all clients."""
    listed = client.json(entrance, "/api/repositories")["repositories"]
    return [str(repository["path"]) for repository in listed]


def manifest(client: Client, entrance: Entrance, path: str) -> list[str]:
    """Return the URLs that a client is offered, the first of its choice first."""
    answer = client.ask(entrance, f"/{path}?cmd=clonebundles")
    assert answer.status == 200, (path, answer)
    return [line.split()[0] for line in answer.body.splitlines() if line]


@pytest.fixture(scope="module")
def offers(client: Client, entrance: Entrance, public: list[str]) -> Offers:
    """Return the bundles of public repositories: path, URL, bytes (0 without an answer)."""
    bundles: Offers = {}
    for path in public[:MOST_MANIFESTS]:
        for url in manifest(client, entrance, path):
            answer = client.url(url, "HEAD")
            size = int(answer.headers.get("content-length", 0)) if answer.status == 200 else 0
            bundles.setdefault(path, {})[url] = size
    return bundles


def test_all_clients_see_the_public_repositories_of_the_registry_and_no_others(
    client: Client, entrance: Entrance, public: list[str], registry: str
) -> None:
    if not registry:
        pytest.skip("the inventory has no registry (mercurial_registry)")
    declared = schema.load(registry).repositories
    shown = {path for path, entry in declared.items() if entry.read == "public"}
    assert shown <= set(public)
    closed = sorted(set(declared) - shown)
    assert not set(closed) & set(public)
    missing = client.ask(entrance, "/hgfleet-test/missing?cmd=heads").status
    answers = {path: client.ask(entrance, f"/{path}?cmd=heads").status for path in closed}
    assert answers == dict.fromkeys(closed, missing)
    assert missing != 200


def test_every_bundle_on_offer_can_be_downloaded(offers: Offers) -> None:
    if not offers:
        pytest.skip("no public repository has a bundle on offer")
    dead = [url for bundles in offers.values() for url, size in bundles.items() if not size]
    assert dead == []


def test_clones_come_from_bundles_and_are_complete(
    client: Client, entrance: Entrance, offers: Offers, tmp_path: Path
) -> None:
    sizes = {path: max(bundles.values()) for path, bundles in offers.items()}
    sample = sorted((size, path) for path, size in sizes.items() if 0 < size <= MOST_BYTES)
    if not sample:
        pytest.skip("no public repository has a bundle on offer")
    for number, (_, path) in enumerate(sample[:CLONES]):
        heads = set(client.ask(entrance, f"/{path}?cmd=heads").body.split())
        place = str(tmp_path / str(number))
        cloned = client.hg("clone", "--noupdate", f"{entrance.url}/{path}", place).ok()
        used = re.search(r"applying clone bundle from (\S+)", cloned.output)
        assert used, f"the server computed the clone of {path}:\n{cloned}"
        # The health of a store may have changed the order since then.
        assert used[1] in {*offers[path], *manifest(client, entrance, path)}
        client.hg("-R", place, "verify", "--quiet").ok()
        has = client.hg("-R", place, "log", "-r", "head()", "-T", "{node}\n").ok().stdout.split()
        assert heads <= set(has), path
