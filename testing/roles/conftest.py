"""Tests of the roles, by testinfra: on a throw-away host, or on hosts of the cluster or a site."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testinfra import backend

from controller.cluster import settings
from controller.cluster.lock import undisturbed
from testing.site import machine

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.site.machine import Machine

backend.BACKENDS["docker"] = "testing.roles.connection.EnteringBackend"


@pytest.fixture(scope="session")
def of_site() -> Machine | None:
    """Return the host as its site's inventory describes it; None if it belongs to no site."""
    return machine.this()


@pytest.fixture(scope="session", autouse=True)
def _mark_on_the_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Keep a mark while a host of the cluster is tested: some tests stop its units."""
    tested, known = request.config.getoption("--hosts") or "", settings.load()
    if known and settings.is_container_of(known, tested.removeprefix("docker://")):
        with undisturbed(f"tests of the roles of {tested}"):
            yield
    else:
        yield
