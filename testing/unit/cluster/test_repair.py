"""`./cluster up` after tests were killed: marks, plan and repair."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, cast

import pytest

from controller import bootstrap
from controller.cluster import cluster as life
from controller.cluster import images, lock, marks, repair, snapshots
from controller.cluster.plan import Plan, plan
from controller.cluster.settings import Settings

if TYPE_CHECKING:
    from controller.cluster.release import Release

HOSTS = ("hg1", "hgweb1")
ROOT = Path(__file__).parents[3]


def decided(present: tuple[str, ...] = HOSTS, **other: bool) -> Plan:
    """Return the plan for a converged, running cluster, in which something differs."""
    given = {"recorded": True, "snapshots": False, "left_by_tests": False, "keep": True}
    return plan(HOSTS, present, **{**given, **other})


def test_a_converged_cluster_stays() -> None:
    assert decided() == Plan(False, False, converge=False, take_snapshots=False)


def test_a_converged_cluster_on_which_tests_were_killed_is_repaired_and_converged() -> None:
    assert decided(left_by_tests=True) == Plan(True, False, converge=True, take_snapshots=False)


def test_hosts_that_are_gone_took_the_changes_of_tests_with_them() -> None:
    assert decided((), left_by_tests=True, snapshots=True) == decided((), snapshots=True)
    assert decided((), snapshots=True) == Plan(False, True, converge=False, take_snapshots=False)
    made = decided((), left_by_tests=True)
    assert made == Plan(False, False, converge=True, take_snapshots=True)


@pytest.mark.parametrize("other", [{"recorded": False}, {"present": ("hg1",)}])
def test_a_changed_cluster_is_converged_further(other: dict[str, bool]) -> None:
    assert decided(**other) == Plan(False, False, converge=True, take_snapshots=True)  # type: ignore[arg-type]
    assert not decided(**other, keep=False).take_snapshots  # type: ignore[arg-type]


def test_snapshots_are_not_for_hosts_that_are_there() -> None:
    assert not decided(snapshots=True, recorded=False).from_snapshots


# --- marks ------------------------------------------------------------------------------------


@pytest.fixture
def state(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the folder that takes the place of .cluster."""
    for module in (lock, marks):
        monkeypatch.setattr(module, "STATE", tmp_path)
    return tmp_path


@pytest.mark.usefixtures("state")
def test_tests_that_end_leave_no_mark() -> None:
    with lock.undisturbed("tests of stores"):
        (mark,) = marks.left()
        assert mark.tests == "tests of stores"
    assert marks.left() == []


@pytest.mark.usefixtures("state")
def test_each_process_of_tests_has_a_mark_of_its_own() -> None:
    with lock.undisturbed("one"), lock.undisturbed("another"):
        assert {mark.tests for mark in marks.left()} == {"one", "another"}
    assert marks.left() == []


@pytest.mark.usefixtures("state")
def test_an_error_leaves_the_mark_which_tells_the_last_test() -> None:
    def run() -> None:
        with lock.undisturbed("tests") as mark:
            mark.at("test_x.py::test_broker")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    (left,) = marks.left()
    assert str(left) == f"tests of {left.began}, at test_x.py::test_broker: ended in the middle"
    assert str(left) in marks.sentence([left])


@pytest.mark.usefixtures("state")
def test_a_mark_with_a_reason_stays_and_the_next_test_does_not_change_it() -> None:
    with lock.undisturbed("tests") as mark:
        mark.keep("hgweb1 is away")
        mark.at("test_x.py::test_next")
    (left,) = marks.left()
    assert str(left).endswith("at test_x.py::test_next: hgweb1 is away")
    marks.forget()
    assert marks.left() == []


def test_a_killed_process_leaves_its_mark_and_no_lock(state: Path) -> None:
    """A mark is known by the lock of its process, which is free, and not by a process id."""
    script = f"""
import sys
from pathlib import Path
from controller.cluster import lock, marks
lock.STATE = marks.STATE = Path({str(state)!r})
with lock.undisturbed("tests that are killed"):
    print("marked", flush=True)
    sys.stdin.read()
"""
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    with subprocess.Popen(
        [sys.executable, "-c", script],
        env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    ) as tests:  # fmt: skip
        assert tests.stdout
        assert tests.stdout.readline() == "marked\n"
        with pytest.raises(bootstrap.SetupError), lock.exclusively():
            pass
        tests.send_signal(signal.SIGKILL)
    with lock.exclusively():
        assert [mark.tests for mark in marks.left()] == ["tests that are killed"]


