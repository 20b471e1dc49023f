"""A host with a repository in the format of Mercurial before 2016."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from typing import TYPE_CHECKING

from hgfleet.registry.model.registry import Settings, build
from hgfleet.storage import work_folder
from testing.integration.support import site
from testing.support import prefork

if TYPE_CHECKING:
    from pathlib import Path

STEADY = f"pinned_store = {site.HGEXT}/pinned_store.py\n"
HGRC = f"""\
[ui]
username = test
[experimental]
evolution = all
[phases]
publish = no
[extensions]
{STEADY}"""

EVERYTHING = "{node} {p1node} {p2node} {phase} {branch} {bookmarks} {obsolete} {files}\\n"

IDENTITY = "a" * 32

PARTS = ("hgfleet.cli", "hgfleet.storage.cli", "hgfleet.storage.worker")

RUN = "import runpy; runpy.run_module('hgfleet', run_name='__main__', alter_sys=True)"

ENVIRONMENT_OF_WORKERS = {"PATH": os.environ["PATH"], "HGENCODING": "utf-8"}

PUSH = """\
from mercurial import context, extensions, ui as u
from mercurial.repo import factory
ui = u.ui.load(); extensions.loadall(ui)
repo = factory.repository(ui, {path!r})
with repo.wlock(), repo.lock(), repo.transaction(b'push'):
    content = lambda r, c, p: context.memfilectx(r, c, p, b'pushed on %d\\n' % len(repo))
    parents = [repo.changelog.tip(), repo.nullid]
    context.memctx(repo, parents, b'pushed', [b'pushed'], content, user=b'pusher').commit()
"""


class StorageSite(site.Site):
    """A host with a repository in the format of long ago."""

    def __init__(self, path: Path, template: Path) -> None:
        super().__init__(path, HGRC)
        self.repository = self.path("team/old")
        self.store = self.repository / ".hg/store"
        shutil.copytree(template, self.repository, symlinks=True)
        registry = build({"team/old": ("", Settings())}, {}, Settings(push=("all",)))
        self.register(registry)

    def old(self, command: str, *arguments: str | Path, where: Path | None = None) -> str:
        """Run a command of hg in this repository or another."""
        place = where or self.repository
        return self.hg(command, "--repository", place, "--cwd", self.repos, *arguments)

    def argv(self, *words: str) -> list[str]:
        paths = ["--registry", str(self.registry), "--dynamic", str(self.dynamic)]
        paths += ["--root", str(self.repos), "--hgrc", str(self.hgrc), "--user", "root"]
        return [sys.executable, "-m", "hgfleet", "storage", *words, *paths]

    def storage(self, *words: str, code: int = 0) -> str:
        """Run `hgfleet storage` as a fork of a process that has its imports."""
        environment = self.environment()
        server = prefork.shared(environment, PARTS)
        # So are the processes that it starts, which have an environment of their own.
        workers = prefork.shared(ENVIRONMENT_OF_WORKERS, PARTS).interpreter
        run = f"import sys; sys.executable = {str(workers)!r}; {RUN}"
        done = site.text(server.python(run, self.argv(*words)[3:], environment))
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def identify(self, identity: str) -> None:
        """Write the identity of the repository into the registry."""
        self.dynamic.parent.mkdir(exist_ok=True)
        content = {"format": 1, "repositories": {}, "identities": {"team/old": identity}}
        self.dynamic.write_text(json.dumps(content))

    def upgrade(self, code: int = 0) -> str:
        return self.storage("upgrade", "--no-measure", "--format", "text", code=code)

    def worker(self, hook: str, *, measure: str = "no", keep: str = "") -> tuple[int, str]:
        """Run the process that upgrades the repository after `hook`; return code and output.

        The hook has `rebuild`, `revlogs`, `work_folder` and `store_exchange` of hgfleet.storage,
        `push()`, which adds a changeset by a session of its own, and `kill()`.
        """
        head = (
            "import os, subprocess, sys\n"
            "from hgfleet.storage import rebuild, revlogs, store_exchange, work_folder, worker\n"
            f"def push(argv={self.argv_of_push()!r}):\n"
            "    subprocess.run(argv, check=True, capture_output=True)\n"
            "def kill():\n    os.kill(os.getpid(), 9)\n"
        )
        arguments = ["upgrade", str(self.repository), "", measure, keep]
        code, environment = (
            f"{head}{hook}\nsys.exit(worker.main({arguments!r}))\n",
            self.environment(),
        )
        done = site.text(prefork.shared(environment, PARTS).python(code, [], environment))
        return done.returncode, done.stdout + done.stderr

    def argv_of_push(self) -> list[str]:
        """Return the command of a session that adds a changeset to a file, on the tip."""
        program = prefork.shared(self.environment(), PARTS).interpreter
        return [str(program), "-c", PUSH.format(path=os.fsencode(self.repository))]

    def script(self, text: str, *, hgrc: Path | None = None) -> subprocess.Popen[str]:
        """Run Python with `repo`, the repository as a session has it, and `wait`."""
        head = (
            "import sys\n"
            "from mercurial import context, extensions, ui as u\n"
            "from mercurial.repo import factory\n"
            "ui = u.ui.load(); extensions.loadall(ui)\n"
            f"repo = factory.repository(ui, {os.fsencode(self.repository)!r})\n"
            "def wait():\n    print('ready', flush=True); sys.stdin.readline()\n"
        )
        return subprocess.Popen(
            [sys.executable, "-c", head + text],
            env=self.environment() | ({"HGRCPATH": str(hgrc)} if hgrc else {}),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def all(self) -> str:
        """Everything that the repository says of itself, hidden changesets included."""
        return "\n".join(
            [
                self.old("log", "--hidden", "-r", "all()", "-T", EVERYTHING),
                self.old("log", "-r", "all()", "-T", "{rev} {node}\n"),
                self.old("bookmarks", "-T", "{bookmark} {node}\n"),
                self.old("debugobsolete"),
                self.old("debugdata", "-m", "7"),
            ]
        )

    def assert_modern(self) -> None:
        assert "revlog-compression-zstd" in (self.store / "requires").read_text()
        assert not (self.repository / ".hg" / work_folder.WORK).exists()
        self.old("verify", "--quiet")


def digest(folder: Path) -> str:
    """A hash of all files and links below a folder, without caches."""
    checksum = hashlib.sha256()
    for path in sorted(folder.rglob("*")):
        name = str(path.relative_to(folder))
        if "cache" in name or path.is_dir():
            continue
        content = os.fsencode(path.readlink()) if path.is_symlink() else path.read_bytes()
        checksum.update(name.encode() + b"\0" + content + b"\0")
    return checksum.hexdigest()
