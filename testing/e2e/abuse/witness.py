"""The state of a host before and after a test of abuse, and its log of each input of the test.

A test of abuse gives many inputs in turn. Examining the whole host takes as long as some inputs, so
the host is examined only before the first input and after the last. Each line of the journal
belongs to the input that was under way at its time; so does a file, by its modification.
"""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

import pytest

from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from testing.e2e.host import Host

T = TypeVar("T")
A = TypeVar("A")

INPUT: Final = "HGFLEET_ABUSE_INPUT"
"""The variable that names a single input: tests of other inputs are skipped."""

SHELL: Final = ("hgfleet-shell",)

# Without the caches that hg keeps for readers, without locks, without folders of running timers.
WORLD: Final = r"""
: "${sshd:=$(systemctl show -P MainPID hgfleet-sshd)}"
find /srv/hg/repos /etc/hgfleet /tmp /var/tmp /var/lib/hgfleet/registry.json \
    /var/lib/hgfleet/dynamic "/proc/$sshd/root/tmp" \
    \( -path '*/.hg/cache' -o -path '*/.hg/wcache' -o -name 'systemd-private-*' \
        -o -path '/var/lib/hgfleet/dynamic/*lock' -o -path '/srv/hg/repos/.sessions/*.slot' \
        \) -prune -o \
    ! -type d -printf 'file %M %u %p %s %T@ %l\n' -o -printf 'folder %M %u %p\n' 2>/dev/null |
    sed "s#/proc/[0-9]*/root/tmp#(tmp of sshd)#"
ss -ltnH | awk '{print "listens", $4}'
pgrep -u hgkeys -a
pgrep -u hg -a | grep -v 'sshd-session: hg'
true
"""