def test_a_mark_that_nobody_can_read_counts(state: Path) -> None:
    (state / marks.NAME).mkdir()
    (state / marks.NAME / "1-a.json").write_text('{"tests": "ha')
    assert len(marks.left()) == 1


def test_many_marks_are_one_sentence() -> None:
    told = marks.sentence([marks.Left(f"tests {number}", "12:00:00") for number in range(5)])
    assert "tests 2 of 12:00:00" in told
    assert "tests 3" not in told


# --- repair -----------------------------------------------------------------------------------


def test_a_host_that_is_not_well_after_the_repair_is_named_with_the_way_out() -> None:
    repair.require_well({"hg1": [], "hgweb1": []})
    with pytest.raises(bootstrap.SetupError) as told:
        repair.require_well({"hg1": [], "hgweb1": ["nginx.service"]})
    assert "hgweb1 (nginx.service)" in str(told.value)
    assert "./cluster rebuild hgweb1" in str(told.value)


def undone(folder: Path) -> None:
    """Run the script that undoes changes of tests, on files of a folder."""
    script = repair.UNDO
    for place in ("/etc/hgfleet", "/var/lib/hgfleet", "/var/tmp", "/srv/hg"):
        script = script.replace(place, f"{folder}{place}")
    subprocess.run(["sh", "-c", script], check=True)


def test_files_that_tests_put_out_of_the_way_are_back(tmp_path: Path) -> None:
    folder = tmp_path / "etc/hgfleet"
    folder.mkdir(parents=True)
    (folder / "web.drain").touch()
    (folder / "signing.away").write_text("a key")
    (folder / "new.away").write_text("an old key")
    (folder / "new").write_text("a key that a role wrote")
    (tmp_path / "var/lib/hgfleet-bundles").mkdir(parents=True)

    undone(tmp_path)

    assert {file.name for file in folder.iterdir()} == {"signing", "new", "new.away"}
    assert (folder / "signing").read_text() == "a key"
    assert (folder / "new").read_text() == "a key that a role wrote"


def test_a_push_log_that_nobody_may_read_has_the_mode_of_its_neighbour(tmp_path: Path) -> None:
    store = tmp_path / "srv/hg/repos/e2e/alerts/.hg/store"
    store.mkdir(parents=True)
    for name, mode in (("pushlog", 0o000), ("00changelog.i", 0o640)):
        (store / name).touch()
        (store / name).chmod(mode)

    undone(tmp_path)

    assert (store / "pushlog").stat().st_mode & 0o777 == 0o640


def test_a_repair_restarts_undoes_and_converges_before_the_cluster_is_trusted(
    state: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    done: list[str] = []
    for module, names in {
        life: ("start_containers", "playbook"),
        repair: ("let_go_on", "restart", "undo"),
        snapshots: ("take",),
    }.items():
        for name in names:
            monkeypatch.setattr(module, name, lambda *_, name=name: done.append(name))
    monkeypatch.setattr(life, "CONVERGED", state / "converged")
    monkeypatch.setattr(images, "of_containers", lambda _name, hosts: dict.fromkeys(hosts, "image"))
    monkeypatch.setattr(repair, "failed_units", lambda *_: [])
    (state / "converged").write_text("a key")
    site, built = Settings("hgfleet-0", "10.213.7", 21000, "x"), cast("Release", None)
    hosts = {name: life.Host(name, {}, []) for name in HOSTS}
    present = dict.fromkeys(HOSTS, "running")

    def converge() -> list[str]:
        done.clear()
        life._converge(site, built, hosts, present, "a key", "base", keep=True)
        return done

    assert converge() == ["start_containers"]
    marks.Mark("tests of mirrors")
    assert converge() == [
        *("let_go_on", "start_containers", "restart", "start_containers", "undo", "playbook"),
    ]
    assert "tests of mirrors" in capsys.readouterr().err
    assert marks.left() == []
    assert not (state / "converged").exists(), "the caller writes it once all is done"
