"""Sessions as an abuser has them, and the host as its root sees it before and after each."""

from __future__ import annotations

import contextlib
import json
import os
import shlex
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from testing.e2e.command import run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.host import Host
    from testing.e2e.people import Person

NO_REPOSITORY: Final = "There is no repository"
SECONDS_FOR_AN_ANSWER: Final = 30
NAME_OF_64_KIB: Final = "x" * 65536
MINE: Final = "people/bob"
"""Where bob may create repositories."""


# Not the caches that hg keeps for readers, not locks, not folders of timers that run meanwhile.
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
    """A shell of root on a host that stays open: starting one takes longer than most questions."""

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
        self.process.wait(timeout=10)

    def world(self) -> list[str]:
        """Return the state that no abuser may change: files, listeners, processes of users.

        The tests run alone on the cluster, so the state after one test is that before the next.
        """
        if self._world is None:
            self._world = self.look()
        return self._world

    def look(self) -> list[str]:
        """Return the state of this moment."""
        return sorted(self.ask(WORLD).splitlines())

    def forget(self) -> None:
        """Look again before the next test: this test changes the state itself."""
        self._world = None

    def cursor(self) -> str:
        """Return the place where the journal ends now."""
        said = self.ask("journalctl --sync; journalctl --lines=0 --show-cursor")
        return said.rpartition("-- cursor: ")[2].strip()


@dataclass(frozen=True)
class Line:
    """One entry of the journal."""

    program: str
    pid: str
    text: str


@dataclass(frozen=True)
class Witness:
    """What the host logged from a moment on."""

    root: Root
    cursor: str

    def lines(self, *programs: str) -> list[Line]:
        """Return the entries of some programs."""
        said = self.root.ask(
            f"journalctl --sync; journalctl --no-pager --output=json --all "
            f"--output-fields=SYSLOG_IDENTIFIER,SYSLOG_PID,_PID,MESSAGE "
            f"--after-cursor={shlex.quote(self.cursor)} "
            + " ".join(f"--identifier={program}" for program in programs)
        )
        found = []
        for line in said.splitlines():
            entry: dict[str, Any] = json.loads(line)
            text = entry.get("MESSAGE", "")
            if isinstance(text, list):  # not clean text: a list of bytes
                text = bytes(text).decode("utf-8", "replace")
            found.append(Line(entry["SYSLOG_IDENTIFIER"], entry.get("_PID", ""), text))
        return found

    def one_line(self, program: str = "hgfleet-shell") -> str:
        """Return the one line that a program logged; it must be one, and printable."""
        lines = self.lines(program)
        assert len(lines) == 1, f"expected one line of {program}: {lines}"
        assert lines[0].text.isprintable(), f"a line that is none: {lines[0].text!r}"
        return lines[0].text

    def refusal(self, person: str = "bob") -> str:
        """Return the line of the one session that was refused."""
        line = self.one_line()
        assert line.startswith("event=session decision=refuse reason="), line
        assert f" user={person} " in line, line
        return line


@dataclass(frozen=True)
class Said:
    """What a session answered, to the byte."""

    code: int
    stdout: bytes
    stderr: str

    def clean(self) -> Said:
        """Return self; fail if it shows the inside of a program of the server."""
        text = self.stdout.decode("utf-8", "replace") + self.stderr
        for word in ("Traceback", "** ", 'File "', "uid=9", "root:x:", "site-packages"):
            assert word not in text, f"the client sees {word!r}: {self}"
        shown = self.stderr.replace("\n", "").replace("\t", "").replace("\r", "")
        assert shown.isprintable(), f"the client's terminal gets {self.stderr!r}"
        return self

    def refused(self, *words: str) -> Said:
        """Return self; fail unless it is a clean refusal in these words, on stderr alone."""
        assert self.code not in (0, 255), f"expected a refusal, but: {self}"
        assert self.stdout == b"", f"a refusal goes to stderr: {self}"
        for word in words:
            assert word in self.stderr, f"expected {word!r} in: {self}"
        return self.clean()


@dataclass(frozen=True)
class Connection:
    """A person's connection that many sessions share (ControlMaster)."""

    person: Person
    socket: Path

    def run(self, command: str, *options: str, stdin: bytes = b"") -> Said:
        """Ask for one session with this command."""
        words = ["ssh", "-F", "none", "-S", str(self.socket), *options, "hg@shared", "--", command]
        done = subprocess.run(
            words,
            input=stdin,
            capture_output=True,
            env=self.person.environment,
            timeout=SECONDS_FOR_AN_ANSWER,
            check=False,
        )
        return Said(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


@contextlib.contextmanager
def shared(person: Person) -> Iterator[Connection]:
    """Log in once; sessions of other ssh processes go over the same connection."""
    # pytest's own folders are too deep for the name of a socket.
    with tempfile.TemporaryDirectory(prefix="ssh-") as folder:
        socket = Path(folder) / "s"
        words = ["ssh", "-M", "-N", "-S", str(socket), *person.ssh_options, *person.ssh_target]
        with subprocess.Popen(
            words,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env=person.environment,
        ) as process:
            try:
                wait_until(f"{person.name} is connected", socket.exists, 20)
                yield Connection(person, socket)
            finally:
                run(["ssh", "-F", "none", "-S", str(socket), "-O", "exit", "hg@shared"])
                process.wait(timeout=20)
