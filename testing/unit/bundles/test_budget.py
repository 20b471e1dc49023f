from __future__ import annotations

import threading
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.hg.budget import (
    CLONE,
    MIB,
    Bounds,
    Gate,
    Need,
    Room,
    admits,
    estimate,
    required_ram,
    room_needed,
)

if TYPE_CHECKING:
    from testing.conftest import WaitFor

BOUNDS = Bounds(cpus=2, memory=300 * MIB)


def test_processors_and_memory_are_both_bounds() -> None:
    small = Need(memory=100 * MIB)
    assert admits(BOUNDS, [small], small)
    assert not admits(BOUNDS, [small, small], small)
    assert not admits(BOUNDS, [small], Need(memory=201 * MIB))
    assert admits(BOUNDS, [small], Need(memory=200 * MIB))


def test_what_is_larger_than_all_bounds_runs_alone() -> None:
    large = Need(cpus=8, memory=10_000 * MIB)
    assert admits(BOUNDS, [], large)
    assert not admits(BOUNDS, [Need()], large)
    assert not admits(BOUNDS, [large], Need())


@pytest.mark.parametrize("step", ["zstd", "gzip", CLONE])
def test_memory_grows_with_the_repository_but_for_a_stream(step: str) -> None:
    assert estimate(step, 10_000 * MIB).memory > estimate(step, 10 * MIB).memory
    assert estimate("stream", 10_000 * MIB) == estimate("stream", 0)


def test_high_levels_of_zstd_take_memory() -> None:
    memory = [estimate("zstd", 0, level).memory for level in (1, 3, 10, 16, 20, 22)]
    assert memory == sorted(memory)
    assert memory[-1] > 250 * MIB
    assert estimate("gzip", 0, 22) == estimate("gzip", 0, 1)


@pytest.mark.parametrize(
    ("kind", "level", "window"),
    [("zstd", 19, 0), ("zstd", 20, 32), ("zstd", 21, 64), ("zstd", 22, 128), ("gzip", 22, 0)],
)
def test_clients_are_told_of_large_windows_alone(kind: str, level: int, window: int) -> None:
    needed = required_ram(kind, level)
    assert needed >= window * MIB
    assert (needed > 0) is (window > 0)


def test_room_is_for_the_snapshot_each_bundle_and_a_clone_for_each_store() -> None:
    assert room_needed(100, kinds=3) - MIB == 100 + 3 * 100 + 3 * 100


def test_the_gate_lets_in_as_many_as_fit() -> None:
    gate, inside, most = Gate(BOUNDS), [], []
    lock, both = threading.Lock(), threading.Barrier(2)

    def work() -> None:
        with gate.enter(Need(memory=100 * MIB)):
            with lock:
                inside.append(1)
                most.append(len(inside))
            both.wait(10)
            with lock:
                inside.pop()

    threads = [threading.Thread(target=work) for _ in range(6)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert max(most) == 2
    assert len(most) == 6


def test_a_large_step_is_not_overtaken_for_ever(wait_for: WaitFor) -> None:
    gate, order = Gate(BOUNDS), []
    first_is_in, go = threading.Event(), threading.Event()

    def work(name: str, need: Need) -> None:
        with gate.enter(need):
            order.append(name)
            if name == "first":
                first_is_in.set()
                go.wait(10)

    first = threading.Thread(target=work, args=("first", Need()))
    first.start()
    assert first_is_in.wait(10)
    large = threading.Thread(target=work, args=("large", Need(cpus=2)))
    large.start()
    wait_for("the large step to wait", lambda: gate.waiting == 1)
    small = threading.Thread(target=work, args=("small", Need()))
    small.start()
    wait_for("the small step to wait", lambda: gate.waiting == 2)
    assert order == ["first"]
    go.set()
    for thread in (first, large, small):
        thread.join(10)
    assert order == ["first", "large", "small"]


def test_room_that_is_taken_is_taken() -> None:
    room = Room(100)
    assert room.take(60)
    assert not room.take(60)
    room.give(60)
    assert room.take(100)
