"""What somebody with a key, or without, may try: refused, said, logged, and nothing has changed.

Most cases are words of bob's over one connection: sshd starts hgfleet-shell anew for each, so a
shared login takes away nothing but the time. Every test has a `witness`: what the host logged
meanwhile, and afterwards that files, listeners and processes on it are as they were.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import shlex
import socket
import ssl
import subprocess
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import SSHCertificateBuilder, SSHCertificateType

from testing.e2e.support import (
    DENIED,
    Cluster,
    Host,
    Person,
    Result,
    fingerprint,
    run,
    wait_until,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_COMMAND: Final = "is not a command of this service"
NO_REPOSITORY: Final = "There is no repository"
SECONDS_FOR_AN_ANSWER: Final = 30
NAME_OF_64_KIB: Final = "x" * 65536


# --- the host as its root sees it -------------------------------------------------------------

# Not the caches that hg keeps for readers, not locks, not folders of timers that run meanwhile.
WORLD: Final = r"""
find /srv/hg/repos /etc/hgfleet /tmp /var/tmp /var/lib/hgfleet/registry.json \
    /var/lib/hgfleet/dynamic "/proc/$(systemctl show -P MainPID hgfleet-sshd)/root/tmp" \
    \( -path '*/.hg/cache' -o -path '*/.hg/wcache' -o -name 'systemd-private-*' \
        -o -path '/var/lib/hgfleet/dynamic/*lock' \) -prune -o \
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
        self.process = subprocess.Popen(
            ["docker", "exec", "--interactive", host.container, "sh"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )

    def ask(self, script: str) -> str:
        """Return what a script prints."""
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
        """Return what nobody may change: files, listeners, processes of the service's users."""
        return sorted(self.ask(WORLD).splitlines())


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
            if isinstance(text, list):  # journalctl's way to write what is not clean text
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


@pytest.fixture(scope="module")
def root(cluster: Cluster) -> Iterator[Root]:
    """A shell of root on the SSH host."""
    shell = Root(cluster.first("ssh"))
    yield shell
    shell.close()


@pytest.fixture
def witness(root: Root) -> Iterator[Witness]:
    """See what the host logs during a test, and that it is the same host afterwards."""
    before = root.world()
    assert any(line.startswith("listens") for line in before), before
    said = root.ask("journalctl --sync; journalctl --lines=0 --show-cursor")
    yield Witness(root, said.rpartition("-- cursor: ")[2].strip())

    def unchanged() -> bool:
        after = root.world()
        new = [line for line in after if line not in before]
        gone = [line for line in before if line not in after]
        assert (new, gone) == ([], []), f"new on the host: {new}; gone: {gone}"
        return True

    # A session that was cut off may need a moment to end.
    wait_until("the host is as it was", unchanged, 10)


# --- one connection ---------------------------------------------------------------------------


@dataclass(frozen=True)
class Said:
    """What a session answered, to the byte."""

    code: int
    stdout: bytes
    stderr: str

    def clean(self) -> Said:
        """Return self; fail if it shows what a program of the server looks like inside."""
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
    """A connection of somebody that many sessions share (ControlMaster)."""

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


@pytest.fixture(scope="module")
def bobs(cluster: Cluster) -> Iterator[Connection]:
    """Bob's connection."""
    with shared(cluster.person("bob")) as connection:
        yield connection


# --- words instead of a command ---------------------------------------------------------------

COMMANDS: Final = {
    "a shell": "sh",
    "an interactive shell": "/bin/sh -i",
    "a shell with a command": "bash -c id",
    "a program": "id",
    "another command of hg": "hg version",
    "a repository's log": "hg -R hgfleet log",
    "no repository": "hg serve --stdio",
    "no stdio": "hg -R hgfleet serve",
    "only a web server": "hg -R hgfleet serve --port 8000",
    "configuration behind": "hg -R hgfleet serve --stdio --config extensions.x=/tmp/x.py",
    "configuration in front": "hg --config alias.serve=!id -R hgfleet serve --stdio",
    "configuration between": "hg -R hgfleet --config ui.debug=1 serve --stdio",
    "configuration of files": "hg -R hgfleet serve --stdio --config-file /tmp/rc",
    "a debugger behind": "hg -R hgfleet serve --stdio --debugger",
    "a debugger in front": "hg --debugger -R hgfleet serve --stdio",
    "a profiler": "hg --profile -R hgfleet serve --stdio",
    "a traceback": "hg -R hgfleet serve --stdio --traceback",
    "two repositories": "hg -R hgfleet -R sandbox/playground serve --stdio",
    "a second repository behind": "hg -R sandbox/playground serve --stdio -R hgfleet",
    "another folder": "hg --cwd / -R hgfleet serve --stdio",
    "another folder behind": "hg -R hgfleet serve --stdio --cwd /",
    "another folder alone": "hg serve --stdio --cwd /srv/hg/repos/hgfleet",
    "a daemon": "hg -R hgfleet serve --stdio --daemon --port 8000",
    "a daemon's file": "hg -R hgfleet serve --stdio --daemon-postexec unlink:/tmp/x",
    "a file of its own": "hg -R hgfleet serve --stdio --lock-file /tmp/x",
    "a pid file": "hg -R hgfleet serve --stdio --pid-file /tmp/x",
    "an access log": "hg -R hgfleet serve --stdio -A /tmp/x",
    "a command server": "hg -R hgfleet serve --cmdserver pipe",
    "an equals sign": "hg -R=hgfleet serve --stdio",
    "no blank": "hg -Rhgfleet serve --stdio",
    "the long option": "hg --repository hgfleet serve --stdio",
    "an abbreviation": "hg --repo hgfleet serve --stdio",
    "an abbreviated option": "hg -R hgfleet serve --std",
    "an abbreviated command": "hg -R hgfleet serv --stdio",
    "the end of options": "hg -R hgfleet serve --stdio --",
    "a second command": "hg -R hgfleet serve --stdio; id",
    "a second line": "hg -R hgfleet serve --stdio\nid",
    "a line in front": "id\nhg -R hgfleet serve --stdio",
    "an empty line behind": "hg -R hgfleet serve --stdio\n",
    "a carriage return": "hg -R hgfleet serve --stdio\rid",
    "and": "hg -R hgfleet serve --stdio && id",
    "or": "hg -R hgfleet serve --stdio || id",
    "in the background": "hg -R hgfleet serve --stdio & id",
    "a pipe": "hg -R hgfleet serve --stdio | tee /tmp/x",
    "into a file": "hg -R 'hgfleet' serve --stdio > /tmp/x",
    "from a file": "hg -R hgfleet serve --stdio < /etc/passwd",
    "a substitution": "hg -R $(id) serve --stdio",
    "backticks": "hg -R `id` serve --stdio",
    "a variable": "hg -R ${HOME} serve --stdio",
    "a pattern": "hg -R hgfle?t serve --stdio",
    "braces": "hg -R {hgfleet,sandbox/playground} serve --stdio",
    "double quotes": 'hg -R "hgfleet" serve --stdio',
    "a quote that goes on": "hg -R 'hgfleet'; id' serve --stdio",
    "a quote that ends early": "hg -R 'hgfleet'' serve --stdio",
    "a quote inside": "hg -R hgf'lee't serve --stdio",
    "an open quote": "hg -R 'hgfleet serve --stdio",
    "a backslash": "hg -R hgfleet\\ serve --stdio",
    "ANSI quotes": "hg -R $'hgfleet' serve --stdio",
    "two blanks": "hg  -R hgfleet  serve  --stdio",
    "a blank behind": "hg -R hgfleet serve --stdio ",
    "a blank in front": " hg -R hgfleet serve --stdio",
    "tabs": "hg\t-R\thgfleet\tserve\t--stdio",
    "a vertical tab": "hg -R hgfleet serve\v--stdio",
    "a no-break space": "hg -R hgfleet serve\u00a0--stdio",
    "an ideographic space": "hg\u3000-R hgfleet serve --stdio",
    "a zero-width space": "hg -R hgfleet serve\u200b --stdio",
    "a text that runs backwards": "hg -R hgfleet serve \u202e--stdio",
    "other hyphens": "hg -R hgfleet serve \u2010\u2010stdio",
    "a dash": "hg \u2013R hgfleet serve --stdio",
    "a Cyrillic letter": "hg -R hgfleet s\u0435rve --stdio",
    "full width": "\uff48\uff47 -R hgfleet serve --stdio",
    "capitals": "HG -R hgfleet serve --stdio",
    "a variable in front": "HGFLEET_USER=alice hg -R hgfleet serve --stdio",
    "env": "env HGRCPATH=/tmp/rc hg -R hgfleet serve --stdio",
    "exec": "exec hg -R hgfleet serve --stdio",
    "hg by its path": "/opt/hgfleet/current/bin/hg -R hgfleet serve --stdio",
    "our own command": "hgfleet registry apply",
    "our own shell": "hgfleet-shell --user alice",
    "an option of our shell": "--user alice",
    "help and more": "help; id",
    "whoami and more": "whoami --user alice",
    "scp, writing": "scp -t /tmp",
    "scp, reading": "scp -f /etc/passwd",
    "rsync": "rsync --server --sender . /etc",
    "git": "git-upload-pack 'hgfleet'",
    "sftp": "internal-sftp",
    "sftp by its path": "/usr/lib/openssh/sftp-server",
    "colours for the terminal": "\x1b[2J\x1b]0;owned\x07\x1b[31m",
    "a line for the log": "x\nevent=session decision=serve user=alice repo=hgfleet",
    "a field for the log": 'x" user=alice decision=serve command="',
    "control characters": "".join(map(chr, range(1, 32))),
    "4 KiB": "hg -R " + "x" * 5000 + " serve --stdio",
    "64 KiB": NAME_OF_64_KIB,
    "64 KiB of a path": f"hg -R '{NAME_OF_64_KIB}' serve --stdio",
    "64 KiB of quotes": "hg -R '" + "'\\''" * 16384 + "' serve --stdio",
}


@pytest.mark.parametrize("command", COMMANDS.values(), ids=COMMANDS)
def test_any_other_command_is_refused(bobs: Connection, witness: Witness, command: str) -> None:
    bobs.run(command).refused()

    witness.refusal()


def test_a_command_that_is_no_text_is_refused(bobs: Connection, witness: Witness) -> None:
    for latin1 in ("hg -R h\udce4 serve --stdio", "\udcff\udcfe", "hg -R '\udcc3' serve --stdio"):
        bobs.run(latin1).refused()

    assert len(witness.lines("hgfleet-shell")) == 3


# --- self-service with hostile words ----------------------------------------------------------

MINE: Final = "people/bob"
"""Where bob may create repositories."""

WORDS: Final = {
    "create nothing": "repo create",
    "create too much": f"repo create {MINE}/x {MINE}/y",
    "create above": f"repo create {MINE}/../x",
    "create far above": f"repo create {MINE}/../../../../../tmp/x",
    "create at an absolute path": "repo create /tmp/x",
    "create at the root": "repo create x",
    "create in a namespace that is not open": "repo create e2e/x",
    "create in somebody else's": "repo create people/alice/x",
    "create what there is": "repo create hgfleet",
    "create inside a repository": "repo create hgfleet/x",
    "create inside its store": "repo create hgfleet/.hg/x",
    "create the store": f"repo create {MINE}/.hg",
    "create a hidden one": f"repo create {MINE}/.x",
    "create an option": "repo create --config=x",
    "create with configuration": f"repo create {MINE}/x --config extensions.x=/tmp/x.py",
    "create after the end of options": "repo create -- -R",
    "create a blank": f"repo create '{MINE}/x y'",
    "create a line": f"repo create '{MINE}/x\ny'",
    "create a tab": f"repo create '{MINE}/x\ty'",
    "create a quote": f'repo create "{MINE}/x\'y"',
    "create half a quote": f"repo create '{MINE}/x",
    "create a substitution": f"repo create {MINE}/$(id)",
    "create backticks": f"repo create {MINE}/`id`",
    "create and more": f"repo create {MINE}/x; id",
    "create with a coded slash": f"repo create {MINE}%2fx",
    "create with a format": f"repo create {MINE}/%s%n",
    "create in capitals": f"repo create {MINE}/X".upper(),
    "create a letter that looks like another": f"repo create {MINE}/\u0430",
    "create what hg encodes": f"repo create {MINE}/x.hg",
    "create a backslash": f"repo create {MINE}\\x",
    "create 300 letters": f"repo create {MINE}/{'x' * 300}",
    "create 64 KiB": f"repo create {MINE}/{NAME_OF_64_KIB}",
    "create for a group with a comma": f"repo create {MINE}/x --read ,",
    "create for a group that is none": f"repo create {MINE}/x --read '../x y'",
    "create with two readers": f"repo create {MINE}/x --read public --read private",
    "describe with a line": f"repo create {MINE}/x --description 'x\npush = *'",
    "describe with colours": f"repo create {MINE}/x --description '\x1b[31m'",
    "describe with 64 KiB": f"repo create {MINE}/x --description {NAME_OF_64_KIB}",
    "fork what is private": f"repo fork e2e/private {MINE}/x",
    "fork what is not there": f"repo fork nothing {MINE}/x",
    "fork a bundle": f"repo fork bundle:/srv/hg/repos/e2e/private {MINE}/x",
    "fork another server": f"repo fork ssh://-oProxyCommand=id/x {MINE}/x",
    "fork a path": f"repo fork /srv/hg/repos/e2e/private {MINE}/x",
    "fork to above": f"repo fork hgfleet {MINE}/../x",
    "fork over another": "repo fork hgfleet sandbox/playground",
    "fork onto itself": "repo fork hgfleet hgfleet",
    "describe what is not mine": "repo describe hgfleet mine now",
    "describe what is private": "repo describe e2e/private mine now",
    "archive what is not mine": "repo archive hgfleet",
    "archive what is private": "repo archive e2e/private",
    "archive above": "repo archive ../../etc",
    "archive everything": "repo archive *",
    "restore what is not mine": "repo restore hgfleet",
    "restore by an option": "repo restore --all",
    "info about what is private": "repo info e2e/private",
    "info about a path": "repo info /etc/passwd",
    "list with an option": "repo list --config=x",
    "list with a line": "repo list 'x\ny'",
    "purge": "repo purge hgfleet",
    "chown": "repo chown hgfleet bob",
    "abbreviated": "repo cre x",
    "tabs": "repo\tlist",
    "another blank": "repo\u00a0list",
    "keys of another": "keys alice",
    "keys, added": "keys add ssh-ed25519 AAAA",
    "a token for ever": "token create --days 99999999999999999999",
    "a token of yesterday": "token create --days -1",
    "a token in words": "token create --days NaN",
    "a token's line": "token create 'x\ny'",
    "a token elsewhere": "token revoke ../../../etc/passwd",
    "all tokens": "token revoke *",
    "tokens of another": "token list alice",
    "help about what is none": "help $(id)",
}


@pytest.mark.parametrize("words", WORDS.values(), ids=WORDS)
def test_self_service_takes_no_hostile_words(
    bobs: Connection, witness: Witness, words: str
) -> None:
    bobs.run(words).refused()

    witness.refusal()


def test_what_is_private_is_answered_as_what_is_not_there(
    bobs: Connection, witness: Witness
) -> None:
    for command in ("repo info {}", "repo archive {}", "repo fork {} " + MINE + "/x"):
        private = bobs.run(command.format("e2e/private")).refused()
        missing = bobs.run(command.format("e2e/pravite")).refused()

        assert private.code == missing.code
        assert private.stderr.replace("e2e/private", "e2e/pravite") == missing.stderr

    assert len(witness.lines("hgfleet-shell")) == 6


# --- paths ------------------------------------------------------------------------------------

PATHS: Final = {
    "up": "../hgfleet",
    "up and down": "sandbox/../hgfleet",
    "far up": "hgfleet/../../../../etc",
    "inside": "hgfleet/.hg",
    "further inside": "hgfleet/.hg/store",
    "here": "./hgfleet",
    "here, between": "sandbox/./playground",
    "two slashes behind": "hgfleet//",
    "two slashes in front": "//hgfleet",
    "two slashes between": "sandbox//playground",
    "a namespace": "sandbox",
    "a namespace with a slash": "sandbox/",
    "an absolute path": "/srv/hg/repos/hgfleet",
    "another absolute path": "/etc",
    "a device": "/dev/stdin",
    "a process": "/proc/self/cwd",
    "capitals": "HGFLEET",
    "capitals of a namespace": "Sandbox/playground",
    "a coded slash": "hgfleet%2f",
    "a coded way up": "sandbox/%2e%2e/hgfleet",
    "a coded NUL": "hgfleet%00",
    "coded twice": "%252e%252e/hgfleet",
    "an overlong slash": "..\udcc0\udcaf..\udcc0\udcafetc",
    "a format": "%s%n%x",
    "a home": "~hg/repos/hgfleet",
    "a variable": "$HOME",
    "an option": "--debugger",
    "another option": "--config=alias.serve=!id",
    "a bundle": "bundle:/srv/hg/repos/hgfleet",
    "a bundle over a repository": "bundle:hgfleet+/tmp/x.hg",
    "a union": "union:hgfleet+sandbox/playground",
    "a file": "file:///srv/hg/repos/hgfleet",
    "a static file": "static-http://localhost/hgfleet",
    "another server": "ssh://localhost/hgfleet",
    "another server's option": "ssh://-oProxyCommand=id/hgfleet",
    "the web": "https://localhost/hgfleet",
    "a branch": "hgfleet#default",
    "a query": "hgfleet?cmd=heads",
    "a line": "hgfleet\nsandbox",
    "a quote": "hgfleet' serve --stdio; id; '",
    "composed": "sandbox/pl\u00e4yground",
    "decomposed": "sandbox/pla\u0308yground",
    "a Cyrillic letter": "hgfl\u0435et",
    "full width": "\uff48\uff47\uff46\uff4c\uff45\uff45\uff54",
    "a dotless i": "sandbox/play\u0131ng",
    "a sharp s": "hgflee\u00df",
    "a zero-width joiner": "hg\u200dfleet",
    "a byte order mark": "\ufeffhgfleet",
    "no text": "hgfleet\udcff",
    "a filter": "hgfleet)(uid=*",
    "colours": "\x1b[31mhgfleet",
    "a stream": "hgfleet:stream",
    "a dot behind": "hgfleet.",
    "a blank behind": "hgfleet ",
    "a private repository": "e2e/private",
    "200 folders": "a/" * 200 + "b",
    "3000 letters": "x" * 3000,
}


@pytest.mark.parametrize("path", PATHS.values(), ids=PATHS)
def test_no_path_leads_out_of_the_registry(bobs: Connection, witness: Witness, path: str) -> None:
    plain = re.fullmatch(r"[A-Za-z0-9@%_+=:,./-]+", path)
    quoted = path if plain else "'" + path.replace("'", "'\\''") + "'"

    bobs.run(f"hg -R {quoted} serve --stdio").refused(NO_REPOSITORY)

    assert "reason=no-repository" in witness.refusal()


@pytest.fixture
def planted(root: Root) -> Iterator[str]:
    """A link among the repositories, to one that bob may not read."""
    link = "/srv/hg/repos/sandbox/planted"
    root.ask(f"ln -sfn /srv/hg/repos/e2e/private {link}")
    yield "sandbox/planted"
    root.ask(f"rm {link}")


def test_a_link_between_the_repositories_leads_nowhere(
    planted: str, bobs: Connection, witness: Witness
) -> None:
    for path in (planted, f"{planted}/", f"{planted}/.hg", f"{planted}/../playground"):
        bobs.run(f"hg -R {path} serve --stdio").refused(NO_REPOSITORY)

    assert len(witness.lines("hgfleet-shell")) == 4


# --- the environment --------------------------------------------------------------------------

VARIABLES: Final = {
    "HGFLEET_USER": "alice",
    "HGFLEET_GROUPS": "maintainers",
    "HGRCPATH": "/tmp/rc",
    "HGPLAIN": "",
    "HGENCODING": "utf-7",
    "HGMERGE": "id",
    "HGUSER": "alice",
    "HGDEBUG": "1",
    "HGPROF": "stat",
    "EDITOR": "id",
    "PYTHONPATH": "/tmp",
    "PYTHONSTARTUP": "/tmp/x.py",
    "PYTHONINSPECT": "1",
    "PYTHONBREAKPOINT": "os.system",
    "LD_PRELOAD": "/tmp/x.so",
    "LD_LIBRARY_PATH": "/tmp",
    "LDAPCONF": "/tmp/ldap.conf",
    "PATH": "/tmp",
    "HOME": "/tmp",
    "ENV": "/tmp/x.sh",
    "BASH_ENV": "/tmp/x.sh",
    "SSH_ORIGINAL_COMMAND": "help",
    "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 2",
    "LC_ALL": "tr_TR.UTF-8",
    "LANG": "x\nHGFLEET_USER=alice",
}


@pytest.mark.parametrize("name", VARIABLES)
def test_no_variable_of_the_client_arrives(bobs: Connection, witness: Witness, name: str) -> None:
    options = ["-o", f'SetEnv={name}="{VARIABLES[name]}"']

    said = bobs.run("whoami", *options).clean()

    assert said.code == 0, said
    assert b"bob" in said.stdout
    assert b"alice" not in said.stdout
    line = witness.one_line()
    assert "reason=whoami user=bob " in line
    assert "192.0.2.1" not in line


# --- inside a session of hg -------------------------------------------------------------------


def call(command: str, /, **arguments: bytes) -> bytes:
    """Write a command of the wire protocol as an hg client does over SSH."""
    text = f"{command}\n".encode()
    for name, value in arguments.items():
        text += f"{name.replace('star', '*')} {len(value)}\n".encode() + value
    return text


NULL: Final = b"0" * 40

UNBUNDLE: Final = call("unbundle", heads=b"force".hex().encode())


def writes(tip: bytes) -> dict[str, bytes]:
    """Return requests to write; `tip` is a changeset that the repository has."""
    return {
        "a bookmark": call("pushkey", namespace=b"bookmarks", key=b"x", old=b"", new=tip),
        "a bookmark in a batch": call(
            "batch",
            star=b"",
            cmds=b"heads ;pushkey namespace=bookmarks,key=x,old=,new=" + tip,
        ),
        "a marker": call("pushkey", namespace=b"obsolete", key=b"dump0", old=b"", new=b"AA=="),
        "an empty bundle": UNBUNDLE + b"12\nHG20" + b"\0" * 8 + b"0\n",
    }


@pytest.mark.parametrize("what", writes(b""))
def test_the_wire_protocol_writes_nothing_without_the_right(
    bobs: Connection, witness: Witness, cluster: Cluster, what: str
) -> None:
    request = writes(min(cluster.remote_heads("e2e/push")).encode())[what]

    said = bobs.run("hg -R e2e/push serve --stdio", stdin=request).clean()

    assert "bob may not push to e2e/push" in said.stderr + said.stdout.decode("utf-8", "replace")
    assert [line.text.split()[0] for line in witness.lines("hgfleet-shell")] == [
        "event=session",
        "event=session-end",
    ]


NONSENSE: Final = {
    "an unknown command": b"rm -rf /\n",
    "a command of Python": b"__class__\n",
    "a private command": b"_capabilities\n",
    "64 KiB without an end": NAME_OF_64_KIB.encode(),
    "NUL": b"\0\0\0\0\n\0",
    "no length": b"lookup\nkey\n",
    "a word for a length": b"lookup\nkey abc\n",
    "a negative length": b"lookup\nkey -5\n",
    "a length beyond memory": b"lookup\nkey 99999999999999\n",
    "a length beyond numbers": b"lookup\nkey " + b"9" * 5000 + b"\n",
    "another argument": b"lookup\nyek 1\nx",
    "a path to look up": call("lookup", key=b"../../../etc/passwd"),
    "a revset to look up": call("lookup", key=b"file('set:size(\">0\")')"),
    "an escape to look up": call("lookup", key=b"\x1b[31m\0\n\xff"),
    "64 KiB to look up": call("lookup", key=NAME_OF_64_KIB.encode()),
    "keys of nothing": call("listkeys", namespace=b"../../hgrc"),
    "a namespace of control characters": call("listkeys", namespace=b"\0\n\x1b[31m"),
    "nodes that are none": call("known", star=b"", nodes=b"xyz ../.. " + NULL),
    "roots that are none": call("getbundle", star=b"", common=b"zz", heads=b"--debugger"),
    "an unknown argument": call("getbundle", star=b"", evil=b"1"),
    "a batch of nothing": call("batch", star=b"", cmds=b";;;"),
    "a batch of a batch": call("batch", star=b"", cmds=b"batch cmds=heads :"),
    "a batch of nonsense": call("batch", star=b"", cmds=b"eval x=:e,:c,:q"),
    "a bundle of the old kind": UNBUNDLE + b"6\nHG10UN0\n",
    "a bundle that is none": UNBUNDLE + b"4\n\x7fELF0\n",
    "a bundle without an end": UNBUNDLE + b"99\nHG20",
    "a phase that goes back": call("pushkey", namespace=b"phases", key=NULL, old=b"0", new=b"1"),
    "capabilities": call("protocaps", caps=b"comp=" + b"x," * 10000 + b"\n\0"),
    "an upgrade": b"upgrade x proto=exp-ssh-v2-0003\nhello\nbetween\n",
    "branches": call("branches", nodes=b"x" * 40),
    "a range": call("between", pairs=b"x-y"),
    "a big stream": call("stream_out"),
    "debug arguments": call("debugwireargs", star=b"", one=b"$(id)", two=b"`id`"),
}


@pytest.mark.parametrize("words", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_on_the_wire_ends_the_session_and_shows_nothing(
    bobs: Connection, witness: Witness, words: bytes
) -> None:
    bobs.run("hg -R e2e/push serve --stdio", stdin=words).clean()

    lines = witness.lines("hgfleet-shell")
    assert lines[0].text.startswith("event=session decision=serve user=bob repo=e2e/push "), lines
    assert all(line.text.isprintable() for line in lines), lines
    assert len(lines) == 2, lines


# --- at the door ------------------------------------------------------------------------------

NAMES: Final = {
    "a filter": "bob)(uid=*",
    "a filter of all": "*",
    "another filter": "hg)(|(uid=*",
    "root": "root",
    "a person": "bob",
    "a service": "hgkeys",
    "the break-glass account": "breakglass",
    "nobody": "no-such-user",
    "a line": "hg\nevent=key decision=allow person=alice",
    "colours": "\x1b[31mhg",
    "a blank": "hg ",
    "an option": "-oProxyCommand=id",
    "capitals": "HG",
    "a path": "../hg",
    "a format": "%s%n%u",
    "4 KiB": "x" * 4096,
    "64 KiB": NAME_OF_64_KIB,
}


@pytest.mark.parametrize("name", NAMES.values(), ids=NAMES)
def test_nobody_enters_by_another_name(
    cluster: Cluster, bob: Person, witness: Witness, name: str
) -> None:
    env = cluster.env
    where = ["-o", "LogLevel=ERROR", "-p", env["HGFLEET_SSH_PORT"], env["HGFLEET_SSH_HOST"]]
    words = ["ssh", *bob.ssh_options, f"-l{name}", *where, "whoami"]

    said = run(words, env=bob.environment).refused()

    assert said.stdout == ""
    assert witness.lines("hgfleet-shell", "hgfleet-keys") == []
    lines = witness.lines("sshd", "sshd-session")
    assert all(line.text.isprintable() for line in lines), lines
    # Some ssh refuse to send some names.
    assert lines or "invalid characters" in said.stderr, said


@pytest.fixture(scope="module")
def made_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key of nobody's."""
    key = tmp_path_factory.mktemp("key") / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "made", "-f", str(key)]).ok()
    return key


