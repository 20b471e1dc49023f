"""Private repositories: workers, the real daemon, its real socket; the directory is made up."""

from __future__ import annotations

import base64
import json
import re
import shutil
import socket
import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import authenticator, client, token_file
from hgfleet.auth.authenticator import Authenticator
from hgfleet.auth.daemon import Server
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.web.app import Application
from hgfleet.web.http import signin
from hgfleet.web.rendering.budgets import Kind
from testing.integration.web.support import Reply, Site, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from testing.conftest import WaitFor

from testing.integration.web.fleet import Directory, Fleet

SECRET = "/team/secret"


MISSING = "/team/secred"


RESTS = (
    "",
    "/",
    "/log",
    "/json-log",
    "/json-pushes",
    "/pushloghtml",
    "/atom-pushlog",
    "/json-repoinfo",
    "/rev/tip",
    "/raw-file/tip/plan.txt",
    "/archive/tip.tar.gz",
    "/nonsense",
    "/..",
)


QUERIES = (
    "cmd=capabilities",
    "cmd=heads",
    "cmd=batch",
    "cmd=getbundle",
    "cmd=listkeys&namespace=x",
)


ALICE = ("alice", "wonder")


BOB = ("bob", "builder")


@pytest.fixture
def fleet(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Fleet]:
    """The site with its daemon, which forgets people at once and refuses without waiting."""
    monkeypatch.setattr(authenticator, "PERSON_S", 0.0)
    monkeypatch.setattr(authenticator, "REFUSAL_S", 0.0)
    site.commit("team/secret", "plan.txt", "the plan\n")
    directory = Directory()
    lines: list[str] = []
    made = Fleet(site, directory, lines)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(site.folder / "auth.socket"))
        listening.listen(64)
        watched = token_file.Watched(made.tokens)
        server = Server(listening, Authenticator(directory, watched), lines.append)
        thread = threading.Thread(target=server.serve)
        thread.start()
        try:
            yield made
        finally:
            server.stop()
            # Wakes the thread, which would look at the flag only after a while.
            with socket.socket(socket.AF_UNIX) as last:
                last.connect(str(site.folder / "auth.socket"))
            thread.join()


def test_a_reader_reads_by_password_and_by_token(fleet: Fleet) -> None:
    for who in (ALICE, ("alice", fleet.token("alice"))):
        heads = fleet.ask(SECRET, "cmd=heads", who)
        assert heads.status == 200
        node = fleet.site.hg("team/secret", "log", "-r", "tip", "-T", "{node}")
        assert heads.text.strip() == node
        assert fleet.ask(f"{SECRET}/raw-file/tip/plan.txt", "", who).text == "the plan\n"


def shown(reply: Reply, path: str) -> tuple[int, str, dict[str, str]]:
    """Return the comparable parts of an answer, without the path and random values."""
    body = re.sub(r"nonce-[^']+", "nonce", reply.text).replace(path.strip("/"), "PATH")
    return reply.status, body, {**reply.headers, "Content-Length": ""}


@pytest.mark.parametrize("who", [None, BOB], ids=["anonymous", "bob"])
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST"])
@pytest.mark.parametrize("accept", ["*/*", "text/html"])
def test_for_all_others_a_private_repository_is_a_missing_one(
    fleet: Fleet, who: tuple[str, str] | None, method: str, accept: str
) -> None:
    asked = [(rest, "") for rest in RESTS] + [("", query) for query in QUERIES]
    for rest, query in asked:
        private, missing = (
            shown(
                fleet.ask(path + rest, query, who, method=method, headers={"Accept": accept}), path
            )
            for path in (SECRET, MISSING)
        )
        assert private == missing, (rest, query)
        assert private[0] in (401, 404, 405), (rest, query)
        assert private[0] != 401 or who is None, (rest, query)
    assert all("repository" not in line for line in fleet.site.log())


def test_hg_is_asked_who_it_is_and_a_browser_is_not(fleet: Fleet) -> None:
    for path in (SECRET, MISSING):
        asked = fleet.ask(path, "cmd=capabilities")
        assert asked.status == 401
        realm = 'Basic realm="Mercurial repositories: nothing public at this address"'
        assert asked.headers["WWW-Authenticate"].startswith(realm)
        assert "nothing public at this address" in asked.text
        assert "check its spelling" in asked.text
        page = fleet.ask(path)
        assert page.status == 404
        assert "/login" in page.text
        assert "WWW-Authenticate" not in page.headers