class Root:
    """A shell of root on a host, which stays open since a start takes longer than most scripts."""

    def __init__(self, host: Host) -> None:
        self._world: list[str] | None = None
        self.process = subprocess.Popen(
            ["docker", "exec", "--interactive", host.container, "sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, script: str) -> str:
        """Return the output of a script."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(f"{script}\nprintf '\\0'\n".encode())
        self.process.stdin.flush()
        said = b""
        while not said.endswith(b"\0"):
            more = os.read(self.process.stdout.fileno(), 65536)
            assert more, f"the shell of root ended in {script!r}"
            said += more
        return said[:-1].decode("utf-8", "replace")

    def close(self) -> None:
        """End the shell."""
        assert self.process.stdin is not None
        self.process.stdin.close()
        pace.wait(self.process, 10)

    def world(self) -> list[str]:
        """Return the state that no abuser may change: files, listeners, processes of users.

        Nothing else runs on the cluster, so the state after a test is the state before the next.
        """
        if self._world is None:
            self._world = self.look()
        return self._world

    def look(self) -> list[str]:
        """Return the current state."""
        return sorted(self.ask(WORLD).splitlines())

    def forget(self) -> None:
        """Forget the state, so that the next test reads it again: this test changes it itself."""
        self._world = None

    def cursor(self) -> str:
        """Return the current end of the journal."""
        said = self.ask("journalctl --sync; journalctl --lines=0 --show-cursor")
        return said.rpartition("-- cursor: ")[2].strip()


@dataclass(frozen=True)
class Line:
    """An entry of the journal; `time` is in seconds since the epoch."""

    program: str
    text: str
    time: float


def chosen(inputs: Mapping[str, T], name: str | None) -> dict[str, T]:
    """Return all inputs, or the input of this name; none if the name is another test's."""
    return {key: value for key, value in inputs.items() if name in (None, "", key)}


def under_way(begun: Mapping[str, float], moment: float) -> str | None:
    """Return the last input that began before a moment; None before the first."""
    return next((name for name in reversed(list(begun)) if begun[name] <= moment), None)


def by_input(begun: Mapping[str, float], lines: Sequence[Line]) -> dict[str, list[Line]]:
    """Return the lines of each input, including inputs without lines."""
    logged: dict[str, list[Line]] = {name: [] for name in begun}
    for line in lines:
        name = under_way(begun, line.time)
        if name is not None:
            logged[name].append(line)
    return logged


def differences(
    before: Sequence[str], after: Sequence[str], begun: Mapping[str, float]
) -> list[str]:
    """Return the lines that are new on the host or gone, and for a file the input that wrote it."""
    new = [line for line in after if line not in before]
    gone = [line for line in before if line not in after]
    appeared = [f"new: {line}{_writer(line, begun)}" for line in new]
    return appeared + [f"gone: {line}" for line in gone]


def _writer(line: str, begun: Mapping[str, float]) -> str:
    """Return the input under way when a file changed, by the time in its line of WORLD."""
    written = re.search(r" (\d{9,}\.\d+) ", line) if line.startswith("file ") else None
    name = under_way(begun, float(written[1])) if written else None
    return f" (during the input {name!r})" if name else ""


@dataclass
class Witness:
    """The log of the host since a moment, and the inputs that began since then and when."""

    root: Root
    cursor: str
    begun: dict[str, float] = field(default_factory=dict)

    def try_each(
        self,
        inputs: Mapping[str, T],
        send: Callable[[T], A],
        check: Callable[[A, list[Line]], object],
        programs: Sequence[str] = SHELL,
    ) -> None:
        """Give all inputs, then check each answer and the lines that programs logged for the input.

        A failure names every input that failed. HGFLEET_ABUSE_INPUT selects a single input.
        """
        own = self.chosen(inputs)
        answers: dict[str, A] = {}
        problems: dict[str, Exception] = {}
        for name, value in own.items():
            self.begun[name] = time.time()
            try:
                answers[name] = send(value)
            except (AssertionError, OSError, subprocess.SubprocessError) as error:
                problems[name] = error
        logged = by_input(self.begun, self.lines(*programs))
        for name, answer in answers.items():
            try:
                check(answer, logged[name])
            except (AssertionError, IndexError) as error:
                problems[name] = error
        shown = [f"the input {name!r}: {error}" for name, error in problems.items()]
        assert not shown, f"{len(shown)} of {len(own)} inputs failed.\n" + "\n".join(shown)

    @staticmethod
    def chosen(inputs: Mapping[str, T]) -> dict[str, T]:
        """Return the inputs of this run; skip the test if it has none of them."""
        own = chosen(inputs, os.environ.get(INPUT))
        if not own:
            pytest.skip(f"{INPUT} names an input of another test")
        return own

    def lines(self, *programs: str) -> list[Line]:
        """Return the entries of some programs since the beginning, oldest first."""
        said = self.root.ask(
            f"journalctl --sync; journalctl --no-pager --output=json --all "
            f"--output-fields=SYSLOG_IDENTIFIER,MESSAGE,_SOURCE_REALTIME_TIMESTAMP "
            f"--after-cursor={shlex.quote(self.cursor)} "
            + " ".join(f"--identifier={program}" for program in programs)
        )
        entries = []
        for line in said.splitlines():
            entry: dict[str, Any] = json.loads(line)
            text = entry.get("MESSAGE", "")
            if isinstance(text, list):  # not clean text: a list of bytes
                text = bytes(text).decode("utf-8", "replace")
            stamp = entry.get("_SOURCE_REALTIME_TIMESTAMP", entry["__REALTIME_TIMESTAMP"])
            entries.append(Line(entry["SYSLOG_IDENTIFIER"], text, int(stamp) / 1e6))
        return entries


def only_line(lines: Sequence[Line]) -> str:
    """Return the text of the only line that an input left, which must be printable."""
    assert len(lines) == 1, f"expected one line: {lines}"
    assert lines[0].text.isprintable(), f"a line that is none: {lines[0].text!r}"
    return lines[0].text


def refusal(lines: Sequence[Line], person: str = "bob") -> str:
    """Return the line of an input's only session, which was refused."""
    line = only_line(lines)
    assert line.startswith("event=session decision=refuse reason="), line
    assert f" user={person} " in line, line
    return line
