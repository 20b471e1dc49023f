"""Tests of the roles, by testinfra: on a throw-away host, on the cluster's, or on a site's."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from testinfra import backend

from testing.site import machine

if TYPE_CHECKING:
    from testing.site.machine import Machine

backend.BACKENDS["docker"] = "testing.roles.connection.EnteringBackend"


@pytest.fixture(scope="session")
def of_site() -> Machine | None:
    """Return the host as the inventory of its site has it; None if it is of no site."""
    return machine.this()
