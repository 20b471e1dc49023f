"""What end-to-end tests stand on: people, hosts, hg, and logs read from a known place on.

Everything is reached the way a person reaches it: with the addresses, keys and certificates that
`./cluster env` prints, the real hg and the real ssh. Only what a person could not see (a journal,
an access log, a unit to stop) goes through the container of a host.
"""

from __future__ import annotations

import base64
import json
import os
import re
import shlex
import ssl
import subprocess
import time
import urllib.error
import urllib.request
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

import bootstrap
from bootstrap import ROOT, VENV

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from email.message import Message

T = TypeVar("T")

SECONDS_FOR_A_COMMAND: Final = 120
SHOWN_LINES: Final = 40
"""Of a command's output, in the message of a test that failed."""
DENIED: Final = "Permission denied (publickey)"
"""What ssh says when no key was taken, whatever the reason."""
INVENTORY: Final = ROOT / "ansible/inventories/cluster/hosts.yml"


def wait_until(what: str, probe: Callable[[], T], seconds: float = 30, every: float = 0.2) -> T:
    """Return the first true answer of `probe`; fail with its last answer when the time is over.

    A probe may raise AssertionError or OSError for "not yet".
    """
    deadline = time.monotonic() + seconds
    while True:
        last: object
        try:
            last = answer = probe()
            if answer:
                return answer
        except (AssertionError, OSError) as error:
            last = error
        if time.monotonic() >= deadline:
            raise AssertionError(f"{what}: not within {seconds:g} s; the last answer was: {last}")
        time.sleep(every)


@dataclass(frozen=True)
class Result:
    """How a command ended. Its text is what a failing test shows."""

    command: str
    code: int
    stdout: str
    stderr: str
    seconds: float

    @property
    def output(self) -> str:
        """What a person sees on a terminal, more or less in this order."""
        return self.stdout + self.stderr

    def ok(self) -> Result:
        """Return self; fail if the command did."""
        assert self.code == 0, f"expected success:\n{self}"
        return self

    def refused(self, *words: str) -> Result:
        """Return self; fail unless it ended in an error that contains these words, and no crash."""
        assert self.code != 0, f"expected a refusal, but it succeeded:\n{self}"
        assert "Traceback" not in self.output, f"a person got a traceback:\n{self}"
        for word in words:
            assert word in self.output, f"expected {word!r} in:\n{self}"
        return self

    def __str__(self) -> str:
        lines = [f"$ {self.command}"]
        for name, text in (("", self.stdout), ("stderr: ", self.stderr)):
            found = text.splitlines()
            lines += [f"  {name}{line}" for line in found[:SHOWN_LINES]]
            if len(found) > SHOWN_LINES:
                lines.append(f"  {name}... {len(found) - SHOWN_LINES} more lines")
        return "\n".join([*lines, f"  exit code {self.code} after {self.seconds:.1f} s"])


def run(
    command: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    stdin: str = "",
    seconds: float = SECONDS_FOR_A_COMMAND,
) -> Result:
    """Run a command to its end. One that takes longer than `seconds` is a failure."""
    begin = time.monotonic()
    shown = shlex.join(command)
    try:
        done = subprocess.run(
            list(command),
            input=stdin,
            capture_output=True,
            encoding="utf-8",
            errors="replace",
            env=env,
            cwd=cwd,
            timeout=seconds,
            check=False,
        )
    except subprocess.TimeoutExpired as late:
        out, err = ((part or b"").decode("utf-8", "replace") for part in (late.stdout, late.stderr))
        raise AssertionError(f"hangs:\n{Result(shown, -1, out, err, seconds)}") from late
    return Result(shown, done.returncode, done.stdout, done.stderr, time.monotonic() - begin)


def basic(name: str, secret: str) -> dict[str, str]:
    """Return the header that signs in over HTTPS, with a password or a token."""
    pair = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


