"""Tests of the roles, by testinfra: on a throw-away host, on the cluster's, or on a site's."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from localcluster import settings
from localcluster.lock import undisturbed
from testinfra import backend

from testing.site import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testing.site.machine import Machine

FOLDER: Final = Path(__file__).parent

backend.BACKENDS["docker"] = "testing.roles.connection.EnteringBackend"


@pytest.fixture(scope="session")
def of_site() -> Machine | None:
    """Return the host as the inventory of its site has it; None if it is of no site."""
    return machine.this()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave the tests of roles out of the gate on hosts of the cluster.

    Scenarios run each file of this folder (a unit test of the runner says so), and not with --gate.
    """
    for item in items:
        if item.path.parent == FOLDER:
            item.add_marker(pytest.mark.whole)


@pytest.fixture(scope="session", autouse=True)
def _mark_on_the_cluster(request: pytest.FixtureRequest) -> Iterator[None]:
    """Have a mark while a host of the cluster is tested: some tests stop its units."""
    tested, known = request.config.getoption("--hosts") or "", settings.load()
    if known and settings.is_container_of(known, tested.removeprefix("docker://")):
        with undisturbed(f"tests of the roles of {tested}"):
            yield
    else:
        yield
