"""Refusals of wire commands: hg prints the sentence. What programs get says how it was read."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING
from xml.etree import ElementTree as ET

import pytest

from hgfleet.hg import wire_commands
from hgfleet.web.http import exchange
from hgfleet.web.http.exchange import RefusedError
from hgfleet.web.requests.repository_requests import RepositoryRequests
from hgfleet.web.requests.request import LARGEST_BODY
from testing.integration.web.support import PROJECT, Site, ask, copied

if TYPE_CHECKING:
    from hgfleet.web.app import Application

ALL = sorted(wire_commands.OPEN | wire_commands.CLOSED)


@pytest.fixture(scope="module")
def shared(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    return copied(template, tmp_path_factory.mktemp("refusals"))


@pytest.fixture(scope="module")
def web(shared: Site) -> Application:
    return shared.application()


@pytest.mark.parametrize("command", ALL)
@pytest.mark.parametrize(
    ("cause", "logged"),
    [
        (exchange.bad("A reason."), 400),
        (RefusedError(exchange.HTTPStatus.FORBIDDEN, "A reason."), 403),
        (RefusedError(exchange.HTTPStatus.REQUEST_ENTITY_TOO_LARGE, "A reason."), 413),
        (RefusedError(exchange.HTTPStatus.SERVICE_UNAVAILABLE, "A reason."), 503),
        (ValueError("a defect"), 500),
    ],
)
def test_hg_prints_every_refusal_that_nobody_before_it_acts_on(
    site: Site, monkeypatch: pytest.MonkeyPatch, command: str, cause: Exception, logged: int
) -> None:
    def refuse(*_: object) -> None:
        raise cause

    monkeypatch.setattr(RepositoryRequests, "answer", refuse)
    reply = ask(site.application(), PROJECT, f"cmd={command}")
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/hg-error")
    assert reply.text.startswith("A reason." if logged != 500 else "Something went wrong")
    line = site.log()[-1]
    assert (line["status"], bool(line["refused"])) == (logged, True)


@pytest.mark.parametrize(
    ("cause", "status"),
    [
        (exchange.unavailable("Another mirror has it."), 503),
        (exchange.not_found(), 404),
        (RefusedError(exchange.HTTPStatus.UNAUTHORIZED, "Who?"), 401),
        (RefusedError(exchange.HTTPStatus.TOO_MANY_REQUESTS, "Later."), 429),
    ],
)
def test_a_status_that_proxy_or_client_act_on_stays(
    site: Site, monkeypatch: pytest.MonkeyPatch, cause: RefusedError, status: int
) -> None:
    def refuse(*_: object) -> None:
        raise cause

    monkeypatch.setattr(RepositoryRequests, "answer", refuse)
    assert ask(site.application(), PROJECT, "cmd=heads").status == status


WRONG = [
    ("cmd=known", {"X-HgArg-1": "nodes=xyz"}, b""),
    ("cmd=known", {}, b""),
    ("cmd=lookup&key=" + "x" * 20_000, {}, b""),
    ("cmd=batch", {"X-HgArg-1": "cmds=nonsense"}, b""),
    ("cmd=listkeys&namespace=a&namespace=b", {}, b""),
    ("cmd=getbundle", {"X-HgArg-1": "heads=" + "f" * 40 + "&cg=1"}, b""),
    ("cmd=getbundle", {"X-HgArg-1": "common=" + "f" * 40 + "&cg=1"}, b""),
    ("cmd=getbundle", {"X-HgArg-1": "heads=" + "1" * 40 + "&cg=1"}, b""),
    ("cmd=known", {"X-HgArgs-Post": str(LARGEST_BODY + 1)}, b"nodes="),
    ("cmd=known", {"X-HgArgs-Post": "99"}, b"nodes="),
    ("cmd=changegroup", {}, b""),
    ("cmd=unbundle", {}, b""),
]


@pytest.mark.parametrize(("query", "headers", "body"), WRONG)
def test_a_wrong_request_is_told_in_a_sentence_that_hg_prints(
    web: Application, query: str, headers: dict[str, str], body: bytes
) -> None:
    method = "POST" if body else "GET"
    reply = ask(web, PROJECT, query, method=method, headers=headers, body=body)
    assert (reply.status, reply.headers["Content-Type"]) == (200, "application/hg-error"), reply
    assert re.search(r"[a-z]{3}", reply.text)
    assert "Something went wrong" not in reply.text


def test_known_takes_the_name_of_the_working_copy_as_unknown(web: Application) -> None:
    reply = ask(web, PROJECT, "cmd=known", headers={"X-HgArg-1": "nodes=" + "f" * 40})
    assert (reply.status, reply.text) == (200, "0")


def test_a_batch_of_thousands_of_revisions_is_answered(shared: Site, web: Application) -> None:
    node = shared.hg("team/project", "log", "-r", "0", "-T", "{node}")
    command = f"lookup key%3D{node}".replace(" ", "+")
    body = ("cmds=" + "%3B".join([command] * 3000)).encode()
    headers = {"X-HgArgs-Post": str(len(body))}
    reply = ask(web, PROJECT, "cmd=batch", method="POST", headers=headers, body=body)
    assert reply.status == 200
    assert reply.text.split(";") == [f"1 {node}\n"] * 3000


@pytest.mark.parametrize(
    ("query", "mode"),
    [
        ("grep('x')", "literal keyword search"),
        ("words of a description", "literal keyword search"),
        ("author('test')", "revset expression search"),
        ("tip", "exact revision search"),
    ],
)
def test_a_search_as_json_says_how_the_query_was_read(
    web: Application, query: str, mode: str
) -> None:
    answer = json.loads(ask(web, f"{PROJECT}/json-log", f"rev={query}".replace(" ", "+")).body)
    assert (answer["query"], answer["mode"]) == (query, mode)


HOSTILE = "a\x1b[31mred\x01 & <b>"


@pytest.mark.parametrize("style", ["atom", "rss"])
@pytest.mark.parametrize(
    "page", ["log", "tags", "bookmarks", "branches", "filelog/tip/two.txt", "pushlog"]
)
def test_a_feed_is_xml_whatever_people_commit(site: Site, style: str, page: str) -> None:
    if (style, page) == ("rss", "pushlog"):
        page = "log/tip"
    words = ("-m", HOSTILE, "-u", f"{HOSTILE} <x@example.org>")
    (site.path("team/project") / "two.txt").write_text("more")
    site.hg("team/project", "commit", *words)
    site.hg("team/project", "tag", "-m", HOSTILE, "t\x1b[0m")
    site.hg("team/project", "bookmark", "b\x1b[0m")
    reply = ask(site.application(), f"{PROJECT}/{style}-{page}")
    assert reply.status == 200
    root = ET.fromstring(reply.body)  # noqa: S314  (our own answer)
    assert len(list(root.iter())) > 3


def test_a_raw_changeset_has_all_that_hg_import_needs(
    site: Site, tmp_path_factory: pytest.TempPathFactory
) -> None:
    place = site.path("team/project")
    (place / "binary").write_bytes(bytes(range(256)))
    (place / "program").write_text("#!/bin/sh\n")
    (place / "program").chmod(0o755)
    site.hg("team/project", "add", "binary", "program")
    site.hg("team/project", "rename", "one.txt", "renamed.txt")
    site.hg("team/project", "commit", "-m", "all kinds")
    node = site.hg("team/project", "log", "-r", "tip", "-T", "{node}")
    web = site.application()
    patch = ask(web, f"{PROJECT}/raw-rev/{node}")
    # The page for people does not show the bytes.
    assert "GIT binary patch" not in ask(web, f"{PROJECT}/rev/{node}").text
    file = tmp_path_factory.mktemp("import") / "patch"
    file.write_bytes(patch.body)
    site.hg("team/project", "update", "-q", "-C", "tip^")
    site.hg("team/project", "import", "-q", str(file))
    same = site.hg("team/project", "log", "-r", "tip", "-T", "{node}")
    assert same == node
