"""Deliberate faults on the running cluster, each undone at the end of its test.

    ./run-tests faults                       brings the cluster up to date first
    .venv/bin/python -m pytest -p testing.e2e.conftest testing/faults
    .venv/bin/python -m pytest -p testing.e2e.conftest testing/faults -n 2 --no-loadscope-reorder

The cluster, its people, the journals of a failure and the turns of workers come from the end-to-end
tests. While a worker stops stores, the other worker may break logins; tests of stores log in under
the lock of the fixture `logins`.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import STATE
from testing.e2e.command import wait_until
from testing.e2e.turns import Turns
from testing.faults.support import SECONDS_TO_RECOVER, Faults, all_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.cluster import Cluster


@pytest.fixture(scope="session")
def logins() -> Turns:
    """The lock of logins: tests that log in share it, a fault of logins takes it exclusively."""
    return Turns(STATE, "logins")


@pytest.fixture
def faults(cluster: Cluster, logins: Turns) -> Iterator[Faults]:
    """Break logins, or the logs that logins write, for the length of a test."""
    with logins.turn(alone=True):
        with ExitStack() as stack:
            yield Faults(cluster, stack)
        host = cluster.first("ssh")
        wait_until(
            "every directory server answers lookups",
            lambda: all_answer(host),
            SECONDS_TO_RECOVER,
        )
        alice = cluster.person("alice")
        wait_until("alice is served", lambda: alice.ssh("whoami").ok(), SECONDS_TO_RECOVER)


@pytest.fixture
def store_faults(cluster: Cluster) -> Iterator[Faults]:
    """Break stores for the length of a test; no login depends on them."""
    with ExitStack() as stack:
        yield Faults(cluster, stack)
