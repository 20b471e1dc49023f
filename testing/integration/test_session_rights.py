"""An open session over SSH goes on only as long as what it was let in by holds."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hgfleet.registry.compiled import dump_compiled
from hgfleet.registry.schema import parse

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

TOP: Final = Path(__file__).resolve().parents[2]
HG: Final = Path(sys.executable).with_name("hg")
HGRC: Final = "[hgfleet]\npath = team/tool\nread = public\npush = staff\n"
AGAIN: Final = "while this session was open; run the command again"


class Session:
    """A session of a person, driven command by command."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process

    def ask(self, request: bytes) -> bytes | None:
        """Send a command without arguments; None if the session has ended instead of an answer."""
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        try:
            self.process.stdin.write(request + b"\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            return None
        length = self.process.stdout.readline()
        return self.process.stdout.read(int(length)) if length else None

    def last_words(self) -> str:
        """Return what the person reads at the end of the session."""
        _, said = self.process.communicate(timeout=30)
        return said.decode()


class Site:
    """A server with one repository, and a registry of two files."""

    def __init__(self, folder: Path) -> None:
        self.repository = folder / "repos/tool"
        self.compiled = folder / "registry.json"
        self.dynamic = folder / "dynamic.json"
        self.rc = folder / "server.rc"
        self.register()
        names = ("access", "session_limits", "session_rights")
        loaded = "".join(f"{name} = {TOP}/hgext/{name}.py\n" for name in names)
        files = f"session-compiled = {self.compiled}\nsession-dynamic = {self.dynamic}\n"
        self.rc.write_text(f"[extensions]\n{loaded}[hgfleet]\n{files}")
        self.hg("init", str(self.repository))
        self.hgrc = self.repository / ".hg/hgrc"
        self.hgrc.write_text(HGRC)
        self.sessions: list[Session] = []

    def register(self, *, read: str = "public", path: str = "team/tool") -> None:
        """Write the compiled registry, as an apply does: another file at the same path."""
        text = "version: 1\nrepositories:\n"
        text += f"  {path}: {{description: a tool, read: {read}, push: [staff]}}\n"
        new = self.compiled.with_suffix(".new")
        new.write_text(dump_compiled(parse(text)))
        new.replace(self.compiled)

    def configure(self, section: str, line: str) -> None:
        self.rc.write_text(f"{self.rc.read_text()}[{section}]\n{line}\n")

    def hg(self, *arguments: str) -> None:
        environment = {**os.environ, "HGRCPATH": "", "HGFLEET_USER": "operator:root"}
        subprocess.run([HG, *arguments], env=environment, check=True)

    def open(self) -> Session:
        """Open a session of alice and ask for the heads."""
        session = self.start()
        assert session.ask(b"heads") == b"0" * 40 + b"\n"
        return session

    def start(self) -> Session:
        """Open a session of alice."""
        environment = {
            **os.environ,
            "PYTHONPATH": str(TOP),
            "HGRCPATH": str(self.rc),
            "HGFLEET_USER": "alice",
            "HGFLEET_GROUPS": "staff",
        }
        command = [HG, "-R", self.repository, "serve", "--stdio"]
        pipe = subprocess.PIPE
        process = subprocess.Popen(command, env=environment, stdin=pipe, stdout=pipe, stderr=pipe)
        session = Session(process)
        self.sessions.append(session)
        return session

    def close(self) -> None:
        for session in self.sessions:
            session.process.kill()
            session.process.communicate()


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """A site whose sessions end with the test."""
    made = Site(tmp_path)
    yield made
    made.close()


def rename(site: Site) -> None:
    site.repository.rename(site.repository.with_name("renamed"))


def replace(site: Site) -> None:
    rename(site)
    shutil.copytree(site.repository.with_name("renamed"), site.repository)


def make_read_only(site: Site) -> None:
    site.hgrc.write_text(HGRC + "read-only = moving\n")


def close_to_alice(site: Site) -> None:
    site.register(read="[security]")


def take_out(site: Site) -> None:
    site.register(path="team/other")


def damage(site: Site) -> None:
    site.compiled.write_text("{")


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (rename, "team/tool was renamed, archived or replaced"),
        (replace, "team/tool was renamed, archived or replaced"),
        (make_read_only, "the settings of team/tool changed"),
        (close_to_alice, "the rights to team/tool changed"),
        (take_out, "the rights to team/tool changed"),
        (damage, "the rights to team/tool changed"),
    ],
)
def test_the_next_command_after_a_change_is_not_answered(
    site: Site, change: Callable[[Site], None], said: str
) -> None:
    session = site.open()
    change(site)
    assert session.ask(b"heads") is None
    assert f"{said} {AGAIN}" in session.last_words()


