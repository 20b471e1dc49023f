"""What tests of every tier share.

Conventions: one file per module (`testing/unit/<package>/test_<module>.py`), names that say what is
true (`test_a_disabled_person_has_no_keys`), no bare sleep (`wait_for`), no network in unit
tests, and nothing written outside `tmp_path`.
"""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING, Protocol, TypeVar

import pytest

from hgfleet.core import trace
from testing.support.pace import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


@pytest.fixture(autouse=True)
def _no_session() -> Iterator[None]:
    """End the session or request that a test has begun in this process."""
    yield
    trace.begin("")


class WaitFor(Protocol):
    """The type of the fixture `wait_for`."""

    def __call__(
        self, what: str, probe: Callable[[], T], seconds: float = 30, every: float = 0.2
    ) -> T: ...


@pytest.fixture(scope="session")
def wait_for() -> WaitFor:
    """Wait until a probe returns something true, and return that; `seconds` of a quiet machine.

    A probe may raise AssertionError or OSError for "not yet"; the last of them is what a test that
    runs out of time shows.
    """

    def wait(what: str, probe: Callable[[], T], seconds: float = 30, every: float = 0.2) -> T:
        deadline = Deadline(seconds)
        last: object = None
        while True:
            try:
                last = result = probe()
                if result:
                    return result
            except (AssertionError, OSError) as error:
                last = error
            if deadline.is_over():
                pytest.fail(f"{what}: not within {deadline}; the last answer was: {last!r}")
            time.sleep(every)

    return wait


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip what needs root where there is none, and say so."""
    if item.get_closest_marker("root") and os.geteuid() != 0:
        pytest.skip("needs root: it changes owners of files")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Offer the choice between the gate and the whole."""
    parser.addoption(
        "--gate", action="store_true", help="leave out tests marked `whole`, as ./run-tests does"
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests that stop or restart hosts after all others; the order is stable otherwise.

    With --gate the tests marked `whole` are deselected.
    """
    if config.getoption("--gate"):
        whole = [item for item in items if item.get_closest_marker("whole")]
        config.hook.pytest_deselected(items=whole)
        items[:] = [item for item in items if not item.get_closest_marker("whole")]
    items.sort(key=lambda item: item.get_closest_marker("disruptive") is not None)
