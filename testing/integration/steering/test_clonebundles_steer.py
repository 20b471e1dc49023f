"""Steering in a real hg: the order of the manifest for each client."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.manifest import Entry
from hgfleet.steering import networks_file
from hgfleet.steering import settings as config
from hgfleet.steering.order import Endpoint
from testing.integration.steering.site import IDENTITY, REPOSITORY, SteeredSite, own
from testing.integration.support.store import NOW, Store

if TYPE_CHECKING:
    from pathlib import Path


NEAR = Endpoint("eu", "https://eu.example", "eu")
FAR = Endpoint("us", "https://us.example", "us")


@pytest.fixture
def site(tmp_path: Path) -> SteeredSite:
    return SteeredSite(tmp_path, "clonebundles_steer")


def entry(url: str, spec: str) -> Entry:
    return Entry(url, spec, "0" * 64, 10, 3, NOW)


EU_STREAM = entry("https://eu.example/s.hg", "none-v2;stream=v2;requirements%3Drevlogv1")
EU_ZSTD = entry("https://eu.example/z.hg", "zstd-v2")
US_STREAM = entry("https://us.example/s.hg", "none-v2;stream=v2;requirements%3Drevlogv1")
US_ZSTD = entry("https://us.example/z.hg", "zstd-v2")
ALL = (EU_STREAM, US_STREAM, EU_ZSTD, US_ZSTD)
NETWORKS = 'us = ["192.0.2.0/24"]\neu = ["198.51.100.0/24"]'


@pytest.mark.parametrize("command", [b"clonebundles", b"clonebundles_manifest"])
def test_a_client_is_told_of_its_own_region_first(site: SteeredSite, command: bytes) -> None:
    site.steer((NEAR, FAR), networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", "us")
    near = [bundle.url for bundle in (US_STREAM, US_ZSTD, EU_ZSTD, EU_STREAM)]
    assert site.told("192.0.2.9", command) == near
    assert site.told("198.51.100.9", command)[0] == EU_STREAM.url
    assert site.told("203.0.113.9", command)[0] == EU_ZSTD.url


def test_a_client_is_not_told_of_objects_that_do_not_answer(site: SteeredSite) -> None:
    site.steer((NEAR, FAR), networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", dead={EU_STREAM.url: "the answer is 404"})
    assert site.told() == [EU_ZSTD.url]


def test_a_client_is_told_of_copies_that_have_been_read(site: SteeredSite) -> None:
    cdn = Endpoint("cdn", "https://cdn.example/edge", is_cdn=True, origin="eu")
    site.steer((NEAR, FAR, cdn), networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", "us", "cdn", read=f"{cdn.url}/z.hg")
    assert site.told("203.0.113.9")[:2] == [f"{cdn.url}/z.hg", EU_ZSTD.url]
    # It has the digest and everything else of the line that it is a copy of.
    site.probed("cdn", read=f"{cdn.url}/z.hg")
    assert site.told("203.0.113.9") == [f"{cdn.url}/z.hg"]
    assert site.lines("203.0.113.9") == [
        own(EU_ZSTD).line().replace(EU_ZSTD.url, f"{cdn.url}/z.hg").encode()
    ]


@pytest.mark.parametrize("age", [60, -60])
def test_without_a_current_probe_a_client_is_told_of_nothing(site: SteeredSite, age: float) -> None:
    site.steer((NEAR, FAR))
    site.publish(*ALL)
    assert site.told() == []
    site.probed("eu", "us", age=age)
    assert site.told() == []
    site.health.write_text("{")
    assert site.told() == []


def test_without_settings_the_manifest_is_passed_on(site: SteeredSite) -> None:
    site.publish(*ALL)
    assert site.told() == [bundle.url for bundle in ALL]


@pytest.mark.parametrize("command", [b"clonebundles", b"clonebundles_manifest"])
def test_a_client_is_told_of_bundles_of_this_repository_alone(
    site: SteeredSite, command: bytes
) -> None:
    """The manifest is for a former repository at the same path, or for former readers."""
    site.publish(EU_ZSTD, replace(US_ZSTD, identity="9a" * 16))
    assert site.told(command=command) == [EU_ZSTD.url]
    # Made again at its path, and known or not yet known to the registry.
    (site.control / "store/identity").write_text("9a" * 16 + "\n")
    assert site.told(command=command) == []
    site.readers("public", known_as="9a" * 16)
    assert site.told(command=command) == [US_ZSTD.url]
    (site.control / "store/identity").unlink()
    assert site.told(command=command) == []
    (site.control / "store/identity").write_text(f"{IDENTITY}\n")
    site.readers(("team",))
    private = entry(f"https://us.example/{IDENTITY}/{'a' * 40}.{'b' * 16}.zstd-v2.hg", "zstd-v2")
    site.publish(EU_ZSTD, replace(private, private=True))
    assert site.told(command=command) == [private.url]
    site.readers("public")
    assert site.told(command=command) == [EU_ZSTD.url]
    # Nothing says who may read it.
    site.registry.unlink()
    assert site.told(command=command) == []


def test_inline_bundles_stay_in_front(site: SteeredSite) -> None:
    site.steer((NEAR, FAR))
    site.publish(EU_ZSTD)
    site.publish(b"peer-bundle-cache://x.hg BUNDLESPEC=zstd-v2", EU_ZSTD)
    site.probed()
    assert site.told(command=b"clonebundles_manifest") == ["peer-bundle-cache://x.hg"]


def test_a_clone_avoids_an_endpoint_that_is_down(site: SteeredSite) -> None:
    store = Store()
    try:
        site.steer([Endpoint("one", store.url)])
        site.hg_in(REPOSITORY, "commit", "--message", "x")
        site.publish(store.put("bundle.hg", b"x"))
        site.probed()
        said = site.clone("clone")
    finally:
        store.stop()
    assert "clone bundle" not in said
    assert site.hg("-R", site.root / "clone", "log", "-T", "{desc}") == "x"
    assert store.requests == []


def test_a_session_does_not_build_the_table_that_the_prober_keeps(site: SteeredSite) -> None:
    settings = site.root / "steering.toml"
    site.steer((NEAR, FAR), networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", "us")
    # An extension that notes each table that a session builds.
    built = site.root / "built"
    (site.root / "spy.py").write_text(
        "from hgfleet.steering import networks\n"
        "flatten = networks.flatten\n"
        "def noted(*arguments):\n"
        f"    open({str(built)!r}, 'a').write('built')\n"
        "    return flatten(*arguments)\n"
        "networks.flatten = noted\n"
    )
    with site.hgrc.open("a") as file:
        file.write(f"[extensions]\nspy = {site.root / 'spy.py'}\n")
    assert site.told("192.0.2.9")[0] == US_STREAM.url
    assert built.exists()
    built.unlink()

    networks_file.write(settings, config.load(settings))

    assert site.told("192.0.2.9")[0] == US_STREAM.url
    assert site.told("198.51.100.9")[0] == EU_STREAM.url
    assert not built.exists()
