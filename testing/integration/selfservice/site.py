"""A host where people create repositories, with sessions as sshd starts them."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Final

from hgfleet.registry import user_repositories
from hgfleet.registry.model import Namespace, Registry, Settings, build
from testing.integration.support import site

if TYPE_CHECKING:
    from pathlib import Path

NAMESPACES: Final = {
    "people": Namespace(
        "people",
        "",
        Settings(push=(), bundles=()),
        create=("sandbox", "maintainers"),
        personal=True,
        quota=3,
    ),
    "open": Namespace("open", "", create=("sandbox", "maintainers"), quota=3),
}

HGRC: Final = f"""\
[ui]
username = test
[extensions]
access = {site.HGEXT}/access.py
policies = {site.HGEXT}/policies.py
[experimental]
evolution = all
"""

BOB: Final = {"HGFLEET_USER": "bob", "HGFLEET_GROUPS": "sandbox"}
CAROL: Final = {"HGFLEET_USER": "carol", "HGFLEET_GROUPS": "sandbox"}


class SelfserviceSite(site.Site):
    """A host: the registry, repositories, and sessions."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, HGRC)
        self.repos.mkdir()
        self.dynamic.parent.mkdir()
        self.declare()

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a session's hg; the operator's unless `more` says whose."""
        operator = {"HGFLEET_USER": "operator:test", "HGFLEET_GROUPS": ""}
        return super().environment(**operator | more)

    def declare(self, **more: tuple[str, Settings]) -> Registry:
        """Have these repositories in the inventory, beside two that are always there."""
        declared = {
            "hgfleet": ("The service", Settings()),
            "staff/plans": ("Plans", Settings(read=("staff", "sandbox"))),
            **{path.replace("__", "/"): entry for path, entry in more.items()},
        }
        static = build(declared, NAMESPACES, Settings(push=("maintainers",)))
        self.register(static)
        return static

    def argv(self, person: str, group: str = "sandbox", first: str = "") -> list[str]:
        """Return the command line of a session, in which the Python code `first` runs first."""
        # The system log of the machine that runs the tests is not ours to fill.
        start = (
            f"{first}import sys; from hgfleet.ssh import shell; "
            f"log = open('{self.root}/log', 'a', buffering=1); "
            "shell.logfmt.to_syslog = lambda _: lambda t: print(t, file=log); "
            "sys.exit(shell.main())"
        )
        return [
            *(sys.executable, "-c", start, "--user", person, "--groups", group),
            *("--registry", str(self.registry), "--dynamic", str(self.dynamic)),
            *("--root", str(self.repos), "--hgrc", str(self.hgrc)),
        ]

    def session(self, person: str, command: str, first: str = "") -> subprocess.Popen[str]:
        """Begin a session of a person."""
        path = "/usr/bin:/bin"
        return subprocess.Popen(
            self.argv(person, first=first),
            env={"PYTHONPATH": str(site.TOP), "SSH_ORIGINAL_COMMAND": command, "PATH": path},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ssh_command(
        self, person: str, command: str, first: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a session to its end."""
        session = self.session(person, command, first)
        out, err = session.communicate()
        return subprocess.CompletedProcess(command, session.returncode, out, err)

    def ok(self, person: str, command: str) -> str:
        """Run a session that succeeds; return its output."""
        done = self.ssh_command(person, command)
        assert done.returncode == 0, (done.stderr, (self.root / "log").read_text())
        return done.stdout

    def source(self, path: str, commits: int = 3) -> Path:
        """Make a repository with so many changesets."""
        place = self.create(path)
        for number in range(commits):
            self.add(path, f"file{number}")
        return place

    def add(self, path: str, name: str, *options: str) -> None:
        """Commit a file under its own name."""
        self.commit(path, name, name, *options)

    @property
    def entries(self) -> dict[str, user_repositories.Entry]:
        """The repositories that people created."""
        return dict(user_repositories.load(self.dynamic).repositories)

    def remains(self) -> list[str]:
        """Hidden files and folders below the root that belong to no repository."""
        return [str(p.relative_to(self.repos)) for p in self.repos.rglob(".*") if p.name != ".hg"]