PRINCIPALS: Final = {
    "nobody": "",
    "a filter": "alice)(uid=*",
    "everybody": "*",
    "two people": "alice,bob",
    "a group": "maintainers",
    "the account": "hg",
    "an option": "alice --groups maintainers",
    "a quote": 'alice",command="id',
    "a substitution": "$(id)",
    "capitals": "ALICE",
    "a blank": " alice",
    "a line": "alice\nbob",
    "a NUL": "alice\0bob",
    "a letter that looks like another": "\u0430lice",
    "a disabled person": "mallory",
    "64 KiB": NAME_OF_64_KIB,
}


def certified(key: Path, ca: Path, principals: list[bytes], folder: Path) -> Path:
    """Return a copy of a key with a certificate of a CA, for everybody if it names nobody.

    ssh-keygen would refuse half of the names.
    """
    public = serialization.load_ssh_public_key(key.with_suffix(".pub").read_bytes())
    signer = serialization.load_ssh_private_key(ca.read_bytes(), None)
    assert isinstance(public, Ed25519PublicKey)
    assert isinstance(signer, Ed25519PrivateKey)
    now = int(time.time())
    everybody: Any = SSHCertificateBuilder().valid_for_all_principals  # has no types
    builder = SSHCertificateBuilder().valid_principals(principals) if principals else everybody()
    certificate = (
        builder.public_key(public)
        .serial(1)
        .type(SSHCertificateType.USER)
        .key_id(b"abuse\nevent=certificate decision=allow")
        .valid_after(now - 60)
        .valid_before(now + 600)
        .sign(signer)
        .public_bytes()
    )
    copy = folder / "certified"
    copy.write_bytes(key.read_bytes())
    copy.chmod(0o600)
    (folder / "certified-cert.pub").write_bytes(certificate + b"\n")
    return copy


