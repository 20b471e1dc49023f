"""Nice values count for all that a step starts, for the length of a run.

Linux may share processors between sessions first ("The autogroup feature" of sched(7)); a process
then has its nice value within its own session. Ansible gives the process of each task a session of
its own, which would have the weight of the whole first lane.
"""

from __future__ import annotations

import contextlib
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

SWITCH: Final = Path("/proc/sys/kernel/sched_autogroup_enabled")


@contextlib.contextmanager
def shared_by_nice_value(switch: Path = SWITCH) -> Iterator[None]:
    """Turn groups of sessions off, and at the end as they were.

    A machine without that feature, or a person who may not change it, has it as it is.
    """
    try:
        before = switch.read_text(encoding="ascii")
        switch.write_text("0\n", encoding="ascii")
    except OSError:
        yield
        return
    try:
        yield
    finally:
        switch.write_text(before, encoding="ascii")