# --- hosts ------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Host:
    """A host of the cluster; commands on it run as root."""

    name: str
    container: str

    def run(self, *command: str, stdin: str = "") -> Result:
        """Run a command as root."""
        options = ["--interactive"] if stdin else []
        done = run(["docker", "exec", *options, self.container, *command], stdin=stdin)
        return replace(done, command=f"[{self.name}] {shlex.join(command)}")

    def shell(self, script: str) -> str:
        """Return the output of a shell script that must succeed."""
        return self.run("sh", "-ec", script).ok().stdout

    def systemctl(self, *words: str) -> Result:
        """Run systemctl."""
        return self.run("systemctl", *words)

    def journal_cursor(self) -> str:
        """Return the place where the journal ends now."""
        said = self.shell("journalctl --sync && journalctl --lines=0 --show-cursor")
        return said.rpartition("-- cursor: ")[2].strip()

    def journal_after(self, cursor: str, *options: str) -> list[str]:
        """Return the messages since `cursor`, oldest first."""
        self.run("journalctl", "--sync").ok()
        words = ["journalctl", "--no-pager", "--output=cat", f"--after-cursor={cursor}", *options]
        return self.run(*words).ok().stdout.splitlines()

    def journal_of_service(self, since: str) -> str:
        """Return what the service's units said since a time; never fails, for use in reports."""
        units = ("hgfleet-*", "slapd", "nginx", "haproxy", "ssh")
        words = ["journalctl", "--no-pager", "--output=short-precise", f"--since={since}"]
        words += ["--lines=40", *(f"--unit={unit}" for unit in units)]
        done = self.run(*words)
        return (done.stdout or done.stderr).strip()


# --- logs -------------------------------------------------------------------------------------


@dataclass(frozen=True)
class RequestLog:
    """The web part's log of requests, from a moment on and of one repository."""

    host: Host
    repository: str
    file: str
    inode_and_size: str

    def lines(self) -> list[dict[str, Any]]:
        """Return this repository's requests since the cursor was taken."""
        inode, size = self.inode_and_size.split()
        # Where it was rotated meanwhile, the lines are in two files.
        script = f"""
            [ -e {self.file} ] || exit 0
            if [ "$(stat -c %i {self.file})" = {inode} ]; then
                tail -c +$(({size} + 1)) {self.file}
            else
                find "$(dirname {self.file})" -inum {inode} -exec tail -c +$(({size} + 1)) {{}} +
                cat {self.file}
            fi"""
        found = [json.loads(line) for line in self.host.shell(script).splitlines()]
        return [line for line in found if line.get("repository") == self.repository]

    def wait(self, command: str) -> list[dict[str, Any]]:
        """Return the lines once one is of this wire command: it is written after the answer."""

        def probe() -> list[dict[str, Any]]:
            lines = self.lines()
            return lines if any(line.get("command") == command for line in lines) else []

        return wait_until(f"a request {command} for {self.repository} in {self.file}", probe, 10)


def changesets_sent(lines: Sequence[Mapping[str, Any]]) -> int:
    """Return how many bytes of changesets the web part sent, by these lines of its log.

    A client that got everything from a bundle still sends one getbundle, for phases and bookmarks;
    its line says that no changesets were asked for.
    """
    return sum(
        int(line["bytes"])
        for line in lines
        if line.get("command") in ("stream_out", "changegroup", "changegroupsubset")
        or (line.get("command") == "getbundle" and line.get("changesets"))
    )


def most_clones_at_once(lines: Sequence[str]) -> int:
    """Return how many clones that cost the server had their turn at the same time, by its log."""
    now = most = 0
    for line in lines:
        if "event=admission" in line:
            now += "decision=serve" in line
            now -= "decision=end" in line
            most = max(most, now)
    return most


@dataclass(frozen=True)
class SessionLog:
    """The SSH shell's log of sessions, from a moment on and of one repository and person."""

    host: Host
    repository: str
    person: str
    cursor: str

    def written(self) -> int:
        """Return how many bytes the sessions wrote; waits for the end of at least one."""

        def probe() -> list[int]:
            found = []
            for line in self.host.journal_after(self.cursor, "--identifier=hgfleet-shell"):
                words = dict(word.split("=", 1) for word in line.split() if "=" in word)
                if (words.get("event"), words.get("user"), words.get("repo")) == (
                    "session-end",
                    self.person,
                    self.repository,
                ):
                    found.append(int(words["bytes"]))
            return found

        return sum(wait_until(f"the end of {self.person}'s session in the log", probe, 10))


