"""controller/tests/processors.py: the control group of the second lane."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from controller.tests import processors
from controller.tests.execution import Executor, Room, Step
from controller.tests.processors import Group, find

VERSION_1 = "32 25 0:28 / {at} rw,relatime - cgroup cgroup rw,cpu\n"
VERSION_2 = "41 25 0:37 / {at} rw,relatime - cgroup2 cgroup2 rw,nsdelegate\n"


@pytest.fixture
def mounted(tmp_path: Path) -> Path:
    """A folder where a hierarchy of control groups is mounted."""
    folder = tmp_path / "cgroup"
    folder.mkdir()
    return folder


def proc(folder: Path, switch: str, groups: str, mounts: str) -> Path:
    """Make the files of /proc that are read."""
    root = folder / "proc"
    (root / "sys/kernel").mkdir(parents=True)
    (root / "self").mkdir()
    (root / "sys/kernel/sched_autogroup_enabled").write_text(switch)
    (root / "self/cgroup").write_text(groups)
    (root / "self/mountinfo").write_text(f"22 1 8:1 / / rw - ext4 /dev/root rw\n{mounts}")
    return root


def test_the_root_of_version_1_gets_a_group_with_shares(tmp_path: Path, mounted: Path) -> None:
    groups = "9:name=systemd:/\n2:cpuacct:/\n1:cpu:/\n0::/\n"
    mounts = VERSION_1.format(at=mounted) + VERSION_2.format(at=tmp_path / "unified")
    group = find(proc(tmp_path, "1\n", groups, mounts))
    assert group == Group(mounted / processors.NAME, "cpu.shares")


@pytest.mark.parametrize(("controllers", "gets"), [("cpu memory", True), ("memory", False)])
def test_the_root_of_version_2_gets_a_group_where_groups_have_weights(
    tmp_path: Path, mounted: Path, controllers: str, gets: bool
) -> None:
    (mounted / "cgroup.subtree_control").write_text(f"{controllers}\n")
    group = find(proc(tmp_path, "1\n", "0::/\n", VERSION_2.format(at=mounted)))
    assert group == (Group(mounted / processors.NAME, "cpu.weight") if gets else None)


@pytest.mark.parametrize(
    ("switch", "groups"),
    [("0\n", "1:cpu:/\n0::/\n"), ("1\n", "1:cpu:/user.slice\n0::/user.slice\n")],
    ids=["sessions are not grouped", "outside the root"],
)
def test_nothing_is_made_where_nice_values_count_by_themselves(
    tmp_path: Path, mounted: Path, switch: str, groups: str
) -> None:
    assert find(proc(tmp_path, switch, groups, VERSION_1.format(at=mounted))) is None


def test_a_kernel_without_groups_of_sessions_needs_none(tmp_path: Path) -> None:
    assert find(tmp_path / "none") is None


@pytest.mark.parametrize(
    ("file", "niceness", "weight"),
    [
        ("cpu.shares", 19, "15"),
        ("cpu.shares", 0, "1024"),
        ("cpu.weight", 19, "1"),
        ("cpu.weight", 5, "32"),
    ],
)
def test_the_weight_is_that_of_the_nice_value(
    mounted: Path, file: str, niceness: int, weight: str
) -> None:
    group = Group(mounted / "group", file)
    with subprocess.Popen(group.enter(["cat"], niceness), stdin=subprocess.PIPE) as process:
        pass
    assert (group.folder / file).read_text() == f"{weight}\n"
    assert (group.folder / "cgroup.procs").read_text() == f"{process.pid}\n"


@pytest.mark.parametrize(("file", "weight"), [("cpu.shares", "1024"), ("cpu.weight", "100")])
def test_a_lifted_group_has_the_weight_of_others(mounted: Path, file: str, weight: str) -> None:
    group = Group(mounted / "group", file)
    group.enter(["true"], 19)
    group.lift()
    assert (group.folder / file).read_text() == f"{weight}\n"


def test_a_group_that_nobody_may_make_leaves_the_process_where_it_is(tmp_path: Path) -> None:
    group = Group(tmp_path / "none/group", "cpu.shares")
    done = subprocess.run(group.enter(["echo", "a word"], 19), capture_output=True, check=True)
    assert (done.stdout, done.stderr) == (b"a word\n", b"")
    group.remove()


def test_a_run_sets_nothing_outside_its_group_and_removes_that(
    mounted: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processors, "find", lambda: Group(mounted / "group", "cpu.shares"))

    def run() -> None:
        with processors.group_of_run() as group:
            assert group
            group.folder.mkdir()
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run()
    assert list(mounted.iterdir()) == []


@pytest.fixture
def real() -> Group:
    """A control group on this machine, below the group of this process."""
    for line in Path("/proc/self/cgroup").read_text().splitlines():
        _, controllers, path = line.split(":", 2)
        below = Path("/sys/fs/cgroup/cpu") / path.strip("/") / f"hgfleet-unit-{os.getpid()}"
        if "cpu" in controllers.split(",") and os.access(below.parent, os.W_OK):
            return Group(below, "cpu.shares")
    pytest.skip("only root has control groups of version 1 here")


def test_a_session_that_a_step_begins_is_in_the_group_too(
    real: Group, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("controller.tests.execution.LOGS", tmp_path)
    script = ["sh", "-c", "true | setsid cat /proc/self/cgroup"]
    step = Step("lint", "x", script, niceness=19)
    try:
        Executor(group=real).run_all([step], Room(1), first_only=False)
        assert f"/{real.folder.name}\n" in (tmp_path / "lint-x.log").read_text()
    finally:
        real.remove()
