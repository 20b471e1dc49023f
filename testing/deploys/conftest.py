"""Sites on blank machines, deployed over SSH by the operators' command."""

from __future__ import annotations

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


def started(folder: Path, kind: str, network: int) -> Iterator[Site]:
    """Yield the small site on four blank machines, which are removed afterwards."""
    cluster = settings.load() or settings.ensure(running=False)
    networks = cluster.network.replace("10.213.", f"10.{network}.")
    name = f"{cluster.name}-{kind}"
    site = Site.make("production-small.example", folder, name, networks)
    try:
        site.start()
        yield site
    finally:
        site.machines.remove()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site for a story of deploys."""
    yield from started(tmp_path_factory.mktemp("small"), "deploys", 215)


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site for runs that are refused."""
    yield from started(tmp_path_factory.mktemp("blank"), "blank", 217)