def comes_with(cluster: Cluster, key: Path) -> Person:
    """Return whoever has a key, with its certificate."""
    return Person("stranger", key, cluster)


@pytest.mark.parametrize("principal", PRINCIPALS.values(), ids=PRINCIPALS)
def test_a_certificate_for_no_single_person_opens_nothing(
    cluster: Cluster, witness: Witness, made_key: Path, tmp_path: Path, principal: str
) -> None:
    names = [part.encode() for part in principal.split(",")] if principal else []
    ca = cluster.person("user-ca").key
    stranger = comes_with(cluster, certified(made_key, ca, names, tmp_path))

    stranger.ssh("whoami").refused()

    assert witness.lines("hgfleet-shell") == []
    lines = witness.lines("hgfleet-keys")
    assert all("decision=deny" in line.text and line.text.isprintable() for line in lines), lines


def test_a_certificate_of_another_authority_opens_nothing(
    cluster: Cluster, witness: Witness, made_key: Path, tmp_path: Path
) -> None:
    stranger = comes_with(cluster, certified(made_key, made_key, [b"alice"], tmp_path))

    stranger.ssh("whoami").refused(DENIED)

    assert witness.lines("hgfleet-shell") == []


def test_the_same_certificate_with_one_honest_name_opens(
    cluster: Cluster, made_key: Path, tmp_path: Path
) -> None:
    """What the cases above would look like if nobody looked."""
    ca = cluster.person("user-ca").key
    friend = comes_with(cluster, certified(made_key, ca, [b"alice"], tmp_path))

    assert "alice" in friend.ssh("whoami").ok().stdout


