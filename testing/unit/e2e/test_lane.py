"""testing/e2e/lane.py and well.py: the look at the cluster after a disruptive test."""

from __future__ import annotations

import contextlib
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from controller.cluster import marks
from testing.e2e import lane, well
from testing.e2e.cluster import Cluster
from testing.e2e.turns import RESOURCES, Turns

if TYPE_CHECKING:
    from pathlib import Path

# --- parts that are not well ------------------------------------------------------------------


def test_a_failed_daemon_counts_and_a_job_that_is_started_again_does_not() -> None:
    shown = """Id=hgfleet-relay.service
TriggeredBy=

Id=hgfleet-backup.service
TriggeredBy=hgfleet-backup.timer
"""
    assert well.daemons(shown) == ["hgfleet-relay.service"]
    assert well.daemons("") == []


def row(name: str, state: str) -> str:
    """Return a row of HAProxy's statistics; the state is its 18th field."""
    return ",".join(["web", name, *["0"] * 15, state, "1"])


def test_a_web_host_without_readers_is_named_with_its_state() -> None:
    rows = [row("hg1", "UP"), row("hgweb1", "UP 1/2"), row("BACKEND", "UP")]
    assert well.unused("\n".join(["# pxname,svname", *rows])) == []
    told = well.unused("\n".join([*rows, row("hgweb2", "DOWN")]))
    assert told == ["the proxy sends no readers to hgweb2: DOWN"]


def test_a_proxy_that_says_nothing_is_not_well() -> None:
    assert well.unused("")


def test_a_host_that_does_not_run_is_named_with_its_state() -> None:
    shown = "hg1 running\nhgweb1 paused\nclient running\n"
    assert well.absent(shown, ["hg1"]) == []
    assert well.absent(shown, ["hg1", "hgweb1", "hgweb2"]) == [
        *("hgweb1 is paused", "hgweb2 is missing"),
    ]


# --- after a test -----------------------------------------------------------------------------


class Lane:
    """A test in a worker, whose cluster is well or not."""

    def __init__(self, state: Path, *marked: str) -> None:
        self.found: list[str] = []
        self.looks: list[float] = []
        config = SimpleNamespace(stash=pytest.Stash())
        config.stash[lane.TURNS] = self.turns = Turns(state, "tests", RESOURCES)
        config.stash[lane.MARK] = self.mark = marks.Mark("tests")
        names = {name: SimpleNamespace(name=name, args=()) for name in marked}
        self.item: Any = SimpleNamespace(
            nodeid="testing/e2e/test_x.py::test_x",
            funcargs={"cluster": Cluster({})},
            get_closest_marker=names.get,
            iter_markers=lambda: iter(names.values()),
            stash=pytest.Stash(),
            session=SimpleNamespace(shouldstop=False),
            config=config,
        )

    def wait(self, _cluster: Cluster, seconds: float) -> None:
        self.looks.append(seconds)
        assert not self.found, "; ".join(self.found)

    def tear_down(self) -> None:
        """End the test as pytest does."""
        hook = lane.pytest_runtest_teardown(self.item)
        next(hook)
        with contextlib.suppress(StopIteration):
            hook.send(None)

    def run(self, *ends: list[str]) -> None:
        """Run the test, and again for each further state of the cluster at its end."""
        hook = lane.pytest_runtest_protocol(self.item, self.item)
        next(hook)
        for self.found in ends:
            with contextlib.suppress(pytest.fail.Exception):
                self.tear_down()
        with contextlib.suppress(StopIteration):
            hook.send(None)


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that takes the place of .cluster."""
    monkeypatch.setattr(marks, "STATE", tmp_path)
    return tmp_path


@pytest.fixture
def disruptive(state: Path, monkeypatch: pytest.MonkeyPatch) -> Lane:
    new_lane = Lane(state, "disruptive")
    monkeypatch.setattr(well, "wait", new_lane.wait)
    return new_lane


def test_a_cluster_that_is_not_well_fails_the_test_and_names_what_is_not(disruptive: Lane) -> None:
    disruptive.found = ["hgfleet-relay.service on hg1 has failed"]
    with pytest.raises(pytest.fail.Exception) as told:
        disruptive.tear_down()
    for words in ("hgfleet-relay.service on hg1", "after testing/e2e/test_x.py::test_x", "status"):
        assert words in str(told.value)


def test_the_lane_stops_and_leaves_its_mark_and_its_turn(state: Path, disruptive: Lane) -> None:
    disruptive.run(["hgweb1 is paused"])
    assert "hgweb1 is paused" in disruptive.item.session.shouldstop
    other = Turns(state, "tests", RESOURCES)
    other.enter(alone=RESOURCES)  # it would wait for ever if the worker had kept its turn
    disruptive.mark.end()
    (left,) = marks.left()
    assert "hgweb1 is paused" in left.reason


def test_a_cluster_that_is_well_lets_the_lane_go_on(disruptive: Lane) -> None:
    disruptive.run([])
    assert disruptive.looks == [well.SECONDS]
    assert not disruptive.item.session.shouldstop
    disruptive.mark.end()
    assert marks.left() == []


def test_a_second_run_that_leaves_the_cluster_well_lets_the_lane_go_on(disruptive: Lane) -> None:
    disruptive.run(["hgweb1 is paused"], [])
    assert disruptive.looks == [well.SECONDS, 0]
    assert not disruptive.item.session.shouldstop


def test_other_tests_cost_no_look(state: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    new_lane = Lane(state, "alone")
    monkeypatch.setattr(well, "wait", new_lane.wait)
    new_lane.run(["hgweb1 is paused"])
    assert new_lane.looks == []
