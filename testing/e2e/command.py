"""Commands of end-to-end tests and their results, and waiting for a state."""

from __future__ import annotations

import shlex
import subprocess
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from testing.support import pace
from testing.support.pace import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from pathlib import Path

T = TypeVar("T")

SECONDS_FOR_A_COMMAND: Final = 120
SHOWN_LINES: Final = 40
"""Most lines of a command's output in the message of a failed test."""


def wait_until(what: str, probe: Callable[[], T], seconds: float = 30, every: float = 0.2) -> T:
    """Return the first true answer of `probe`; fail with its last answer when the time is over.

    A probe may raise AssertionError or OSError for "not yet". The seconds are meant for a quiet
    machine (`testing/support/pace.py`).
    """
    deadline = Deadline(seconds)
    while True:
        last: object
        try:
            last = answer = probe()
            if answer:
                return answer
        except (AssertionError, OSError) as error:
            last = error
        if deadline.is_over():
            raise AssertionError(f"{what}: not within {deadline}; the last answer was: {last}")
        time.sleep(every)


@dataclass(frozen=True)
class Result:
    """The result of a command. A failing test shows it as text."""

    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def output(self) -> str:
        """The output on a person's terminal, roughly in this order."""
        return self.stdout + self.stderr

    def ok(self) -> Result:
        """Return self; fail if the command did."""
        assert self.code == 0, f"expected success:\n{self}"
        return self

    def refused(self, *words: str) -> Result:
        """Return self; fail unless the command ended in an error with these words, not a crash."""
        assert self.code != 0, f"expected a refusal, but it succeeded:\n{self}"
        assert "Traceback" not in self.output, f"a person got a traceback:\n{self}"
        for word in words:
            assert word in self.output, f"expected {word!r} in:\n{self}"
        return self

    def __str__(self) -> str:
        lines = [f"$ {self.command}"]
        for name, text in (("", self.stdout), ("stderr: ", self.stderr)):
            shown = text.splitlines()
            lines += [f"  {name}{line}" for line in shown[:SHOWN_LINES]]
            if len(shown) > SHOWN_LINES:
                lines.append(f"  {name}... {len(shown) - SHOWN_LINES} more lines")
        return "\n".join([*lines, f"  exit code {self.code} after {self.seconds:.1f} s"])


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    seconds: float = SECONDS_FOR_A_COMMAND,
) -> Result:
    """Run a command to its end; fail if it takes longer.

    The seconds are meant for a quiet machine (`testing/support/pace.py`).
    """
    begin = time.monotonic()
    shown = shlex.join(command)
    try:
        done = pace.run(
            command,
            seconds,
            stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            encoding="utf-8",
            errors="replace",
            env=env,
            cwd=cwd,
        )
    except subprocess.TimeoutExpired as late:
        out, err = ((part or b"").decode("utf-8", "replace") for part in (late.stdout, late.stderr))
        spent = time.monotonic() - begin
        raise AssertionError(f"hangs:\n{Result(shown, -1, out, err, spent)}") from late
    return Result(shown, done.returncode, done.stdout, done.stderr, time.monotonic() - begin)
