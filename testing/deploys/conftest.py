"""Sites on blank machines, deployed over SSH by the operators' command."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.cluster import release
from testing.deploys.small import small_site

if TYPE_CHECKING:
    from collections.abc import Iterator

    from controller.cluster.release import Release
    from testing.deploys.site import Site


@pytest.fixture(scope="session")
def built() -> Release:
    """Return the release of this checkout; `./run-tests` has built it before."""
    return release.ensure()


@pytest.fixture(scope="session")
def small(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site for a story of deploys."""
    with small_site(tmp_path_factory.mktemp("small"), "deploys") as site:
        yield site


@pytest.fixture(scope="session")
def mirrored(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site with two mirrors."""
    with small_site(tmp_path_factory.mktemp("mirrored"), "mirrored", mirrors=True) as site:
        yield site


@pytest.fixture(scope="session")
def blank(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Yield the small site for runs that are refused."""
    with small_site(tmp_path_factory.mktemp("blank"), "blank") as site:
        yield site
