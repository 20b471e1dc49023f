"""Tests of the roles, by testinfra: on a throw-away host, on the cluster's, or on a site's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from bootstrap import ROOT
from localcluster import settings
from localcluster.lock import undisturbed
from testinfra import backend

from testing.runner.hosts import tests_of_scenarios
from testing.site import machine

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testing.site.machine import Machine

backend.BACKENDS["docker"] = "testing.roles.connection.EnteringBackend"


@pytest.fixture(scope="session")
def of_site() -> Machine | None:
    """Return the host as the inventory of its site has it; None if it is of no site."""
    return machine.this()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Leave the files that scenarios run out of the gate: its scenarios do not run with --gate."""
    proven = tests_of_scenarios()
    for item in items:
        if str(item.path.relative_to(ROOT)) in proven:
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
