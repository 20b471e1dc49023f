"""Hooks of pytest for tests that share the cluster: turns, and the end of a run that broke it.

If a disruptive test leaves the cluster broken, all later tests would fail, each after its
deadlines. So the run ends there, and names the test and the broken part.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import STATE
from controller.cluster.marks import Mark
from testing.e2e import well
from testing.e2e.cluster import Cluster
from testing.e2e.turns import RESOURCES, PartScheduling, Turns, order, wants_of

if TYPE_CHECKING:
    from collections.abc import Generator

TURNS = pytest.StashKey[Turns]()
MARK = pytest.StashKey[Mark]()
BROKEN = pytest.StashKey[str]()


def pytest_configure(config: pytest.Config) -> None:
    """Share the locks of this checkout's cluster with the other workers."""
    config.stash[TURNS] = Turns(STATE, "tests", RESOURCES)


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> PartScheduling:
    """Distribute parts, not tests."""
    return PartScheduling(config, log)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the longest part; tests that need the whole cluster come last."""
    items.sort(key=lambda item: order(item.nodeid))


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol(
    item: pytest.Item, nextitem: pytest.Item | None
) -> Generator[None, object, object]:
    """Wait for the turn of a test; several exclusive tests in a row share a turn."""
    turns, wanted = item.config.stash[TURNS], wants_of(item)
    turns.enter(alone=wanted.alone, shared=wanted.shared)
    try:
        return (yield)
    finally:
        reason = item.stash.get(BROKEN, "")
        if reason:
            item.session.shouldstop = reason
            if mark := item.config.stash.get(MARK, None):
                mark.keep(reason)
        # A worker that stops leaves its turn: the others would wait for the end of its process.
        if reason or nextitem is None or not wanted.alone or wants_of(nextitem) != wanted:
            turns.leave()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> Generator[None, None, None]:
    """After a disruptive test and its teardown, check that the cluster is well."""
    try:
        yield
    finally:
        cluster = getattr(item, "funcargs", {}).get("cluster")
        if item.get_closest_marker("disruptive") and isinstance(cluster, Cluster):
            # The first run of the failed test has already waited.
            seconds = 0 if item.stash.get(BROKEN, "") else well.SECONDS
            item.stash[BROKEN] = ""
            try:
                well.wait(cluster, seconds)
            except AssertionError as error:
                item.stash[BROKEN] = f"after {item.nodeid}: {error}. See ./cluster status"
                pytest.fail(f"{item.stash[BROKEN]}; no further test runs", pytrace=False)


def pytest_sessionfinish(session: pytest.Session) -> None:
    """Leave the turn, which a run that ends at a failure still has."""
    if turns := session.config.stash.get(TURNS, None):
        turns.leave()
