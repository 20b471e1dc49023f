"""Faults made on purpose on the running cluster, each taken back whatever happens.

    ./run-tests faults                       brings the cluster up to date first
    .venv/bin/python -m pytest -p testing.e2e.conftest testing/faults

The cluster, its people and the journals of a failure are those of the end-to-end tests.
"""

from __future__ import annotations

from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from testing.e2e.support import wait_until
from testing.faults.support import SECONDS_TO_RECOVER, Faults, all_answer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.support import Cluster


@pytest.fixture
def faults(cluster: Cluster) -> Iterator[Faults]:
    """Break things for the length of a test; afterwards everybody is served as before."""
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
