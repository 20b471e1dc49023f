"""Sites on blank machines, deployed over SSH by the operators' command."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest
from localcluster import release, settings

from testing.deploys.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from localcluster.release import Release


@pytest.fixture(scope="session")
def built() -> Release:
    """Return the release of this checkout; `./run-tests` has built it before."""
    return release.ensure()


def started(folder: Path, kind: str, network: int, *, mirrors: bool = False) -> Iterator[Site]:
    """Yield the small site on blank machines, which are removed afterwards."""
    cluster = settings.load() or settings.ensure(running=False)
    networks = cluster.network.replace("10.213.", f"10.{network}.")
    name = f"{cluster.name}-{kind}"
    site = Site.make("production-small.example", folder, name, networks)
    if mirrors:
        site.edit("hosts.yml", with_mirrors)
    try:
        site.start()
        yield site
    finally:
        site.machines.remove()


def with_mirrors(hosts: str) -> str:
    """Return the small site's hosts.yml with two mirrors, and a broker beside the directory."""
    lines = hosts.replace("# broker1.example.org:", "ldap1.example.org:")
    commented = re.search(r" +# hgweb1\.example\.org:\n +#   base_address: \S+\.41\n", lines)
    assert commented, hosts
    first = commented[0].replace("# ", "", 1).replace("#   ", "  ")
    second = first.replace("hgweb1", "hgweb2").replace(".41\n", ".42\n")
    return lines.replace(commented[0], first + second)


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site for a story of deploys."""
    yield from started(tmp_path_factory.mktemp("small"), "deploys", 215)


@pytest.fixture(scope="session")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site with two mirrors."""
    yield from started(tmp_path_factory.mktemp("mirrored"), "mirrored", 218, mirrors=True)


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site for runs that are refused."""
    yield from started(tmp_path_factory.mktemp("blank"), "blank", 217)
