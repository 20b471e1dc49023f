"""People with keys and passwords, their clones, their machines, their entries in the directory.

A person reaches the service with the addresses, keys and certificates that `./cluster env` prints,
the real hg and the real ssh.
"""

from __future__ import annotations

import base64
import os
import re
import shlex
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.bootstrap import VENV
from testing.e2e.command import Result, run

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.e2e.host import Host
    from testing.e2e.service import Service

DENIED: Final = "Permission denied (publickey)"
"""The answer of ssh when the server accepted no key, for any reason."""

CHANGE: Final = re.compile(r"repo (?!info|list)|token (?!list)")
"""The commands over SSH that change user repositories or tokens."""
ON_MIRRORS: Final = re.compile(r"\b(\d+)/\1 mirrors in ")
"""Output of a command whose change has reached all mirrors."""


def basic(name: str, secret: str) -> dict[str, str]:
    """Return the header that signs in over HTTPS, with a password or a token."""
    pair = base64.b64encode(f"{name}:{secret}".encode()).decode()
    return {"Authorization": f"Basic {pair}"}


@dataclass(frozen=True)
class Person:
    """A person with a key, as whom ssh and hg can be run."""

    name: str
    key: Path
    cluster: Service

    @property
    def ssh_options(self) -> list[str]:
        """Options that make ssh independent of the machine's own settings."""
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
        changed = done.code == 0 and CHANGE.match(" ".join(command))
        if changed and not ON_MIRRORS.search(done.output):
            self.cluster.wait_for_mirrors()
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
        return replace(self, cluster=replace(self.cluster, env={**env, "HGFLEET_HGRC": str(hgrc)}))

    @property
    def environment(self) -> dict[str, str]:
        """The environment of hg and ssh, without this machine's variables."""
        return {
            "PATH": os.environ["PATH"],
            "HOME": os.environ.get("HOME", "/"),
            "HGRCPATH": self.cluster.env["HGFLEET_HGRC"],
            "HGPLAIN": "1",
            "HGENCODING": "utf-8",
        }

    @property
    def hg_command(self) -> list[str]:
        """The command and options of hg as this person."""
        return [str(VENV / "bin/hg"), *self.hg_options]

    @property
    def hg_options(self) -> list[str]:
        """The options that make hg run ssh as this person, and commit in this person's name."""
        return [
            *("--config", f"ui.ssh={shlex.join(['ssh', *self.ssh_options])}"),
            *("--config", f"ui.username={self.name} <{self.name}@hgfleet.test>"),
        ]

    def hg(self, *words: str, cwd: Path | None = None) -> Result:
        """Run hg as this person."""
        command = [str(self.cluster.hg), *self.hg_options, *words]
        done = run(command, env=self.environment, cwd=cwd)
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
        """Commit a file; return the changeset's full hash."""
        (self.path / name).write_bytes(content)
        self.hg("commit", "--quiet", "--addremove", "-m", message).ok()
        return self.hg("log", "-r", ".", "-T", "{node}").ok().stdout

    def heads(self) -> set[str]:
        """Return all heads."""
        return set(self.hg("log", "-r", "head()", "-T", "{node}\n").ok().stdout.split())

    def size(self) -> int:
        """Return the size of its store in bytes, about the size of an uncompressed clone."""
        return sum(f.stat().st_size for f in (self.path / ".hg/store").rglob("*") if f.is_file())


@dataclass(frozen=True)
class Client:
    """A machine in the cluster's network with an hg of its own; alice works there."""

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
        """Clone, check the clone, remove it; return the result of `hg clone`."""
        place = self.host.shell("mktemp -d").strip()
        done = self.hg("clone", "--noupdate", *options, source, f"{place}/clone").ok()
        self.hg("-R", f"{place}/clone", "verify", "--quiet").ok()
        self.host.run("rm", "-r", place).ok()
        return done


def fingerprint(key: Path) -> str:
    """Return SHA256:... of a key file."""
    return run(["ssh-keygen", "-l", "-f", str(key)]).ok().stdout.split()[1]


@dataclass(frozen=True)
class Directory:
    """The directory, used by its administrator: root on its host, through the socket."""

    host: Host
    dn: str

    def keys(self) -> dict[str, str]:
        """Return the person's keys by fingerprint."""
        words = ["ldapsearch", "-Q", "-LLL", "-o", "ldif-wrap=no", "-Y", "EXTERNAL"]
        words += ["-H", "ldapi:///", "-b", self.dn, "-s", "base", "sshPublicKey"]
        entry = self.host.run(*words).ok().stdout.splitlines()
        values = [line.removeprefix("sshPublicKey: ") for line in entry if "sshPublicKey:" in line]
        result = {}
        for value in values:
            done = run(["ssh-keygen", "-l", "-f", "-"], stdin=value + "\n").ok()
            result[done.stdout.split()[1]] = value
        return result

    def change(self, action: str, identity: str, key: str) -> None:
        """Add or delete a key, as an administrator's tool would: both attributes at once."""
        ldif = f"dn: {self.dn}\nchangetype: modify\n"
        ldif += f"{action}: sshPublicKey\nsshPublicKey: {key}\n-\n"
        ldif += f"{action}: sshPublicKeyId\nsshPublicKeyId: {identity}\n"
        words = ["ldapmodify", "-Q", "-Y", "EXTERNAL", "-H", "ldapi:///"]
        self.host.run(*words, stdin=ldif).ok()
