"""The second lane of a run leaves the processors to the first, with all that it starts.

A nice value does not suffice. Linux may share processors between sessions first ("The autogroup
feature" of sched(7)), and Ansible gives the process of each task a session of its own. Measured on
a single processor, with a busy process of the first lane: such a child had half of it with nice 19,
with SCHED_BATCH, with SCHED_IDLE, and with the nice value of its parent's session; in a control
group of a small weight it had 1 %, because the kernel groups no sessions there.

Children inherit the control group, and nothing outside the run has another setting.
"""

from __future__ import annotations

import contextlib
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

PROC: Final = Path("/proc")
NAME: Final = "hgfleet-run-tests"
"""Of the control group; runs of several checkouts share it."""
NORMAL_SHARES: Final = 1024
"""The weight of nice 0 in the kernel, and of a new group of version 1."""


@dataclass(frozen=True)
class Group:
    """A control group for processors: its folder, and the file that has its weight."""

    folder: Path
    weight_file: str

    def enter(self, command: Sequence[str], niceness: int) -> list[str]:
        """Return a command that runs in the group, which has the weight of a nice value.

        The process enters before its program begins, so no child can miss it. Where only root may
        do that, it stays where it is.
        """
        self._weigh(niceness)
        script = '{ echo $$ >"$0"; } 2>/dev/null; exec "$@"'
        return ["sh", "-c", script, str(self.folder / "cgroup.procs"), *command]

    def lift(self) -> None:
        """Give the group the weight of nice 0: the lane before it has ended.

        Else programs of other users, which run during the tests, would leave it nothing to the end.
        """
        self._weigh(0)

    def _weigh(self, niceness: int) -> None:
        shares = max(2, round(NORMAL_SHARES / 1.25**niceness))
        # Version 2 has 100 where version 1 has 1024.
        weight = shares if self.weight_file == "cpu.shares" else max(1, shares * 100 // 1024)
        with contextlib.suppress(OSError):
            # Another run may have removed the group at its end.
            self.folder.mkdir(exist_ok=True)
            (self.folder / self.weight_file).write_text(f"{weight}\n", encoding="ascii")

    def remove(self) -> None:
        """Remove the group; while a process is in it, the kernel keeps it for the next run."""
        with contextlib.suppress(OSError):
            self.folder.rmdir()


def find(proc: Path = PROC) -> Group | None:
    """Return the group for the second lane; None where nice values count without a group.

    They do where the kernel groups no sessions: without the feature, or outside the root of the
    hierarchy, where systemd puts people and services.
    """
    try:
        if (proc / "sys/kernel/sched_autogroup_enabled").read_text("ascii").strip() != "1":
            return None
        groups = (proc / "self/cgroup").read_text("utf-8")
        mounts = (proc / "self/mountinfo").read_text("utf-8")
    except OSError:
        return None
    for line in groups.splitlines():
        _, controllers, path = line.split(":", 2)
        if path != "/":
            continue
        if "cpu" in controllers.split(","):
            root = _mounted(mounts, "cgroup", "cpu")
            return Group(root / NAME, "cpu.shares") if root else None
        root = _mounted(mounts, "cgroup2", "") if not controllers else None
        if root and _hands_on_cpu(root):
            return Group(root / NAME, "cpu.weight")
    return None


def _mounted(mounts: str, kind: str, option: str) -> Path | None:
    # "32 25 0:28 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu"; see proc_pid_mountinfo(5).
    for line in mounts.splitlines():
        before, _, after = line.partition(" - ")
        words = after.split()
        if words[:1] == [kind] and (not option or option in words[-1].split(",")):
            return Path(before.split()[4])
    return None


def _hands_on_cpu(root: Path) -> bool:
    with contextlib.suppress(OSError):
        return "cpu" in (root / "cgroup.subtree_control").read_text("ascii").split()
    return False


@contextlib.contextmanager
def group_of_run() -> Iterator[Group | None]:
    """Give the group for the second lane, and remove it at the end."""
    group = find()
    try:
        yield group
    finally:
        if group:
            group.remove()