# --- people -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Person:
    """Somebody with a key: how ssh and hg are run as this person."""

    name: str
    key: Path
    cluster: Cluster

    @property
    def ssh_options(self) -> list[str]:
        """Options that make ssh depend on nothing of the machine it runs on."""
        return [
            *("-F", "none", "-i", str(self.key)),
            *("-o", "IdentitiesOnly=yes", "-o", "IdentityAgent=none", "-o", "BatchMode=yes"),
            *("-o", "StrictHostKeyChecking=yes", "-o", "GlobalKnownHostsFile=/dev/null"),
            *("-o", f"UserKnownHostsFile={self.cluster.env['HGFLEET_KNOWN_HOSTS']}"),
            *("-o", "ConnectTimeout=10"),
        ]

    @property
    def ssh_target(self) -> list[str]:
        """Port and address of the SSH service."""
        env = self.cluster.env
        return ["-p", env["HGFLEET_SSH_PORT"], f"hg@{env['HGFLEET_SSH_HOST']}"]

    def ssh(self, *command: str, options: Sequence[str] = (), stdin: str = "") -> Result:
        """Run a command over SSH as this person."""
        words = ["ssh", *self.ssh_options, *options, *self.ssh_target, *command]
        done = run(words, stdin=stdin, env=self.environment)
        shown = ["ssh", *options, f"{self.name}'s key", *command]
        return replace(done, command=" ".join(shown))

    @property
    def password(self) -> str:
        """The person's password in the directory."""
        return (Path(self.cluster.env["HGFLEET_PASSWORDS"]) / self.name).read_text().strip()

    def signed_in(self, secret: str, folder: Path) -> Person:
        """The same person, whose hgrc in the folder has a name and a secret for HTTPS."""
        env = self.cluster.env
        hgrc = folder / f"{self.name}.hgrc"
        hgrc.touch(0o600)
        hgrc.write_text(
            f"%include {env['HGFLEET_HGRC']}\n[auth]\nhg.prefix = {env['HGFLEET_HTTP_URL']}\n"
            f"hg.username = {self.name}\nhg.password = {secret}\n"
        )
        return replace(self, cluster=Cluster({**env, "HGFLEET_HGRC": str(hgrc)}))

    @property
    def environment(self) -> dict[str, str]:
        """What hg and ssh get to see of ours."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "HGRCPATH": self.cluster.env["HGFLEET_HGRC"],
            "HGPLAIN": "1",
            "HGENCODING": "utf-8",
        }

    @property
    def hg_command(self) -> list[str]:
        """What hg has to be called with to work as this person."""
        return [
            *(str(VENV / "bin/hg"), "--config", f"ui.ssh={shlex.join(['ssh', *self.ssh_options])}"),
            *("--config", f"ui.username={self.name} <{self.name}@hgfleet.test>"),
        ]

    def hg(self, *words: str, cwd: Path | None = None) -> Result:
        """Run hg as this person."""
        done = run([*self.hg_command, *words], env=self.environment, cwd=cwd)
        return replace(done, command=f"{self.name}: {shlex.join(['hg', *words])}")

    def ssh_url(self, repository: str) -> str:
        """Return the address for pushing."""
        env = self.cluster.env
        return f"ssh://hg@{env['HGFLEET_SSH_HOST']}:{env['HGFLEET_SSH_PORT']}/{repository}"

    def clone(self, source: str, place: Path, *options: str) -> Clone:
        """Clone; must succeed."""
        return Clone(place, self, self.hg("clone", *options, source, str(place)).ok())


@dataclass(frozen=True)
class Clone:
    """A repository on this machine that belongs to a person."""

    path: Path
    owner: Person
    made: Result

    def hg(self, *words: str) -> Result:
        """Run hg in it."""
        return self.owner.hg(*words, cwd=self.path)

    def commit(self, name: str, content: bytes, message: str) -> str:
        """Commit one file; return the changeset's full hash."""
        (self.path / name).write_bytes(content)
        self.hg("commit", "--quiet", "--addremove", "-m", message).ok()
        return self.hg("log", "-r", ".", "-T", "{node}").ok().stdout

    def heads(self) -> set[str]:
        """Return all heads."""
        return set(self.hg("log", "-r", "head()", "-T", "{node}\n").ok().stdout.split())

    def size(self) -> int:
        """Return the bytes of its store: what a clone has to carry, compressed, give or take."""
        return sum(f.stat().st_size for f in (self.path / ".hg/store").rglob("*") if f.is_file())


