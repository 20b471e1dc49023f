"""An open session over SSH goes on only while the rights that let it in hold."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from hgfleet.core import identity
from hgfleet.core.daemons.line_server import LineServer
from hgfleet.core.errors import UnavailableError
from hgfleet.directory.person_state import PersonState
from hgfleet.registry.model.compiled import dump_compiled
from hgfleet.registry.model.schema import parse
from hgfleet.ssh.keys import people_daemon
from testing.support import pace

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
        """Return the message that the person reads at the end of the session."""
        _, said = pace.communicate(self.process, 30)
        return said.decode()


class Site:
    """A server with a repository, and a registry of two files."""

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
        self.login: dict[str, str] = {}

    def register(self, *, read: str = "public", path: str = "team/tool") -> None:
        """Write the compiled registry, as an apply does: another file at the same path."""
        text = "version: 1\nrepositories:\n"
        text += f"  {path}: {{description: a tool, read: {read}, push: [staff]}}\n"
        new = self.compiled.with_suffix(".new")
        new.write_text(dump_compiled(parse(text)))
        new.replace(self.compiled)

    def identify(self, registered: str, *, found: str = "") -> None:
        """Write the identity of the entry, and the identity of the folder."""
        text = {"format": 1, "repositories": {}, "identities": {"team/tool": registered}}
        new = self.dynamic.with_suffix(".new")
        new.write_text(json.dumps(text))
        new.replace(self.dynamic)
        if found:
            (self.repository / identity.FILE).write_text(identity.text(found))

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
            **self.login,
        }
        command = [str(HG), "-R", str(self.repository), "serve", "--stdio"]
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


MINE: Final = "a" * 32
OTHER: Final = "b" * 32


def test_a_session_that_opened_another_repository_than_it_was_let_in_to_ends(site: Site) -> None:
    # hgfleet-shell has decided, and another folder is there when hg opens it.
    site.identify(MINE, found=OTHER)
    site.login = {"HGFLEET_IDENTITY": MINE}
    session = site.start()
    assert session.ask(b"heads") is None
    assert f"team/tool was renamed, archived or replaced {AGAIN}" in session.last_words()


def test_a_session_ends_when_its_path_is_that_of_another_repository(site: Site) -> None:
    # The registry of a mirror is replaced before its folders are moved.
    site.identify(MINE, found=MINE)
    site.login = {"HGFLEET_IDENTITY": MINE}
    session = site.open()
    site.identify(OTHER)
    assert session.ask(b"heads") is None
    assert f"the rights to team/tool changed {AGAIN}" in session.last_words()


def test_a_session_goes_on_when_its_repository_gets_its_identity(site: Site) -> None:
    # A repository of a release before: `registry apply` gives the identity while sessions are open.
    session = site.open()
    site.identify(MINE, found=MINE)
    assert session.ask(b"heads") == b"0" * 40 + b"\n"
    assert session.ask(b"heads") == b"0" * 40 + b"\n"


def test_a_push_that_waited_looks_whose_path_it_is(site: Site, tmp_path: Path) -> None:
    site.identify(MINE, found=MINE)
    site.login = {"HGFLEET_IDENTITY": MINE}
    (tmp_path / "other.json").write_text(site.dynamic.read_text().replace(MINE, OTHER))
    late = tmp_path / "late.py"
    late.write_text(
        "import os\n"
        "def change(repo, **kwargs):\n"
        f"    os.replace({str(tmp_path / 'other.json')!r}, {str(site.dynamic)!r})\n"
    )
    site.configure("hooks", f"prepushkey.late = python:{late}:change")
    said = push_bookmark(site.open())
    assert f"the rights to team/tool changed {AGAIN}; nothing was changed" in said
    assert not (site.repository / ".hg/bookmarks").exists()


def test_an_old_session_ends_before_its_next_command(site: Site) -> None:
    site.configure("hgfleet", "session-max = 1")
    session = site.open()
    while session.ask(b"heads") is not None:
        pass
    assert "this session is older than 1 seconds; run the command again" in session.last_words()


def push_bookmark(session: Session) -> str:
    """Push a bookmark, and return the message that the pusher reads."""
    assert session.process.stdin is not None
    fields = {b"namespace": b"bookmarks", b"key": b"mark", b"old": b"", b"new": b"0" * 40}
    request = b"pushkey\n" + b"".join(b"%s %d\n%s" % (k, len(v), v) for k, v in fields.items())
    session.process.stdin.write(request)
    session.process.stdin.flush()
    return session.last_words()


def test_a_transaction_looks_again_when_it_opens(site: Site, tmp_path: Path) -> None:
    # The change comes after the look of the command, as for a push that waits for the lock.
    note = tmp_path / "late.py"
    note.write_text(
        "def change(repo, **kwargs):\n"
        f"    open({str(site.hgrc)!r}, 'a').write('read-only = moving\\n')\n"
    )
    site.configure("hooks", f"prepushkey.late = python:{note}:change")
    said = push_bookmark(site.open())
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


# --- the person -----------------------------------------------------------------------------

KEY: Final = f"SHA256:{'k' * 43}"
PERSON_ID: Final = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
AS_AT_THE_LOGIN: Final = PersonState(
    "enabled", frozenset({"staff"}), frozenset({KEY}), person_id=PERSON_ID
)


class People:
    """The daemon that tells the state of a person, with a directory that a test writes."""

    def __init__(self, folder: Path) -> None:
        self.found: PersonState | None = AS_AT_THE_LOGIN
        self.asked: list[str] = []
        self.path = folder / "people"
        self.logged: list[str] = []
        listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(str(self.path))
        listening.listen()
        users = frozenset({os.getuid()})
        self.server = LineServer(
            listening, self.answer, self.logged.append, longest=128, users=users
        )
        self.thread = threading.Thread(target=self.server.serve)
        self.thread.start()

    def answer(self, line: bytes) -> bytes:
        return people_daemon.answer(line, self.find, self.logged.append)

    def find(self, person: str) -> PersonState:
        self.asked.append(person)
        if self.found is None:
            raise UnavailableError("no server")
        return self.found


@pytest.fixture
def people(site: Site, tmp_path: Path) -> Iterator[People]:
    """The daemon, asked by sessions of the site."""
    made = People(tmp_path)
    site.configure("hgfleet", f"session-people = {made.path}")
    yield made
    made.server.stop()
    made.thread.join()


def logged_in(site: Site, seconds: float) -> None:
    """Have sessions begin over the connection of a login that is so old."""
    site.login = {
        "HGFLEET_LOGIN": str(int(time.time() - seconds)),
        "HGFLEET_KEY": KEY,
        "HGFLEET_PERSON_ID": PERSON_ID,
    }


def test_a_new_session_has_the_person_of_its_login(site: Site, people: People) -> None:
    logged_in(site, 5)
    people.found = PersonState("disabled")
    site.open()
    assert people.asked == []


def test_a_session_of_an_old_login_is_asked_about_once(site: Site, people: People) -> None:
    logged_in(site, 3600)
    session = site.open()
    assert session.ask(b"heads") is not None
    assert people.asked == ["alice"]


@pytest.mark.parametrize(
    ("state", "said"),
    [
        (PersonState("disabled"), "alice may not use this service any more"),
        (PersonState("missing"), "alice may not use this service any more"),
        (
            PersonState("enabled", frozenset({"other"}), frozenset({KEY})),
            f"the groups of alice changed {AGAIN}",
        ),
        (
            PersonState("enabled", frozenset({"staff"})),
            "the key of this session is no key of alice any more",
        ),
        (
            dataclasses.replace(AS_AT_THE_LOGIN, person_id=PERSON_ID.replace("103d", "103e")),
            "the name alice belongs to another person since this session began",
        ),
    ],
)
def test_a_person_who_lost_a_right_gets_no_further_session_over_an_old_connection(
    site: Site, people: People, state: PersonState, said: str
) -> None:
    logged_in(site, 3600)
    people.found = state
    session = site.start()
    assert session.ask(b"heads") is None
    assert said in session.last_words()


def test_an_open_session_ends_after_the_person_is_disabled(
    site: Site, people: People, tmp_path: Path
) -> None:
    # A minute is too long for a test: the clock of the session goes a thousand times as fast.
    fast = tmp_path / "fast.py"
    fast.write_text(
        "import time\n"
        "began, slow = time.monotonic(), time.monotonic\n"
        "time.monotonic = lambda: began + (slow() - began) * 1000\n"
    )
    site.configure("extensions", f"fast = {fast}")
    logged_in(site, 0)
    session = site.open()
    people.found = PersonState("disabled")
    while session.ask(b"heads") is not None:
        pass
    assert "alice may not use this service any more" in session.last_words()


def test_a_session_of_a_new_login_bears_a_directory_that_is_away(
    site: Site, people: People
) -> None:
    people.found = None
    logged_in(site, 300)
    session = site.open()
    assert people.asked == ["alice"]
    logged_in(site, 3600)
    late = site.start()
    assert late.ask(b"heads") is None
    assert "the directory of this service does not answer" in late.last_words()
    assert session.ask(b"heads") is not None


def test_a_transaction_asks_about_the_person_when_it_opens(
    site: Site, people: People, tmp_path: Path
) -> None:
    # The look of the command is before the minute is over, the transaction's after it.
    note = tmp_path / "late.py"
    note.write_text(
        "import time\n"
        "def late(repo, **kwargs):\n"
        "    slow = time.monotonic\n"
        "    time.monotonic = lambda: slow() + 60\n"
    )
    site.configure("hooks", f"prepushkey.late = python:{note}:late")
    logged_in(site, 0)
    session = site.open()
    people.found = PersonState("disabled")
    said = push_bookmark(session)
    assert "alice may not use this service any more" in said
    assert "nothing was changed" in said
    assert people.asked == ["alice"]
    assert not (site.repository / ".hg/bookmarks").exists()
