"""A host below a folder: its hgrc, its registry, its repositories, and hg on both ends."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import identity
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.registry import Registry
from testing.support import prefork

if TYPE_CHECKING:
    from collections.abc import Mapping

    from hgfleet.registry.model.registry import Repository

TOP: Final = Path(__file__).resolve().parents[3]
HGEXT: Final = TOP / "hgext"
PARTS: Final = tuple(
    ".".join(path.relative_to(TOP).with_suffix("").parts)
    for package in ("core", "hg", "policies", "registry", "admission")
    for path in sorted((TOP / "hgfleet" / package).rglob("[a-z]*.py"))
)
HG: Final = Path(sys.executable).with_name("hg")
"""The real hg: for servers that get signals, and for settings that name a program."""


def identity_of(path: str) -> str:
    """Return the identity of the first repository that a test makes at a path."""
    return hashlib.sha256(path.encode()).hexdigest()[: identity.LENGTH]


def environment(hgrc: Path) -> dict[str, str]:
    """Return the environment of an hg of this checkout, with a file of configuration."""
    return {
        "PATH": os.environ["PATH"],
        "HGRCPATH": str(hgrc),
        "HGPLAIN": "1",
        "LC_ALL": "C.UTF-8",
        "PYTHONPATH": str(TOP),
    }


def server(environment: Mapping[str, str]) -> prefork.Server:
    """Return the server whose forks are the hg of tests, until this process ends.

    It has imported the modules of extensions, which takes longer than a short command. The hg of
    `.t` files imports them in each command, as the real hg does.
    """
    return prefork.shared(environment, PARTS)


def program() -> Path:
    """Return an hg that starts fast (testing/support/prefork.py), until this process ends."""
    return server(environment(Path(os.devnull))).program


def text(done: subprocess.CompletedProcess[bytes]) -> subprocess.CompletedProcess[str]:
    """Return how a command ended, with its output as text."""
    out, err = done.stdout.decode(), done.stderr.decode()
    return subprocess.CompletedProcess(done.args, done.returncode, out, err)


class Site:
    """A host: repositories below `repos`, and the configuration that every hg of it reads."""

    def __init__(self, root: Path, hgrc: str = "") -> None:
        self.root, self.repos = root, root / "repos"
        self.registry, self.dynamic = root / "registry.json", root / "dynamic/registry.json"
        self.entered: dict[str, Repository] = {}
        self.hgrc = root / "hgrc"
        if hgrc:
            self.hgrc.write_text(hgrc)

    def path(self, repository: str) -> Path:
        """Where a repository lies."""
        return self.repos / repository

    def enter(self, *repositories: Repository) -> None:
        """Have the inventory declare these repositories, besides those that it declares already."""
        self.entered |= {repository.path: repository for repository in repositories}
        self.register(Registry(dict(self.entered)))
        self.dynamic.parent.mkdir(exist_ok=True)
        with dynamic_update.update(self.dynamic) as entries:
            for repository in repositories:
                entries.note_identity(repository.path, repository.identity)

    def leave(self, path: str) -> None:
        """Have the inventory no longer declare a repository."""
        del self.entered[path]
        self.enter()

    def identify(self, repository: str, known_as: str = "") -> str:
        """Give a repository an identity in its store; return it."""
        given = known_as or identity_of(repository)
        (self.path(repository) / identity.FILE).write_text(identity.text(given))
        return given

    def register(self, registry: Registry) -> None:
        """Replace the compiled registry."""
        new = self.registry.with_suffix(".new")
        new.write_text(dump_compiled(registry))
        new.rename(self.registry)

    # -- hg on this host -------------------------------------------------------------------------

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of this host's hg."""
        return environment(self.hgrc) | more

    def start(self, *arguments: str | Path, **more: str) -> subprocess.CompletedProcess[str]:
        """Run hg, with `more` in its environment; return how it ended."""
        environment = self.environment(**more)
        return text(server(environment).hg(arguments, environment, self.root))

    def hg(self, *arguments: str | Path, code: int = 0, **more: str) -> str:
        """Run hg to this exit code; return its output."""
        done = self.start(*arguments, **more)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout

    def hg_in(self, repository: str, command: str, *arguments: str | Path, code: int = 0) -> str:
        """Run a command of hg in a repository; return its output."""
        path = self.path(repository)
        return self.hg(command, "--repository", path, "--cwd", path, *arguments, code=code)

    def create(self, repository: str) -> Path:
        """Make an empty repository."""
        path = self.path(repository)
        path.parent.mkdir(parents=True, exist_ok=True)
        self.hg("init", path)
        return path

    def commit(self, repository: str, name: str, content: str, *options: str) -> str:
        """Commit a file with this content; return the new node."""
        (self.path(repository) / name).write_text(content)
        message = ("--addremove", "--message", f"add {name}")
        said = self.hg_in(repository, "commit", "--debug", *message, *options)
        return said.rpartition(":")[2].strip()

    # -- its clients -----------------------------------------------------------------------------

    def ssh(self, hgrc: Path | None = None) -> tuple[str, ...]:
        """Return how a client reaches this host over SSH: options of its hg."""
        run = f"""ui.ssh=sh -c 'export HGRCPATH={hgrc or self.hgrc}; eval "$2"' ssh"""
        return ("--config", run, "--config", f"ui.remotecmd={program()}")

    def url(self, repository: str) -> str:
        """Where a client finds a repository over SSH."""
        return f"ssh://localhost/{self.path(repository)}"

    def answer(self, repository: str, command: bytes, address: str = "192.0.2.1") -> bytes:
        """Send a command without arguments over the wire protocol, from this address."""
        environment = self.environment(SSH_CONNECTION=f"{address} 5000 10.0.0.1 22")
        request = command + b"\n" + (b"* 0\n" if command != b"clonebundles" else b"")
        words = ["-R", self.path(repository), "serve", "--stdio"]
        done = server(environment).hg(words, environment, self.root, request)
        assert done.returncode == 0, done
        length, _, answer = done.stdout.partition(b"\n")
        assert len(answer) == int(length), done
        return answer
