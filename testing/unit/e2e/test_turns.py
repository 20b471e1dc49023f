"""testing/e2e/turns.py: parts of end-to-end tests, their order, and tests that exclude others."""

from __future__ import annotations

import fcntl
import threading
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from testing.e2e import turns
from testing.e2e.turns import Wants

if TYPE_CHECKING:
    from testing.conftest import WaitFor

EVERYTHING = frozenset(turns.RESOURCES)
FOLDERS = [Path(__file__).parents[2] / name for name in ("e2e", "faults")]


def test_every_file_of_a_part_exists() -> None:
    files = {path.stem for folder in FOLDERS for path in folder.rglob("test_*.py")}
    named = [file for part in turns.PARTS.values() for file in part]
    assert set(named) <= files
    assert len(named) == len(set(named)), "a file is in two parts"


def test_a_file_in_no_part_is_a_part_of_its_own() -> None:
    assert turns.part_of("testing/e2e/test_push.py::test_x[a/b]") == "people"
    assert turns.part_of("testing/e2e/test_policies.py::test_x") == "test_policies"


# --- marks ------------------------------------------------------------------------------------


def test_a_test_without_marks_uses_everything_with_others() -> None:
    assert turns.wants([]) == Wants(frozenset(), EVERYTHING)
    others = [("slow", ()), ("parametrize", ("number", [[1], [2]]))]
    assert turns.wants(others) == Wants(frozenset(), EVERYTHING)  # type: ignore[arg-type]


@pytest.mark.parametrize("mark", ["alone", "disruptive"])
def test_a_mark_names_what_a_test_has_to_itself(mark: str) -> None:
    assert turns.wants([(mark, ())]) == Wants(EVERYTHING, frozenset())
    assert turns.wants([(mark, ())]).whole
    wants = turns.wants([(mark, ("stores",))])
    assert wants == Wants(frozenset({"stores"}), EVERYTHING - {"stores"})
    assert not wants.whole


def test_a_test_may_do_without_a_resource() -> None:
    wants = turns.wants([("without", ("monitoring",)), ("disruptive", ("stores",))])
    assert wants == Wants(frozenset({"stores"}), frozenset({"rest"}))


@pytest.mark.parametrize("mark", ["alone", "without"])
def test_an_unknown_resource_is_an_error(mark: str) -> None:
    with pytest.raises(ValueError, match=r"got \['store'\], expected some of .*stores"):
        turns.wants([(mark, ("store",))])


