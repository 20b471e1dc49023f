"""Marks of tests on the cluster: tests that are killed leave a mark, and the next `up` reads it.

A process of tests shares the lock of `./cluster` (`lock.py`) and has a mark for as long. A command
that holds the exclusive lock knows that each mark it finds is left over: the number of a process
comes again, its lock does not.
"""

from __future__ import annotations

import contextlib
import json
import os
import secrets
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller.bootstrap import STATE

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

NAME: Final = "under-test"
"""Of the folder in .cluster."""


@dataclass(frozen=True)
class Left:
    """A mark's text: the tests, their beginning, the last test, the reason for keeping the mark."""

    tests: str
    began: str
    last: str = ""
    reason: str = ""

    def __str__(self) -> str:
        told = f"{self.tests} of {self.began}"
        told += f", at {self.last}" if self.last else ""
        return f"{told}: {self.reason or 'ended in the middle'}"


class Mark:
    """The mark of a process of tests."""

    def __init__(self, tests: str) -> None:
        began = time.strftime("%H:%M:%S")
        self.left = Left(tests, began)
        # The number of a process comes again.
        self.file = STATE / NAME / f"{os.getpid()}-{secrets.token_hex(4)}.json"
        self._write()

    def _write(self) -> None:
        self.file.parent.mkdir(parents=True, exist_ok=True)
        new = self.file.with_suffix(".new")
        new.write_text(json.dumps(self.left.__dict__), encoding="utf-8")
        new.replace(self.file)

    def at(self, test: str) -> None:
        """Name the test that begins to break something."""
        self.left = Left(self.left.tests, self.left.began, test, self.left.reason)
        self._write()

    def keep(self, reason: str) -> None:
        """Leave the mark at the end: the cluster is still broken."""
        self.left = Left(self.left.tests, self.left.began, self.left.last, reason)
        self._write()

    def end(self) -> None:
        """Remove the mark, unless there is a reason to keep it."""
        if not self.left.reason:
            self.file.unlink(missing_ok=True)


@contextlib.contextmanager
def under_test(tests: str) -> Iterator[Mark]:
    """Hold a mark; an end by an error, as by a kill, leaves it."""
    mark = Mark(tests)
    yield mark
    mark.end()


def left() -> list[Left]:
    """Return the texts of the marks; the caller holds the exclusive lock of `./cluster`."""
    marks = []
    for file in sorted((STATE / NAME).glob("*.json")):
        try:
            marks.append(Left(**json.loads(file.read_text("utf-8"))))
        except (ValueError, TypeError):
            marks.append(Left("tests", "an unknown time"))
    return marks


def forget() -> None:
    """Remove all marks: the hosts are as `site.yml` makes them, or gone."""
    for file in (STATE / NAME).glob("*"):
        file.unlink(missing_ok=True)


def sentence(marks: Sequence[Left]) -> str:
    """Return the sentence about the marks that `up` prints."""
    told = "; ".join(map(str, marks[:3])) + ("; ..." if len(marks) > 3 else "")
    return f"{told}. The hosts are not trusted: they restart, and site.yml runs on all of them"