@dataclass(frozen=True)
class Client:
    """A machine in the cluster's network with an hg of its own; who works there is alice."""

    host: Host
    address: str
    program: Sequence[str]

    def hg(self, *words: str) -> Result:
        """Run hg there."""
        ssh = (
            "ssh -F none -i /client/HGFLEET_KEYS/alice -o IdentitiesOnly=yes -o BatchMode=yes"
            " -o StrictHostKeyChecking=yes -o UserKnownHostsFile=/client/HGFLEET_KNOWN_HOSTS"
        )
        settings = {"web.cacerts": "/client/HGFLEET_CA_CERT", "ui.ssh": ssh}
        options = [word for item in settings.items() for word in ("--config", "=".join(item))]
        environment = ["env", "HGPLAIN=1", "HGRCPATH="]
        return self.host.run(*environment, *self.program, *options, *words)

    def told(self, source: str) -> list[str]:
        """Return the URLs that a client there is offered, in their order."""
        said = self.hg("debug::clonebundle-manifest", "--raw", source).ok().stdout
        return [word for line in said.splitlines() for word in line.split()[:1]]

    def clone(self, source: str, *options: str) -> Result:
        """Clone, check the clone, throw it away; return what hg said of the clone."""
        place = self.host.shell("mktemp -d").strip()
        done = self.hg("clone", "--noupdate", *options, source, f"{place}/clone").ok()
        self.hg("-R", f"{place}/clone", "verify", "--quiet").ok()
        self.host.run("rm", "-r", place).ok()
        return done


# --- the directory ----------------------------------------------------------------------------


def fingerprint(key: Path) -> str:
    """Return SHA256:... of a key file."""
    return run(["ssh-keygen", "-l", "-f", str(key)]).ok().stdout.split()[1]


@dataclass(frozen=True)
class Directory:
    """The directory as its administrator uses it: root on its host, through the socket."""

    host: Host
    dn: str

    def keys(self) -> dict[str, str]:
        """Return the person's keys by fingerprint."""
        words = ["ldapsearch", "-Q", "-LLL", "-o", "ldif-wrap=no", "-Y", "EXTERNAL"]
        words += ["-H", "ldapi:///", "-b", self.dn, "-s", "base", "sshPublicKey"]
        found = self.host.run(*words).ok().stdout.splitlines()
        values = [line.removeprefix("sshPublicKey: ") for line in found if "sshPublicKey:" in line]
        result = {}
        for value in values:
            done = run(["ssh-keygen", "-l", "-f", "-"], stdin=value + "\n").ok()
            result[done.stdout.split()[1]] = value
        return result

    def change(self, action: str, identity: str, key: str) -> None:
        """Add or delete one key, as an administrator's tool would: both attributes at once."""
        ldif = f"dn: {self.dn}\nchangetype: modify\n"
        ldif += f"{action}: sshPublicKey\nsshPublicKey: {key}\n-\n"
        ldif += f"{action}: sshPublicKeyId\nsshPublicKeyId: {identity}\n"
        words = ["ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///"]
        self.host.run(*words, stdin=ldif).ok()


# --- the cluster ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Page:
    """An answer of the web part; the names of headers are in lower case."""

    status: int
    body: str
    headers: Mapping[str, str] = field(default_factory=dict)


def _lower(headers: Message) -> dict[str, str]:
    return {name.lower(): value for name, value in headers.items()}