FILE = """
import pytest
pytestmark = [pytest.mark.without("monitoring"), pytest.mark.slow]
@pytest.mark.alone
def test_alone(): ...
@pytest.mark.parametrize("x", [1])
@pytest.mark.disruptive("stores")
def test_stores(x): ...
@pytest.mark.disruptive
class TestAll:
    def test_x(self): ...
def test_shared(): ...
"""


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with a file of tests."""
    (tmp_path / "test_x.py").write_text(FILE)
    return tmp_path


def test_marks_are_read_from_the_file(root: Path) -> None:
    wanted = {
        name: turns.wants_of_id(f"test_x.py::{name}", root)
        for name in ("test_alone", "test_stores[1/a::b]", "TestAll::test_x", "test_shared")
    }
    assert wanted == {
        "test_alone": Wants(EVERYTHING, frozenset()),
        "test_stores[1/a::b]": Wants(frozenset({"stores"}), frozenset({"rest"})),
        "TestAll::test_x": Wants(EVERYTHING, frozenset()),
        "test_shared": Wants(frozenset(), EVERYTHING - {"monitoring"}),
    }


def test_a_test_that_is_alone_is_in_no_part_and_comes_last(root: Path) -> None:
    names = ["test_alone", "test_stores[1]", "TestAll::test_x", "test_shared"]
    ordered = sorted((f"test_x.py::{name}" for name in names), key=lambda i: turns.order(i, root))
    assert [name.partition("::")[2] for name in ordered] == [
        *("test_stores[1]", "test_shared", "test_alone", "TestAll::test_x"),
    ]
    assert [turns.scope_of(nodeid, root) for nodeid in ordered] == [
        *("test_x", "test_x", "test_x, alone", "test_x, alone"),
    ]


def test_parts_begin_in_their_order() -> None:
    names = ["test_reboot", "test_journals", "test_policies", "test_clone", "test_access"]
    ordered = sorted((f"testing/e2e/{name}.py::test_x" for name in names), key=turns.order)
    assert [turns.file_of(nodeid) for nodeid in ordered] == [
        *("test_access", "test_clone", "test_policies", "test_journals", "test_reboot"),
    ]


# --- a schedule -------------------------------------------------------------------------------


SHARED = turns.wants([])


@dataclass(frozen=True)
class Job:
    """A test: its part, its length, and its resources."""

    part: str
    seconds: float
    wants: Wants = SHARED


def phases(jobs: list[Job]) -> list[list[Job]]:
    """Return the jobs by scope, in the order of `turns.order`."""
    by_phase: dict[tuple[bool, str], list[Job]] = {}
    for job in sorted(jobs, key=lambda job: job.wants.whole):
        by_phase.setdefault((job.wants.whole, job.part), []).append(job)
    return list(by_phase.values())


def parts(jobs: list[Job]) -> list[list[Job]]:
    """Return the jobs by part, as they were handed out before."""
    by_part: dict[str, list[Job]] = {}
    for job in jobs:
        by_part.setdefault(job.part, []).append(job)
    return list(by_part.values())


def run(scopes: list[list[Job]], workers: int = 2) -> list[tuple[float, float, Job]]:
    """Return begin and end of each job, as turns schedule them on a clock of their own.

    A worker that wants to begin holds the door until all that it excludes have ended; a row of jobs
    that want the same resources for themselves keeps its turn.
    """
    waiting = [list(scope) for scope in scopes]
    free = [0.0] * workers
    current: list[list[Job]] = [[] for _ in range(workers)]
    door, done = 0.0, []
    while waiting or any(current):
        for worker in range(workers):
            if not current[worker] and waiting:
                current[worker] = waiting.pop(0)
        worker = min((w for w in range(workers) if current[w]), key=lambda w: (free[w], w))
        row = [current[worker].pop(0)]
        while current[worker] and row[0].wants.alone and current[worker][0].wants == row[0].wants:
            row.append(current[worker].pop(0))
        begin = max(
            [door, free[worker], *(end for _, end, job in done if row[0].wants.excludes(job.wants))]
        )
        door = begin
        for job in row:
            done.append((begin, begin + job.seconds, job))
            begin += job.seconds
        free[worker] = begin
    return done


def length(done: list[tuple[float, float, Job]]) -> float:
    return max(end for _, end, _ in done)


ALONE, STORES, MONITORING = (
    turns.wants([("disruptive", words)]) for words in ((), ("stores",), ("monitoring",))
)
NOT_STORES = turns.wants([("without", ("stores",))])

MIXED = [
    # Two parts of short tests, some of which exclude all others, and a test of some length.
    *(Job("people", 5, ALONE if number % 8 == 7 else SHARED) for number in range(40)),
    Job("backups", 150),
    *(Job("replication", 10) for _ in range(6)),
    *(Job("replication", 30, ALONE) for _ in range(3)),
]


def test_nothing_that_excludes_each_other_runs_at_the_same_time() -> None:
    done = run(phases([*MIXED, *(Job("stores", 9, STORES) for _ in range(3))]))
    assert len(done) == len(MIXED) + 3
    for number, (begin, end, job) in enumerate(done):
        for other_begin, other_end, other in done[number + 1 :]:
            if job.wants.excludes(other.wants):
                assert end <= other_begin or other_end <= begin, (job, other)


def test_no_worker_waits_for_tests_that_are_alone_before_its_parts_are_done() -> None:
    """The bound: tests that exclude all others in sequence, the rest in two workers."""
    alone = sum(job.seconds for job in MIXED if job.wants.whole)
    shared = sum(job.seconds for job in MIXED if not job.wants.whole)
    before, after = length(run(parts(MIXED))), length(run(phases(MIXED)))
    # The two parts are of different length.
    assert after <= alone + shared / 2 + 30
    assert before > after + 60


def test_a_test_that_has_one_resource_to_itself_runs_beside_those_that_do_without() -> None:
    stores = [Job("bundles away", 20, STORES) for _ in range(4)]
    others = [Job("monitoring", 10, NOT_STORES) for _ in range(8)]
    assert length(run(phases([*stores, *others]))) == 80
    whole = [replace(job, wants=ALONE) for job in stores]
    assert length(run(phases([*whole, *others]))) == 80 + 80


def test_tests_that_have_different_resources_to_themselves_run_side_by_side() -> None:
    """As test_objectstore and test_journals."""
    stores = turns.wants([("disruptive", ("stores",)), ("without", ("monitoring",))])
    monitoring = turns.wants([("disruptive", ("monitoring",)), ("without", ("stores",))])
    jobs = [Job("bundles away", 60, stores), Job("monitoring", 60, monitoring)]
    assert length(run(phases(jobs))) == 60
    nodeids = (
        "testing/e2e/test_objectstore.py::test_clones_are_offloaded_again_when_it_is_back",
        "testing/e2e/test_journals.py::test_lines_from_while_the_receiver_was_away_come_later",
    )
    assert [turns.wants_of_id(nodeid) for nodeid in nodeids] == [stores, monitoring]


# --- turns ------------------------------------------------------------------------------------


def is_free(lock: Path) -> bool:
    with lock.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
    return True


def test_a_test_that_is_alone_waits_for_the_others_and_keeps_them_out(
    tmp_path: Path, wait_for: WaitFor
) -> None:
    first, alone, late = (turns.Turns(tmp_path, "tests", ("rest",)) for _ in range(3))
    entered: list[str] = []

    def enter(turn: turns.Turns, name: str, *, is_alone: bool) -> threading.Thread:
        def work() -> None:
            turn.enter(**{"alone" if is_alone else "shared": ("rest",)})
            entered.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    first.enter(shared=("rest",))
    waiting = enter(alone, "alone", is_alone=True)
    wait_for("it holds the door", lambda: not is_free(tmp_path / "tests.door"))
    following = enter(late, "late", is_alone=False)
    assert entered == []

    first.leave()
    waiting.join(timeout=10)
    assert entered == ["alone"]
    alone.enter(alone=("rest",))  # the next test in a row keeps the turn

    alone.leave()
    following.join(timeout=10)
    assert entered == ["alone", "late"]
    late.leave()


def test_tests_that_want_different_rooms_do_not_wait_for_each_other(tmp_path: Path) -> None:
    rooms = ("rest", "stores")
    breaking, other, both = (turns.Turns(tmp_path, "tests", rooms) for _ in range(3))
    breaking.enter(alone=("stores",), shared=("rest",))
    other.enter(shared=("rest",))
    assert is_free(tmp_path / "tests.door")

    waiting = threading.Thread(target=lambda: both.enter(shared=rooms))
    waiting.start()
    waiting.join(timeout=0.2)
    assert waiting.is_alive(), "it wants the stores, which another one has to itself"

    other.leave()
    breaking.leave()
    waiting.join(timeout=10)
    assert not waiting.is_alive()
    both.leave()
