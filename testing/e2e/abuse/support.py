"""Sessions as an abuser has them."""

from __future__ import annotations

import contextlib
import subprocess
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testing.e2e.command import run, wait_until
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.people import Person

NO_REPOSITORY: Final = "There is no repository"
SECONDS_FOR_AN_ANSWER: Final = 30
NAME_OF_64_KIB: Final = "x" * 65536
MINE: Final = "people/bob"
"""Where bob may create repositories."""


@dataclass(frozen=True)
class Said:
    """The answer of a session, to the byte."""

    code: int
    stdout: bytes
    stderr: str

    def clean(self) -> Said:
        """Return self; fail if the answer shows internals of a program of the server."""
        text = self.stdout.decode("utf-8", "replace") + self.stderr
        for word in ("Traceback", "** ", 'File "', "uid=9", "root:x:", "site-packages"):
            assert word not in text, f"the client sees {word!r}: {self}"
        shown = self.stderr.replace("\n", "").replace("\t", "").replace("\r", "")
        assert shown.isprintable(), f"the client's terminal gets {self.stderr!r}"
        return self

    def refused(self, *words: str) -> Said:
        """Return self; fail unless it is a clean refusal in these words, only on stderr."""
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
        """Run a command in a session of its own."""
        words = ["ssh", "-F", "none", "-S", str(self.socket), *options, "hg@shared", "--", command]
        done = pace.run(
            words,
            SECONDS_FOR_AN_ANSWER,
            stdin,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self.person.environment,
        )
        return Said(done.returncode, done.stdout, done.stderr.decode("utf-8", "replace"))


@contextlib.contextmanager
def shared(person: Person) -> Iterator[Connection]:
    """Log in once; other ssh processes have their sessions over the same connection."""
    # The paths of pytest's own folders are too long for a socket.
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
                pace.wait(process, 20)