def test_private_answers_are_kept_nowhere(fleet: Fleet) -> None:
    for path, query in ((SECRET, "cmd=heads"), (f"{SECRET}/json-log", ""), (SECRET, ""), ("/", "")):
        first, second = (fleet.ask(path, query, ALICE) for _ in range(2))
        for reply in (first, second):
            assert reply.status == 200
            assert reply.headers["Cache-Control"] == "private, no-store"
            assert reply.headers["Vary"] == "Authorization"
            assert "ETag" not in reply.headers
        if path != "/":
            assert fleet.site.log()[-1]["cache"] == "off"
    assert len(fleet.web._requests.answers) == 0
    assert fleet.ask(f"{SECRET}/json-log", "", BOB).status == 404
    assert fleet.ask(f"{SECRET}/json-log").status == 404


def test_a_stored_condition_gives_nothing_away(fleet: Fleet) -> None:
    assert fleet.ask(SECRET, "", ALICE, headers={"If-None-Match": "*"}).status == 200
    assert fleet.ask(SECRET, "", BOB, headers={"If-None-Match": "*"}).status == 404


def test_public_repositories_never_ask_the_daemon(fleet: Fleet) -> None:
    fleet.directory.is_down = True
    for who in (None, ALICE, ("alice", "wrong"), "nonsense"):
        assert fleet.ask("/team/project", "cmd=heads", who).status == 200
        assert fleet.ask("/team/project/json-log", "", who).status == 200
    assert fleet.ask("/").status == 200
    assert fleet.lines == []


def test_lists_have_what_the_reader_may_read(fleet: Fleet) -> None:
    for path in ("/", "/team/", "/api/repositories", "/api/repositories/team"):
        public, bobs, alices = (fleet.ask(path, "", who) for who in (None, BOB, ALICE))
        for reply in (public, bobs, alices):
            assert reply.status == 200
            assert reply.headers["Vary"] == "Authorization"
            assert "team/project" in reply.text
        assert "team/secret" not in public.text + bobs.text
        assert "team/secret" in alices.text
        assert fleet.ask(path, "", ("alice", "wrong")).status == 401


def test_a_folder_of_private_ones_is_a_missing_one(fleet: Fleet) -> None:
    fleet.site.create("vault/one", public=False)
    assert fleet.ask("/vault/", "", ALICE).status == 200
    assert shown(fleet.ask("/vault/"), "vault") == shown(fleet.ask("/vaulx/"), "vaulx")
    assert fleet.ask("/vault/", "", BOB).status == 404
    assert fleet.ask("/api/repositories/vault", "", BOB).status == 404


def test_browsers_sign_in_at_login(fleet: Fleet) -> None:
    asked = fleet.ask("/login")
    assert asked.status == 401
    assert asked.headers["WWW-Authenticate"].startswith('Basic realm="Mercurial repositories",')
    assert fleet.ask("/login", "", ("alice", "wrong")).status == 401
    done = fleet.ask("/login", "", ALICE)
    assert (done.status, done.headers["Location"]) == (303, "/")
    assert "/login" in fleet.ask("/").text
    assert "As alice" in fleet.ask("/", "", ALICE).text


@pytest.mark.parametrize(
    "header",
    [
        "Basic",
        "Basic ",
        "Basic !!!!",
        "Basic YWxpY2U=",  # alice, without a colon
        "Basic YWxpY2U6/w==",  # not UTF-8
        "Bearer YWxpY2U6d29uZGVy",
        "Negotiate abc",
        "Basic " + "A" * 5000,
        "Basic " + base64.b64encode(b"alice:" + b"x" * 2000).decode(),
        "Basic " + base64.b64encode(b"a" * 1000 + b":wonder").decode(),
        "Basic " + base64.b64encode(b"alice\n:wonder").decode(),
        "Basic " + base64.b64encode(b"alice:wonder\0").decode(),
        "\xff\xfe",
    ],
)
def test_a_malformed_authorization_is_refused(fleet: Fleet, header: str) -> None:
    reply = fleet.ask(SECRET, "cmd=heads", header)
    assert reply.status == 401
    assert reply.headers["Cache-Control"] == "private, no-store"


def test_a_password_in_clear_is_refused_unseen(fleet: Fleet) -> None:
    for who in (ALICE, ("alice", "wrong")):
        reply = fleet.ask(SECRET, "cmd=heads", who, scheme="http")
        assert reply.headers["Content-Type"] == "application/hg-error"
        assert "HTTPS only" in reply.text
    assert fleet.lines == []


