"""Sites on blank machines, deployed over SSH by the operators' command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from localcluster import release, settings

from testing.deploys.site import Site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from localcluster.release import Release


@pytest.fixture(scope="session")
def built() -> Release:
    """Return the release of this checkout; `./run-tests` has built it before."""
    return release.ensure()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site on four blank machines."""
    cluster = settings.load() or settings.ensure(running=False)
    site = Site.make(
        "production-small.example",
        tmp_path_factory.mktemp("small"),
        f"{cluster.name}-deploys",
        cluster.network.replace("10.213.", "10.215."),
    )
    site.start()
    yield site
    site.machines.remove()
