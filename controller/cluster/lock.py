"""The lock of a checkout's cluster: exclusive for a command that changes it, shared by tests."""

from __future__ import annotations

import contextlib
import fcntl
from typing import TYPE_CHECKING

from controller import bootstrap
from controller.bootstrap import STATE
from controller.cluster.marks import Mark, under_test

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextlib.contextmanager
def exclusively() -> Iterator[None]:
    """Let only this command change the cluster of this checkout."""
    with _locked(fcntl.LOCK_EX, "Another command is changing this checkout's cluster."):
        yield


@contextlib.contextmanager
def undisturbed(tests: str) -> Iterator[Mark]:
    """Keep commands from changing the cluster while it is tested, and mark that it is."""
    with (
        _locked(fcntl.LOCK_SH, "A command is changing this checkout's cluster."),
        under_test(tests) as mark,
    ):
        yield mark


@contextlib.contextmanager
def _locked(kind: int, refusal: str) -> Iterator[None]:
    STATE.mkdir(exist_ok=True)
    with (STATE / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, kind | fcntl.LOCK_NB)
        except BlockingIOError:
            bootstrap.fail(refusal, "Wait until it is done, then try again.")
        yield