def test_guessing_is_throttled_and_said_so(fleet: Fleet) -> None:
    secret = fleet.token("alice")
    replies = [fleet.ask(SECRET, "cmd=heads", ("alice", f"guess{n}")) for n in range(40)]
    assert replies[0].status == 401
    last = replies[-1]
    assert last.status == 429
    assert int(last.headers["Retry-After"]) >= 1
    assert "Too many refused passwords" in last.text
    assert fleet.ask(SECRET, "cmd=heads", ("alice", secret)).status == 200
    assert fleet.ask("/team/project", "cmd=heads").status == 200


def test_a_client_cannot_choose_the_address_that_it_is_counted_as(fleet: Fleet) -> None:
    for number in range(40):
        given = {"X-Forwarded-For": f"198.51.100.{number}", "Forwarded": f"for=198.51.100.{number}"}
        reply = fleet.ask(SECRET, "cmd=heads", (f"person{number}", "guess"), headers=given)
    assert reply.status == 429


def test_a_disabled_person_is_refused_from_the_next_request_on(fleet: Fleet) -> None:
    secret = fleet.token("alice")
    for who in (ALICE, ("alice", secret)):
        assert fleet.ask(SECRET, "cmd=heads", who).status == 200
    del fleet.directory.passwords["alice"]
    for who in (ALICE, ("alice", secret)):
        assert fleet.ask(SECRET, "cmd=heads", who).status == 401


def test_a_person_who_left_the_group_gets_404(fleet: Fleet) -> None:
    assert fleet.ask(SECRET, "cmd=heads", ALICE).status == 200
    fleet.directory.groups["alice"] = frozenset()
    assert fleet.ask(SECRET, "cmd=heads", ALICE).status == 404


def disable(fleet: Fleet) -> None:
    del fleet.directory.passwords["alice"]


def disable_and_be_throttled(fleet: Fleet) -> None:
    disable(fleet)
    replies = [fleet.ask(f"{SECRET}/shortlog", "", ALICE) for _ in range(12)]
    assert replies[-1].status == 429, "the daemon looks at her password no more"


def take_out(fleet: Fleet) -> None:
    fleet.directory.groups["alice"] = frozenset()


@pytest.mark.parametrize("change", [disable, disable_and_be_throttled, take_out])
def test_a_request_that_waited_is_let_in_by_the_person_of_now(
    fleet: Fleet,
    change: Callable[[Fleet], None],
    monkeypatch: pytest.MonkeyPatch,
    wait_for: WaitFor,
) -> None:
    # Any wait is long enough.
    monkeypatch.setattr(signin, "WAITED_SECONDS", 0.0)
    slots = fleet.web._rendering._slots
    held = [slots.enter(f"192.0.2.{n}", Kind.WIRE) for n in range(fleet.site.settings.renderers)]
    assert all(place.granted.is_set() for place in held)
    replies: list[Reply] = []
    waiting = threading.Thread(
        target=lambda: replies.append(fleet.ask(f"{SECRET}/shortlog", "", ALICE))
    )
    waiting.start()
    wait_for("the request waits", lambda: slots.load()["waiting"] == 1)
    change(fleet)
    for place in held:
        slots.leave(place)
    waiting.join()
    assert [reply.status for reply in replies] == [404], replies[0].text
    assert "plan" not in replies[0].text


def test_without_the_directory_private_answers_503(fleet: Fleet) -> None:
    fleet.directory.is_down = True
    for path in (SECRET, MISSING):
        reply = fleet.ask(path, "cmd=heads", ALICE)
        assert reply.status == 503
        assert "public repositories are served" in reply.text
        assert reply.headers["Retry-After"] == "60"
    assert fleet.ask("/team/project", "cmd=heads", ALICE).status == 200


