"""A host with a registered repository, whose pushes are logged, and a person who pushes to it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from hgfleet.pushlog import chain, log_file
from hgfleet.pushlog.record import Heads
from testing.integration.support import site

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.pushlog.record import Record

EXTENSIONS = ("access", "policies", "hardening", "session_limits", "pinned_store", "pushlog")
HGRC = "".join(
    [
        "[ui]\nusername = test\n[devel]\nall-warnings = yes\n[server]\nbundle1 = no\n",
        "[push]\npushvars.server = yes\n[hgfleet]\npushlog = yes\n[extensions]\n",
        *(f"{name} = {site.HGEXT}/{name}.py\n{name}:required = yes\n" for name in EXTENSIONS),
    ]
)
CLIENT = """\
[ui]
username = test
[extensions]
strip =
rebase =
[experimental]
evolution = all
"""
KEY = "SHA256:" + "k" * 43
ALICE = {
    "HGFLEET_USER": "alice",
    "HGFLEET_GROUPS": "staff",
    "HGFLEET_KEY": KEY,
    "SSH_CONNECTION": "192.0.2.7 5000 192.0.2.1 22",
}
OPERATOR = {"HGFLEET_USER": "operator:root"}


class PushlogSite(site.Site):
    """The repository is `server`; alice's clone is `work`."""

    def __init__(self, root: Path) -> None:
        super().__init__(root, HGRC)
        self.client_rc = root / "client.rc"
        self.client_rc.write_text(CLIENT)
        self.repos.mkdir()
        self.hg("init", self.path("server"), **OPERATOR)
        self.configure("server")
        self.work = root / "work"
        self.client("init", self.work)

    def configure(self, repository: str, *lines: str, publishing: bool = True) -> None:
        """Write the generated hgrc of a repository, with these lines added."""
        evolution = "" if publishing else "[experimental]\nevolution = all\n"
        (self.path(repository) / ".hg/hgrc").write_text(
            f"[phases]\npublish = {publishing}\n{evolution}"
            f"[hgfleet]\npath = {repository}\nread = public\npush = staff\n"
            + "".join(f"{line}\n" for line in lines)
        )

    def log(self, repository: str = "server") -> Path:
        """Where the log of a repository lies."""
        return self.path(repository) / ".hg/store" / log_file.NAME

    def records(self, repository: str = "server") -> list[Record]:
        """Return the records, whose chain is valid, and whose last digest is of the heads."""
        records = [entry.record for entry in chain.checked(log_file.entries(self.log(repository)))]
        words = ("log", "-r", "heads(all())", "-T", "{node}\n", "--hidden")
        heads = self.hg("-R", self.path(repository), *words, **OPERATOR).split()
        if records:
            assert records[-1].heads.digest == Heads.digest_of(heads)
        return records

    def server(self, command: str, *arguments: str | Path, code: int = 0) -> str:
        """Run hg as an operator in the repository."""
        return self.hg("-R", self.path("server"), command, *arguments, code=code, **OPERATOR)

    def client(self, *arguments: str | Path, code: int = 0) -> str:
        """Run alice's hg, whose sessions are hers on the host; return all that it says."""
        ssh = self.ssh() if arguments[0] in ("push", "pull", "clone") else ()
        done = self.start(*arguments, *ssh, HGRCPATH=str(self.client_rc), **ALICE)
        assert done.returncode == code, done.stdout + done.stderr
        return done.stdout + done.stderr

    def at_work(self, command: str, *arguments: str | Path, code: int = 0) -> str:
        """Run alice's hg in her clone."""
        return self.client(command, "--repository", self.work, *arguments, code=code)

    def change(self, name: str = "file", text: str = "one\n", *options: str) -> str:
        """Commit a file in alice's clone; return the node."""
        (self.work / name).write_text(text)
        self.at_work("commit", "--cwd", self.work, "-A", "-q", "-m", f"change {name}", *options)
        return self.at_work("log", "-r", ".", "-T", "{node}")

    def push(self, *options: str, code: int = 0) -> str:
        """Push alice's clone."""
        return self.at_work("push", *options, self.url("server"), code=code)