# --- what the directory may hold --------------------------------------------------------------

STORED: Final = {
    "options": 'command="id",no-pty {key}',
    "an environment": 'environment="HGFLEET_USER=alice" {key}',
    "a principal": 'cert-authority,principals="alice" {key}',
    "two lines": "{key}\n{key}",
    "another key's line": "{key}\nssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIAAAA alice",
    "a line behind": "{key}\n",
    "a carriage return": "{key}\r",
    "NUL": "{key}\0",
    "a tab": "\t{key}",
    "a comment character": "#{key}",
    "another type": "ssh-dss {blob}",
    "a type that lies": "ssh-rsa {blob}",
    "a certificate's type": "ssh-ed25519-cert-v01@openssh.com {blob}",
    "half a key": "ssh-ed25519 {half}",
    "no key": "ssh-ed25519",
    "text": "alice",
    "no text": "{key} \udcff\udcfe",
    "64 KiB of a comment's lines": "{key} " + "x\n" * 32768,
}


@dataclass(frozen=True)
class Entries:
    """Entries of the directory that a test makes as its administrator; they go afterwards."""

    host: Host
    base: str

    def add(self, dn: str, attributes: list[tuple[str, str]]) -> Result:
        """Add an entry below the base."""
        lines = [("dn", f"{dn},{self.base}"), *attributes]
        # In base64, as LDIF has it for whatever is not plain.
        ldif = "".join(
            f"{name}:: {base64.b64encode(value.encode('utf-8', 'surrogateescape')).decode()}\n"
            for name, value in lines
        )
        return self.host.run("ldapadd", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", stdin=ldif)

    def remove(self, dn: str) -> None:
        """Remove an entry, if it is there."""
        words = ["ldapdelete", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///", f"{dn},{self.base}"]
        done = self.host.run(*words)
        assert done.code in (0, 32), done  # 32: no such object


@pytest.fixture
def entries(cluster: Cluster) -> Iterator[Entries]:
    """The directory, without what the test adds afterwards."""
    found = Entries(cluster.first("directory"), cluster.env["HGFLEET_LDAP_BASE"])
    yield found
    found.remove("cn=Abuse,ou=people")
    found.remove("ou=Abuse,ou=groups")


def person_entry(uid: str, key: str, identity: str) -> list[tuple[str, str]]:
    """Return a person with a key; the name of the entry is another, so that any `uid` fits."""
    return [
        ("objectClass", "inetOrgPerson"),
        ("objectClass", "ldapPublicKey"),
        ("cn", "Abuse"),
        ("sn", "Abuse"),
        ("uid", uid),
        ("sshPublicKey", key),
        ("sshPublicKeyId", identity),
    ]


def denials(witness: Witness, identity: str) -> list[str]:
    """Return the reasons of the lookups of a key."""
    lines = [line.text for line in witness.lines("hgfleet-keys") if identity in line.text]
    assert all(line.isprintable() for line in lines), lines
    return [found[1] for line in lines if (found := re.search(r" reason=(\S+)", line))]


def wait_for_reason(stranger: Person, witness: Witness, reason: str) -> None:
    """Try until the replica has the entry; every try has to be refused."""
    identity = fingerprint(stranger.key)

    def tried() -> bool:
        stranger.ssh("whoami").refused(DENIED)
        return denials(witness, identity)[-1] == reason

    wait_until(f"the lookup says {reason}", tried, 20)


@pytest.mark.parametrize("stored", STORED.values(), ids=STORED)
def test_a_stored_key_that_is_more_than_a_key_opens_nothing(
    cluster: Cluster, entries: Entries, witness: Witness, made_key: Path, stored: str
) -> None:
    kind, blob = made_key.with_suffix(".pub").read_text().split()[:2]
    value = stored.format(key=f"{kind} {blob}", blob=blob, half=blob[:40])
    entry = person_entry("abuse", value, fingerprint(made_key))
    entries.add("cn=Abuse,ou=people", entry).ok()

    wait_for_reason(Person("stranger", made_key, cluster), witness, "directory-key")

    assert witness.lines("hgfleet-shell") == []


UIDS: Final = {
    "an option": "bob --groups maintainers",
    "a quote": 'bob",command="id" ',
    "a substitution": "$(id)",
    "a command": "bob;id",
    "a line": "bob\nalice",
    "a filter": "bob)(uid=*",
    "a path": "../bob",
    "an operator": "operator:bob",
    "capitals": "Bob",
    "a letter that looks like another": "b\u043eb",
    "a hyphen first": "-bob",
    "64 KiB": NAME_OF_64_KIB,
}


@pytest.mark.parametrize("uid", UIDS.values(), ids=UIDS)
def test_a_stored_name_that_is_none_opens_nothing(
    cluster: Cluster, entries: Entries, witness: Witness, made_key: Path, uid: str
) -> None:
    key = " ".join(made_key.with_suffix(".pub").read_text().split()[:2])
    entries.add("cn=Abuse,ou=people", person_entry(uid, key, fingerprint(made_key))).ok()

    wait_for_reason(Person("stranger", made_key, cluster), witness, "name")

    assert witness.lines("hgfleet-shell") == []


@pytest.mark.parametrize(
    "name",
    ["maintainers,sandbox", "x --user alice", 'x" --user alice "', "$(id)", "x\ny", "public"],
)
def test_a_stored_group_with_a_hostile_name_gives_nothing(
    cluster: Cluster, entries: Entries, bob: Person, witness: Witness, name: str
) -> None:
    before = bob.ssh("whoami").ok().stdout
    member = f"uid=bob,ou=people,{entries.base}"
    group = [("objectClass", "groupOfNames"), ("ou", "Abuse"), ("cn", name), ("member", member)]
    entries.add("ou=Abuse,ou=groups", group).ok()
    status = ["hgfleet", "replica", "status"]
    wait_until("the replica has it", lambda: cluster.first("ssh").run(*status).ok(), 20)

    assert bob.ssh("whoami").ok().stdout == before
    assert all(line.text.isprintable() for line in witness.lines("hgfleet-keys"))


# --- over HTTPS -------------------------------------------------------------------------------


def basic(text: bytes) -> bytes:
    """Write a name and a password as a header."""
    return b"Authorization: Basic " + base64.b64encode(text)


HEADERS: Final = {
    "no credentials": b"Authorization: Basic",
    "no base64": b"Authorization: Basic %%%///",
    "no colon": basic(b"alice"),
    "no name": basic(b":secret"),
    "no password": basic(b"alice:"),
    "a filter": basic(b"alice)(uid=*:x"),
    "everybody": basic(b"*:*"),
    "a NUL": basic(b"alice\0:x\0"),
    "a line": basic(b"alice\nevent=auth decision=allow:x"),
    "no text": basic(b"\xff\xfe:\xff"),
    "a DN": basic(b"uid=alice,ou=people:x"),
    "another scheme": b"Authorization: Negotiate YIIZ",
    "a bearer": b"Authorization: Bearer " + b"x" * 200,
    "twice": basic(b"alice:x") + b"\r\n" + basic(b"bob:x"),
    "64 KiB": basic(b"alice:" + b"x" * 49152),
    "a name of 4 KiB": basic(b"x" * 4096 + b":x"),
    "2000 headers": b"\r\n".join(b"X-%d: x" % i for i in range(2000)),
    "the name that the proxy gives": b"X-Forwarded-User: alice\r\nX-Remote-User: alice",
    "the name in another way": b"Remote-User: alice\r\nREMOTE_USER: alice",
    "two lengths": b"Content-Length: 0\r\nContent-Length: 5",
    "a length and chunks": b"Content-Length: 4\r\nTransfer-Encoding: chunked",
    "a folded header": basic(b"alice:x") + b"\r\n b2Js",
}


@pytest.mark.parametrize("header", HEADERS.values(), ids=HEADERS)
def test_no_header_opens_what_is_private(cluster: Cluster, witness: Witness, header: bytes) -> None:
    where = urlsplit(cluster.url("e2e/private?cmd=heads"))
    request = f"GET {where.path}?{where.query} HTTP/1.1\r\nHost: {where.netloc}\r\n".encode()
    request += header + b"\r\nConnection: close\r\n\r\n"
    trust = ssl.create_default_context(cafile=cluster.env["HGFLEET_CA_CERT"])
    assert where.hostname
    assert where.port

    with (
        socket.create_connection((where.hostname, where.port), timeout=20) as plain,
        trust.wrap_socket(plain, server_hostname=where.hostname) as link,
    ):
        said = b""
        with contextlib.suppress(ConnectionError, ssl.SSLError):  # refused while it was sent
            link.sendall(request + (b"0\r\n\r\n" if b"chunked" in header else b""))
        with contextlib.suppress(ConnectionError, ssl.SSLError):
            while more := link.recv(65536):
                said += more

    assert re.match(rb"HTTP/1\.[01] 4\d\d ", said), said[:2000]
    assert b"Traceback" not in said
    lines = witness.lines("hgfleet-auth", "hgfleet-web", "gunicorn", "nginx", "haproxy")
    assert all(line.text.isprintable() and "Traceback" not in line.text for line in lines), lines