@pytest.mark.parametrize("way", ["missing", "deaf", "nonsense", "somebody else", "silent"])
def test_without_the_daemon_private_answers_503(
    site: Site, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(client, "ANSWER_S", 0.2)
    fleet = Fleet(site, Directory(), [])
    path = str(site.folder / "auth.socket")
    said = {
        "nonsense": b"nonsense\n",
        "somebody else": b'{"answer":"person","name":"root","groups":["staff"],"via":"token"}\n',
        "silent": b"",
    }
    with socket.socket(socket.AF_UNIX) as listening:
        if way != "missing":
            listening.bind(path)
        if way in said:
            listening.listen()

            def converse() -> None:
                connection, _ = listening.accept()
                with connection:
                    connection.recv(10000)
                    connection.sendall(said[way])

            thread = threading.Thread(target=converse)
            thread.start()
        assert fleet.ask(SECRET, "cmd=heads", ALICE).status == 503
        if way in said:
            thread.join()
        assert fleet.ask("/team/project", "cmd=heads").status == 200


def test_without_sign_in_private_repositories_do_not_exist(site: Site) -> None:
    web = site.application()
    header = {"Authorization": "Basic " + base64.b64encode(b"alice:wonder").decode()}
    for headers in ({}, header):
        for query in ("", "cmd=heads"):
            reply = ask(web, SECRET, query, headers=headers, scheme="https")
            assert reply.status == 404
            assert "login" not in reply.text
    assert ask(web, "/login", scheme="https").status == 404
    assert "Vary" not in ask(web, "/", scheme="https").headers


def test_logs_have_the_person_and_no_secret(
    fleet: Fleet, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = fleet.token("alice")
    for who in (ALICE, ("alice", secret), ("alice", "mistyped")):
        fleet.ask(SECRET, "cmd=heads", who)
    fleet.directory.is_down = True
    fleet.ask(SECRET, "cmd=heads", ALICE)

    log = fleet.site.log()
    assert [entry.get("user") for entry in log] == ["alice", "alice", None, None]
    assert [entry.get("via") for entry in log] == ["password", "token", None, None]
    assert [entry.get("refused") for entry in log] == [None, None, "signin", "unavailable"]
    said = json.dumps(log) + "\n".join(fleet.lines) + "".join(capfd.readouterr())
    for word in ("wonder", secret, "mistyped", base64.b64encode(b"alice:wonder").decode()):
        assert word not in said


def test_questions_leave_threads_for_public_requests(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two questions wait for a daemon that says nothing; the third is not even asked."""
    monkeypatch.setattr(client, "ANSWER_S", 5.0)
    fleet = Fleet(replace(site), Directory(), [])
    fleet.web = Application(
        replace(site.settings, auth_socket=site.folder / "auth.socket", auth_calls=2)
    )
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(site.folder / "auth.socket"))
        listening.listen()
        listening.settimeout(30)
        replies: list[Reply] = []

        def question(number: int) -> None:
            # From a single address, half of the questions would not be asked.
            address = {"X-Real-IP": f"192.0.2.{number}"}
            replies.append(fleet.ask(SECRET, "cmd=heads", ALICE, headers=address))

        threads = [threading.Thread(target=question, args=(number,)) for number in range(2)]
        for thread in threads:
            thread.start()
        waiting = [listening.accept()[0] for _ in threads]
        assert fleet.ask(SECRET, "cmd=heads", ALICE).status == 503
        assert replies == []
        for connection in waiting:
            connection.close()
        for thread in threads:
            thread.join()
    assert [reply.status for reply in replies] == [503, 503]


def test_a_person_who_gets_a_former_name_reads_nothing_of_the_former_person(fleet: Fleet) -> None:
    former, today = (f"b862b310-7ccc-103{digit}-8a1f-1b0c5d2e3f40" for digit in "de")
    path = "team/own"
    shutil.copytree(fleet.site.path("team/secret"), fleet.site.path(path))
    fleet.site.settings.dynamic.parent.mkdir(exist_ok=True)
    with dynamic_update.update(fleet.site.settings.dynamic) as entries:
        entries[path] = Entry("bob", "", "2026-11-21T00:00:00Z", read=(), owner_id=former)
    fleet.directory.person_ids["bob"] = former
    token = ("bob", fleet.token("bob"))
    for who in (BOB, token):
        assert fleet.ask(f"/{path}/raw-file/tip/plan.txt", "", who).text == "the plan\n"
        assert path in fleet.ask("/api/repositories", "", who).text

    fleet.directory.person_ids["bob"] = today
    fleet.directory.passwords["bob"] = "another"
    later = ("bob", "another")
    for rest in RESTS:
        hidden, absent = (
            shown(fleet.ask(f"/{name}{rest}", "", later), f"/{name}") for name in (path, "team/owm")
        )
        assert hidden == absent
        assert hidden[0] == 404
    assert path not in fleet.ask("/api/repositories", "", later).text
    # A password that was right a moment ago is remembered for the person, not for the name.
    for who in (BOB, token):
        assert fleet.ask(f"/{path}/raw-file/tip/plan.txt", "", who).status == 401
        assert fleet.ask("/login", "", who).status == 401
    assert any("reason=another-person" in line for line in fleet.lines)

    with dynamic_update.update(fleet.site.settings.dynamic) as entries:
        entries[path] = replace(entries[path], owner_id=today)
    assert fleet.ask(f"/{path}/raw-file/tip/plan.txt", "", later).text == "the plan\n"