def test_a_session_goes_on_while_what_it_was_let_in_by_is_written_again(site: Site) -> None:
    session = site.open()
    site.register()
    new = site.hgrc.with_name("new")
    new.write_text(HGRC)
    new.replace(site.hgrc)
    assert session.ask(b"heads") == b"0" * 40 + b"\n"


def test_a_change_after_the_decision_and_before_the_first_command_counts(
    site: Site, tmp_path: Path
) -> None:
    # hgfleet-shell has decided, and hg opens the repository: this is between the two.
    closed = tmp_path / "closed.json"
    shutil.copy(site.compiled, tmp_path / "open.json")
    close_to_alice(site)
    site.compiled.rename(closed)
    (tmp_path / "open.json").rename(site.compiled)
    between = tmp_path / "between.py"
    between.write_text(
        "import os\n"
        "def reposetup(ui, repo):\n"
        f"    os.replace({str(closed)!r}, {str(site.compiled)!r})\n"
    )
    site.configure("extensions", f"between = {between}")
    session = site.start()
    assert session.ask(b"heads") is None
    assert f"the rights to team/tool changed {AGAIN}" in session.last_words()


@pytest.mark.parametrize(
    "line", ["read-only = moving", 'rules = [{"tags": ["v*"], "push": []}]', ""]
)
def test_settings_that_changed_after_hg_read_them_count(
    site: Site, tmp_path: Path, line: str
) -> None:
    new = tmp_path / "new.rc"
    new.write_text(HGRC + f"{line}\n")
    between = tmp_path / "between.py"
    between.write_text(
        f"import os\ndef reposetup(ui, repo):\n    os.replace({str(new)!r}, {str(site.hgrc)!r})\n"
    )
    site.configure("extensions", f"between = {between}")
    session = site.start()
    if not line:
        # Written again as it was.
        assert session.ask(b"heads") == b"0" * 40 + b"\n"
        return
    assert session.ask(b"heads") is None
    assert f"the settings of team/tool changed {AGAIN}" in session.last_words()


def test_an_old_session_ends_before_its_next_command(site: Site) -> None:
    site.configure("hgfleet", "session-max = 1")
    session = site.open()
    while session.ask(b"heads") is not None:
        pass
    assert "this session is older than 1 seconds; run the command again" in session.last_words()


def test_a_transaction_looks_again_when_it_opens(site: Site, tmp_path: Path) -> None:
    # The change comes after the look of the command, as for a push that waits for the lock.
    note = tmp_path / "late.py"
    note.write_text(
        "def change(repo, **kwargs):\n"
        f"    open({str(site.hgrc)!r}, 'a').write('read-only = moving\\n')\n"
    )
    site.configure("hooks", f"prepushkey.late = python:{note}:change")
    session = site.open()
    assert session.process.stdin is not None
    fields = {b"namespace": b"bookmarks", b"key": b"mark", b"old": b"", b"new": b"0" * 40}
    request = b"pushkey\n" + b"".join(b"%s %d\n%s" % (k, len(v), v) for k, v in fields.items())
    session.process.stdin.write(request)
    session.process.stdin.flush()
    said = session.last_words()
    assert f"the settings of team/tool changed {AGAIN}; nothing was changed" in said
    assert not (site.repository / ".hg/bookmarks").exists()


def test_no_session_is_served_where_its_rights_cannot_be_looked_at(site: Site) -> None:
    # The settings of the hosts, with an extension that does not load.
    template = (TOP / "ansible/roles/mercurial/templates/hgrc.j2").read_text()
    broken = site.rc.with_name("broken.py")
    broken.write_text("raise ImportError('gone')\n")
    for line in template.splitlines():
        name, _, value = line.partition(" = ")
        if name.startswith("session_rights"):
            own = str(broken) if value.startswith("/") else value
            site.configure("extensions", f"{name} = {own}")
    session = site.start()
    assert session.ask(b"heads") is None
    assert "failed to import extension" in session.last_words()