@dataclass(frozen=True)
class Cluster:
    """The running cluster, by what `./cluster env` says of it."""

    env: Mapping[str, str]

    def person(self, name: str, key: str | None = None) -> Person:
        """Return somebody with a key of the cluster; `key` if it is not named like the person."""
        return Person(name, Path(self.env["HGFLEET_KEYS"]) / (key or name), self)

    @cached_property
    def inventory(self) -> Mapping[str, Any]:
        """What Ansible makes of the inventory."""
        return dict(json.loads(self.ansible("ansible-inventory", "--list").ok().stdout))

    def host(self, name: str) -> Host:
        """Return a host by its name in the inventory."""
        return Host(name, f"{self.env['HGFLEET_CLUSTER_NAME']}-{name}")

    @property
    def hosts(self) -> list[Host]:
        """All hosts."""
        return [self.host(name) for name in self.inventory["_meta"]["hostvars"]]

    def all(self, group: str) -> list[Host]:
        """Return the hosts of a group."""
        return [self.host(name) for name in self.inventory[group]["hosts"]]

    def first(self, group: str) -> Host:
        """Return the first host of a group."""
        return self.host(self.inventory[group]["hosts"][0])

    def address(self, host: Host) -> str:
        """Return the address of a host in the cluster's network."""
        network = self.env["HGFLEET_CLUSTER_NAME"]
        template = f'{{{{(index .NetworkSettings.Networks "{network}").IPAddress}}}}'
        asked = run(["docker", "inspect", "--format", template, host.container])
        return asked.ok().stdout.strip()

    def directory(self, person: str) -> Directory:
        """Return the entry of a person, as the directory's administrator has it."""
        dn = f"uid={person},ou=people,{self.env['HGFLEET_LDAP_BASE']}"
        return Directory(self.first("directory"), dn)

    def ansible(self, program: str, *words: str) -> Result:
        """Run a program of Ansible on the cluster's inventory, as `./cluster up` does."""
        env = {**bootstrap.controller_environment(), **self.env, "ANSIBLE_FORCE_COLOR": "0"}
        return run([program, *words], env=env, cwd=ROOT, seconds=300)

    def url(self, path: str) -> str:
        """Return an address of the web part, through the proxy."""
        return f"{self.env['HGFLEET_HTTP_URL']}/{path}"

    @cached_property
    def _opener(self) -> urllib.request.OpenerDirector:
        trust = ssl.create_default_context(cafile=self.env["HGFLEET_CA_CERT"])
        # No proxy of this machine stands between it and its own containers.
        return urllib.request.build_opener(
            urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=trust)
        )

    def get(
        self,
        url: str,
        data: bytes | None = None,
        method: str | None = None,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        """Ask for a URL, or a path of the web part; any status is an answer."""
        whole = url if url.startswith("https://") else self.url(url)
        request = urllib.request.Request(  # noqa: S310  (https only)
            whole, data, dict(headers or {}), method=method
        )
        try:
            with self._opener.open(request, timeout=30) as answer:
                body = answer.read().decode("utf-8", "replace")
                return Page(answer.status, body, _lower(answer.headers))
        except urllib.error.HTTPError as error:
            with error:
                body = error.read().decode("utf-8", "replace")
                return Page(error.code, body, _lower(error.headers))
        except OSError as error:
            raise AssertionError(f"{whole} does not answer: {error}") from None

    def requests(self, repository: str) -> RequestLog:
        """Begin to read the web part's log of one repository here."""
        host = self.first("web")
        unit = host.shell("systemctl show --property=Environment --value hgfleet-web.service")
        found = re.search(r"\bHGFLEET_WEB_ACCESS_LOG=(\S+)", unit)
        assert found, f"hgfleet-web.service names no HGFLEET_WEB_ACCESS_LOG: {unit}"
        # A host that never had a request has no log yet, and making it is not our business.
        place = host.shell(f"stat -c '%i %s' {found[1]} 2>/dev/null || echo 0 0")
        return RequestLog(host, repository, found[1], place)

    def sessions(self, repository: str, person: str) -> SessionLog:
        """Begin to read the SSH shell's log of one repository and person here."""
        host = self.first("ssh")
        return SessionLog(host, repository, person, host.journal_cursor())

    def manifest(self, repository: str) -> list[str]:
        """Return the URLs that a client is offered for a repository over HTTPS."""
        page = self.get(f"{repository}?cmd=clonebundles")
        assert page.status == 200, page
        return [line.split()[0] for line in page.body.splitlines() if line]

    def manifests(self) -> Mapping[str, str]:
        """Return all manifests on the host that writes them: path to content."""
        script = "cd /var/lib/hgfleet/manifests; find . -name '*.manifest' -exec sha256sum {} +"
        lines = self.first("bundles").shell(script).splitlines()
        return {name: digest for digest, _, name in (line.partition("  ") for line in lines)}

    def make_bundles(self) -> Result:
        """Run the bundle job as its timer would, to its end.

        Runs that pushes have started end first: what they are at work on is theirs.
        """
        host = self.first("bundles")
        self.wait_for_pushed()
        return host.systemctl("start", "hgfleet-bundles.service")

    def wait_for_pushed(self) -> None:
        """Wait until all that was pushed has been looked at by the bundle jobs."""
        script = "ls -A /var/lib/hgfleet/pushed; systemctl is-active hgfleet-bundles-pushed || :"
        host = self.first("bundles")
        wait_until("nothing pushed is left", lambda: host.shell(script).split() == ["inactive"], 60)

    def remote_heads(self, repository: str) -> set[str]:
        """Return the heads that the web part shows."""
        page = self.get(f"{repository}?cmd=heads")
        assert page.status == 200, f"{repository}: {page}"
        return set(page.body.split())
