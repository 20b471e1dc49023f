"""Collects `.t` files for pytest: tests that read as a story of sentences, commands and outputs.

    python -m pytest -p testing.support.tfiles testing/integration

The format is Mercurial's. A line that begins with two spaces and `$ ` is a command (`> ` continues
it), other indented lines are the output expected of it, everything else is prose:

    A push is refused with the names of those who may.

      $ hg push
      abort: bob may not push to team/tool: * (glob)
      [255]

An expected line may end in (glob), (re) or (esc); `[N]` is the exit code when it is not 0. A file
runs in one shell, in a directory of its own (`$TESTTMP`), with `hg` of the controller environment,
an HGRCPATH of its own and `$TOP` as the root of this repository. `exit 80` skips the file.
"""

from __future__ import annotations

import difflib
import os
import re
import subprocess
import sys
import tempfile
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from testing.support import pace, prefork

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

TOP: Final = Path(__file__).resolve().parents[2]
SECONDS_PER_FILE: Final = 120
"""On a quiet machine (`testing/support/pace.py`)."""
SKIPPED: Final = 80

HGRC: Final = """\
[ui]
username = test
interactive = false
timeout = 10
[devel]
all-warnings = true
default-date = 0 0
"""


class MismatchError(Exception):
    """The output differs from the expected output; the message is the difference."""


@dataclass(slots=True)
class Command:
    """A command of a file: its line number from 1, its lines, and the expected output."""

    line: int
    script: list[str]
    expected: list[str] = field(default_factory=list)


def parse(text: str) -> list[Command]:
    """Find the commands of a file. Raises ValueError for output that no command can have made."""
    commands: list[Command] = []
    open_command: Command | None = None
    for number, line in enumerate(text.splitlines(), 1):
        if line.startswith("  $ "):
            open_command = Command(number, [line[4:]])
            commands.append(open_command)
        elif line.startswith("  > ") and open_command and not open_command.expected:
            open_command.script.append(line[4:])
        elif line.startswith("  ") and open_command:
            open_command.expected.append(line[2:])
        elif line.startswith("  "):
            raise ValueError(f"line {number}: output without a command")
        elif line.strip():
            # Prose ends the output, so that a lone indented line after it is seen as a mistake.
            open_command = None
    return commands


def script_of(commands: Sequence[Command], salt: str) -> str:
    """Build the shell script: each command ends in a line with salt, number and exit code."""
    parts = []
    for number, command in enumerate(commands):
        # A line break first, in case the output does not end with a line break.
        parts += [*command.script, f'echo "\n{salt} {number} $?"']
    return "\n".join(parts) + "\n"


def outputs(text: str, salt: str, count: int) -> tuple[list[list[str]], int]:
    """Split the shell's output by command; also return how many commands ended."""
    result: list[list[str]] = [[] for _ in range(count)]
    current = 0
    for line in text.split("\n"):
        if line.startswith(salt + " "):
            _, number, code = line.split(" ")
            if result[current] and not result[current][-1]:
                del result[current][-1]  # the line break before the salt
            elif result[current]:
                result[current][-1] += " (no-eol)"
            if code != "0":
                result[current].append(f"[{code}]")
            current = int(number) + 1
        elif current < count:
            result[current].append(line)
    return result, current


def matches(expected: str, actual: str) -> bool:
    """Whether a line of output is as expected."""
    if expected == actual:
        return True
    if expected.endswith(" (re)"):
        return re.fullmatch(expected[:-5], actual) is not None
    if expected.endswith(" (esc)"):
        return expected[:-6].encode().decode("unicode_escape") == actual
    if expected.endswith(" (glob)"):
        # Only * and ? are special, and a backslash escapes them, as in Mercurial.
        pattern = ""
        for token in re.findall(r"\\.|.", expected[:-7]):
            pattern += {"*": ".*", "?": "."}.get(token) or re.escape(token.removeprefix("\\"))
        return re.fullmatch(pattern, actual) is not None
    return False


def merge(expected: Sequence[str], actual: Sequence[str]) -> list[str]:
    """Return the output with every line that matches a pattern replaced by the pattern.

    The remaining differences are the lines that a person has to look at.
    """
    result = list(actual)
    matcher = difflib.SequenceMatcher(a=expected, b=actual, autojunk=False)
    for tag, i1, i2, j1, j2 in matcher.get_opcodes():
        if tag == "replace" and i2 - i1 == j2 - j1:
            for i, j in zip(range(i1, i2), range(j1, j2), strict=True):
                if matches(expected[i], actual[j]):
                    result[j] = expected[i]
        elif tag == "replace":
            start = j1
            for i in range(i1, i2):
                hit = next((j for j in range(start, j2) if matches(expected[i], actual[j])), None)
                if hit is not None:
                    result[hit] = expected[i]
                    start = hit + 1
    return result


