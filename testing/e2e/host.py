"""A host of the cluster, with commands as root, and its logs from a known place on.

Tests use it only for facts that a person cannot see: a journal, an access log, a unit's state.
"""

from __future__ import annotations

import json
import shlex
import subprocess
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from testing.e2e.command import Result, run, wait_until
from testing.e2e.container import entering

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence


@dataclass(frozen=True)
class Host:
    """A host of the cluster; commands on it run as root."""

    name: str
    container: str

    def run(self, *command: str, stdin: str = "") -> Result:
        """Run a command as root."""
        done = run([*self._entering(is_read=bool(stdin)), *command], stdin=stdin)
        return replace(done, command=f"[{self.name}] {shlex.join(command)}")

    def start(self, *command: str) -> subprocess.Popen[str]:
        """Start a command as root; its input and its output are pipes."""
        argv = [*self._entering(is_read=True), *command]
        return subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def _entering(self, *, is_read: bool) -> list[str]:
        words = entering(self.container)
        if is_read and words[0] == "docker":
            words.insert(2, "--interactive")
        return words

    def shell(self, script: str) -> str:
        """Return the output of a shell script that must succeed."""
        return self.run("sh", "-ec", script).ok().stdout

    def write(self, file: str, text: str) -> None:
        """Replace the content of a file; owner and mode stay."""
        self.run("sh", "-ec", f"cat >{shlex.quote(file)}", stdin=text).ok()

    def systemctl(self, *words: str) -> Result:
        """Run systemctl."""
        return self.run("systemctl", *words)

    def journal_cursor(self) -> str:
        """Return the current end of the journal."""
        said = self.shell("journalctl --sync && journalctl --lines=0 --show-cursor")
        return said.rpartition("-- cursor: ")[2].strip()

    def journal_after(self, cursor: str, *options: str) -> list[str]:
        """Return the messages since `cursor`, oldest first."""
        self.run("journalctl", "--sync").ok()
        words = ["journalctl", "--no-pager", "--output=cat", f"--after-cursor={cursor}", *options]
        return self.run(*words).ok().stdout.splitlines()

    def journal_of_service(self, since: str) -> str:
        """Return the journal of the service's units since a time; never fails, for reports."""
        units = ("hgfleet-*", "slapd", "nginx", "haproxy", "ssh")
        words = ["journalctl", "--no-pager", "--output=short-precise", f"--since={since}"]
        words += ["--lines=40", *(f"--unit={unit}" for unit in units)]
        done = self.run(*words)
        return (done.stdout or done.stderr).strip()


@dataclass(frozen=True)
class Journals:
    """The journals of several hosts, since a moment."""

    cursors: tuple[tuple[Host, str], ...]

    @classmethod
    def begin(cls, hosts: Iterable[Host]) -> Journals:
        """Record where the journals end now."""
        return cls(tuple((host, host.journal_cursor()) for host in hosts))

    def lines(self, *options: str) -> list[str]:
        """Return the messages since then, host by host."""
        journals = [host.journal_after(cursor, *options) for host, cursor in self.cursors]
        return [line for lines in journals for line in lines]


@dataclass(frozen=True)
class RequestLog:
    """Requests for a repository in the access logs of all web hosts, since a moment.

    `places` has the inode and the size of each host's log at that moment.
    """

    places: tuple[tuple[Host, str], ...]
    repository: str
    file: str

    def lines(self) -> list[dict[str, Any]]:
        """Return this repository's requests since that moment, host by host."""
        return [line for place in self.places for line in self._lines_of(*place)]

    def _lines_of(self, host: Host, inode_and_size: str) -> list[dict[str, Any]]:
        inode, size = inode_and_size.split()
        # If the log was rotated since then, the lines are in two files.
        script = f"""
            [ -e {self.file} ] || exit 0
            if [ "$(stat -c %i {self.file})" = {inode} ]; then
                tail -c +$(({size} + 1)) {self.file}
            else
                find "$(dirname {self.file})" -inum {inode} -exec tail -c +$(({size} + 1)) {{}} +
                cat {self.file}
            fi"""
        requests = [json.loads(line) for line in host.shell(script).splitlines()]
        return [line for line in requests if line.get("repository") == self.repository]

    def wait(self, command: str) -> list[dict[str, Any]]:
        """Wait for a line of a wire command, which follows the answer; return the lines."""

        def probe() -> list[dict[str, Any]]:
            lines = self.lines()
            return lines if any(line.get("command") == command for line in lines) else []

        return wait_until(f"a request {command} for {self.repository} in {self.file}", probe, 10)


def changesets_sent(lines: Sequence[Mapping[str, Any]]) -> int:
    """Return how many bytes of changesets the web part sent, by these lines of its log.

    A client that got everything from a bundle still sends a getbundle request, for phases and
    bookmarks; its line says that no changesets were requested.
    """
    return sum(
        int(line["bytes"])
        for line in lines
        if line.get("command") in ("stream_out", "changegroup", "changegroupsubset")
        or (line.get("command") == "getbundle" and line.get("changesets"))
    )


def most_clones_at_once(lines: Sequence[str]) -> int:
    """Return the most clones that the server computed at the same time, by its log."""
    now = most = 0
    for line in lines:
        if "event=admission" in line:
            now += "decision=serve" in line
            now -= "decision=end" in line
            most = max(most, now)
    return most


@dataclass(frozen=True)
class SessionLog:
    """The sessions of a person and a repository in the SSH shell's log, since a moment."""

    host: Host
    repository: str
    person: str
    cursor: str

    def written(self) -> int:
        """Return how many bytes the sessions wrote; waits for the end of at least one session."""

        def probe() -> list[int]:
            sizes = []
            for line in self.host.journal_after(self.cursor, "--identifier=hgfleet-shell"):
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                if (words.get("event"), words.get("user"), words.get("repository")) == (
                    "session-end",
                    self.person,
                    self.repository,
                ):
                    sizes.append(int(words["bytes"]))
            return sizes

        return sum(wait_until(f"the end of {self.person}'s session in the log", probe, 10))
