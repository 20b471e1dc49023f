"""testing/e2e/turns.py: parts of end-to-end tests, their order, and tests that are alone."""

from __future__ import annotations

import fcntl
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from testing.e2e import turns

if TYPE_CHECKING:
    from testing.conftest import WaitFor

FOLDERS = [Path(__file__).parents[1] / name for name in ("e2e", "faults")]


def test_every_file_of_a_part_exists() -> None:
    files = {path.stem for folder in FOLDERS for path in folder.rglob("test_*.py")}
    named = [file for part in turns.PARTS.values() for file in part]
    assert set(named) <= files
    assert len(named) == len(set(named)), "a file is in two parts"


def test_a_file_in_no_part_is_a_part_of_its_own() -> None:
    assert turns.part_of("testing/e2e/test_push.py::test_x[a/b]") == "people"
    assert turns.part_of("testing/e2e/test_policies.py::test_x") == "test_policies"


def test_parts_that_are_alone_come_last() -> None:
    names = ["test_reboot", "test_policies", "abuse/test_abuse_wire", "test_clone", "test_access"]
    ordered = sorted((f"testing/e2e/{name}.py::test_x" for name in names), key=turns.order)
    assert [Path(nodeid.partition("::")[0]).stem for nodeid in ordered] == [
        "test_access",
        "test_clone",
        "test_policies",
        "test_abuse_wire",
        "test_reboot",
    ]


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
    first, alone, late = (turns.Turns(tmp_path, "tests") for _ in range(3))
    entered: list[str] = []

    def enter(turn: turns.Turns, name: str, *, is_alone: bool) -> threading.Thread:
        def work() -> None:
            turn.enter(alone=is_alone)
            entered.append(name)

        thread = threading.Thread(target=work)
        thread.start()
        return thread

    first.enter(alone=False)
    waiting = enter(alone, "alone", is_alone=True)
    wait_for("it holds the door", lambda: not is_free(tmp_path / "tests.door"))
    following = enter(late, "late", is_alone=False)
    assert entered == []

    first.leave()
    waiting.join(timeout=10)
    assert entered == ["alone"]
    alone.enter(alone=True)  # the next test in a row keeps the turn

    alone.leave()
    following.join(timeout=10)
    assert entered == ["alone", "late"]
    late.leave()