def render(text: str, commands: Sequence[Command], printed: Iterable[Sequence[str]]) -> list[str]:
    """Return the lines of the file as they would be with the actual output."""
    by_line = dict(zip((command.line for command in commands), printed, strict=True))
    result: list[str] = []
    lines = text.splitlines()
    number = 0
    while number < len(lines):
        result.append(lines[number])
        number += 1
        if number in by_line:
            command = next(c for c in commands if c.line == number)
            result += lines[number : number + len(command.script) - 1]
            number += len(command.script) - 1
            result += [f"  {line}" for line in merge(command.expected, by_line[command.line])]
            # Output has no blank lines, since all lines of output are indented.
            while number < len(lines) and lines[number].startswith("  "):
                if lines[number].startswith("  $ "):
                    break
                number += 1
    return result


def environment(scratch: Path) -> dict[str, str]:
    """Return the environment of the shell: only PATH comes from the person who runs the test."""
    (scratch / "hgrc").write_text(HGRC)
    (scratch / "tmp").mkdir()
    return {
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', os.defpath)}",
        "HOME": str(scratch / "tmp"),
        "HGRCPATH": str(scratch / "hgrc"),
        "HGENCODING": "utf-8",
        "LANG": "C.UTF-8",
        "LC_ALL": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONPATH": str(TOP),
        "PYTHONPYCACHEPREFIX": str(TOP / ".cache/pycache"),
        "TESTTMP": str(scratch / "tmp"),
        "TOP": str(TOP),
    }


def run(path: Path, scratch: Path) -> None:
    """Run a file; raises MismatchError with the difference, or Skipped."""
    text = path.read_text("utf-8")
    commands = parse(text)
    if not commands:
        raise MismatchError(f"{path}: no command, so nothing was tested")
    salt = f"salt-{uuid.uuid4().hex}"
    env = environment(scratch)
    env["TESTDIR"] = str(path.parent)
    # In a file and not on stdin, where a command could read the rest of the script.
    script = scratch / "script"
    script.write_text(script_of(commands, salt), "utf-8")
    programs = prefork.shared(env).program.parent
    try:
        done = pace.run(
            ["bash", "--noprofile", "--norc", str(script)],
            SECONDS_PER_FILE,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            encoding="utf-8",
            errors="backslashreplace",
            cwd=env["TESTTMP"],
            env={**env, "PATH": f"{programs}{os.pathsep}{env['PATH']}"},
        )
    except subprocess.TimeoutExpired as error:
        limit = pace.Deadline(SECONDS_PER_FILE)
        raise MismatchError(f"{path}: not done within {limit}") from error
    printed, ended = outputs(done.stdout, salt, len(commands))
    if ended < len(commands):
        if done.returncode == SKIPPED:
            reason = "\n".join(printed[ended]).strip() or "no reason given"
            pytest.skip(reason)
        printed[ended].append(f"[the shell ended here with {done.returncode}]")
    got = render(text, commands, printed)
    want = text.splitlines()
    if got != want:
        lines = difflib.unified_diff(want, got, str(path), f"{path} (found)", lineterm="")
        raise MismatchError("\n".join(lines))


class TFile(pytest.File):
    """A `.t` file, which is a single test."""

    def collect(self) -> Iterator[pytest.Item]:
        """Return the test."""
        yield TItem.from_parent(self, name=self.path.stem)


class TItem(pytest.Item):
    """Runs the file."""

    def runtest(self) -> None:
        """Run the file in a temporary directory."""
        with tempfile.TemporaryDirectory(prefix="t-") as scratch:
            run(self.path, Path(scratch))

    def repr_failure(  # type: ignore[override]
        self, excinfo: pytest.ExceptionInfo[BaseException]
    ) -> str:
        """Show the difference and nothing else."""
        if isinstance(excinfo.value, MismatchError):
            return str(excinfo.value)
        return str(super().repr_failure(excinfo))

    def reportinfo(self) -> tuple[Path, int, str]:
        """Name the file."""
        return self.path, 0, self.path.name


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> TFile | None:
    """Take the `.t` files."""
    if file_path.suffix == ".t":
        return TFile.from_parent(parent, path=file_path)
    return None
