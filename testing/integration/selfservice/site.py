"""A host where people create repositories, with sessions as sshd starts them."""

from __future__ import annotations

import atexit
import functools
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.registry.dynamic import user_repositories
from hgfleet.registry.model.registry import Namespace, Registry, Settings, build
from testing.integration.support import site
from testing.support import prefork

if TYPE_CHECKING:
    from hgfleet.registry.dynamic.entry import Entry

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

SESSION: Final = {"PYTHONPATH": str(site.TOP), "PATH": "/usr/bin:/bin", "HGENCODING": "utf-8"}
"""The environment that sessions begin with; the encoding is what they set before they use core."""

PARTS_OF_SESSIONS: Final = ("hgfleet.ssh.session.shell", "hgfleet.selfservice.commands")

SLOW_HG = """\
#!/bin/sh
# `hg clone ... -- SOURCE NEW` that takes as long as the test wants.
for new; do :; done
mkdir -p "$new/.hg/store" && echo $$ > "$new/.hg/store/pid" && exec cat {fifo}
"""

BOB: Final = {"HGFLEET_USER": "bob", "HGFLEET_GROUPS": "sandbox"}
CAROL: Final = {"HGFLEET_USER": "carol", "HGFLEET_GROUPS": "sandbox"}


class SelfserviceSite(site.Site):
    """A host: the registry, repositories, and sessions."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, HGRC)
        self.person_ids: dict[str, str] = {}
        """Ids of people in the directory of this host."""
        self.repos.mkdir()
        self.dynamic.parent.mkdir()
        self.declare()

    def environment(self, **more: str) -> dict[str, str]:
        """Return the environment of a session's hg; the operator's unless `more` says whose."""
        operator = {"HGFLEET_USER": "operator:test", "HGFLEET_GROUPS": ""}
        return super().environment(**operator | more)

    def declare(self, **more: tuple[str, Settings]) -> Registry:
        """Have these repositories in the inventory, and the two that are always there."""
        declared = {
            "hgfleet": ("The service", Settings()),
            "staff/plans": ("Plans", Settings(read=("staff", "sandbox"))),
            **{path.replace("__", "/"): entry for path, entry in more.items()},
        }
        static = build(declared, NAMESPACES, Settings(push=("maintainers",)))
        self.register(static)
        return static

    def code(self, first: str = "") -> str:
        """Return the code of a session, after the code `first`."""
        # The system log of the machine that runs the tests is not ours to fill.
        return (
            "import sys; from hgfleet.selfservice import repositories; "
            f"repositories.program = lambda: {str(prefork.shared(SESSION).program)!r}; {first}"
            "from hgfleet.ssh.session import shell; "
            f"log = open('{self.root}/log', 'a', buffering=1); "
            "shell.logfmt.to_syslog = lambda _: lambda t: print(t, file=log); "
            "sys.exit(shell.main())"
        )

    def arguments(self, person: str, group: str = "sandbox") -> list[str]:
        """Return the command line of a session."""
        return [
            *("--user", person, "--groups", group),
            *(("--person-id", self.person_ids[person]) if person in self.person_ids else ()),
            *("--registry", str(self.registry), "--dynamic", str(self.dynamic)),
            *("--root", str(self.repos), "--hgrc", str(self.hgrc)),
        ]

    def session(self, person: str, command: str, first: str = "") -> subprocess.Popen[str]:
        """Begin a session of a person, in which the code `first` runs first."""
        return subprocess.Popen(
            [sys.executable, "-c", self.code(first), *self.arguments(person)],
            env={**SESSION, "SSH_ORIGINAL_COMMAND": command},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def ssh_command(
        self, person: str, command: str, first: str = ""
    ) -> subprocess.CompletedProcess[str]:
        """Run a session to its end, in which the code `first` runs first."""
        environment = {**SESSION, "SSH_ORIGINAL_COMMAND": command}
        server = prefork.shared(environment, PARTS_OF_SESSIONS)
        return site.text(server.python(self.code(first), self.arguments(person), environment))

    def ok(self, person: str, command: str) -> str:
        """Run a session that succeeds; return its output."""
        done = self.ssh_command(person, command)
        assert done.returncode == 0, (done.stderr, (self.root / "log").read_text())
        return done.stdout

    def source(self, path: str, commits: int = 3) -> Path:
        """Make a repository with so many changesets."""
        shutil.copytree(history(commits), self.path(path))
        return self.path(path)

    def add(self, path: str, name: str, *options: str) -> None:
        """Commit a file under its own name."""
        self.commit(path, name, name, *options)

    @property
    def entries(self) -> dict[str, Entry]:
        """The repositories that people created."""
        return dict(user_repositories.load(self.dynamic).repositories)

    def remains(self) -> list[str]:
        """Hidden files and folders below the root that belong to no repository."""
        return [str(p.relative_to(self.repos)) for p in self.repos.rglob(".*") if p.name != ".hg"]


@functools.cache
def history(commits: int) -> Path:
    """Return a repository with so many changesets, to be copied."""
    folder = tempfile.TemporaryDirectory(prefix="history-")
    atexit.register(folder.cleanup)
    made = SelfserviceSite(Path(folder.name))
    made.create("template")
    for number in range(commits):
        made.add("template", f"file{number}")
    return made.path("template")


def slow_hg(site: SelfserviceSite) -> str:
    """Return code for a session whose copies take as long as a writer of `fifo` wants."""
    fifo, slow = site.root / "fifo", site.root / "slow-hg"
    if not fifo.exists():
        os.mkfifo(fifo)
        slow.write_text(SLOW_HG.format(fifo=shlex.quote(str(fifo))))
        slow.chmod(0o755)
    return (
        "from hgfleet.selfservice import creation, repositories; creation.PROGRESS_S = 0.05; "
        f"repositories.program = lambda: '{slow}'; "
    )
