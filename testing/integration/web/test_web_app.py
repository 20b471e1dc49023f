"""The answers of the web part to its clients, asked as a WSGI server asks."""

from __future__ import annotations

import json
import os
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.dynamic.renames import Rename
from hgfleet.web.app import Application
from hgfleet.web.index import listing
from testing.integration.web.support import PROJECT, Site, ask, last, settle

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture
def web(site: Site) -> Application:
    settle()
    return site.application()


def test_heads_are_the_heads(site: Site, web: Application) -> None:
    reply = ask(web, PROJECT, "cmd=heads")
    assert reply.status == 200
    assert reply.headers["Content-Type"] == "application/mercurial-0.1"
    assert reply.text.split() == site.hg("team/project", "heads", "-T", "{node}\n").split()


def test_a_head_is_the_get_without_its_body(site: Site, web: Application) -> None:
    for path in ("/", PROJECT + "/json-log", PROJECT + "/raw-file/tip/one.txt", "/nothing"):
        get = ask(web, path)
        head = ask(web, path, method="HEAD")
        assert (head.status, head.body) == (get.status, b"")
        assert head.headers == get.headers
        assert last(site)["bytes"] == 0
    assert ask(web, PROJECT + "/archive/tip.tar.gz", method="HEAD").status == 200
    assert ask(web, PROJECT, "cmd=getbundle", method="HEAD").status == 405


def test_each_page_gets_a_nonce_of_its_own_also_out_of_the_store(web: Application) -> None:
    seen = set()
    for _ in range(3):
        reply = ask(web, PROJECT + "/shortlog")
        policy = reply.headers["Content-Security-Policy"]
        match = re.search(r"'nonce-([^']+)'", policy)
        assert match
        nonces = set(re.findall(r'<script[^>]* nonce="([^"]*)"', reply.text))
        assert nonces == {match[1]}
        seen |= nonces
        assert "ETag" not in reply.headers
        assert reply.headers["Content-Length"] == str(len(reply.body))
    assert len(seen) == 3


def test_a_renamed_repository_is_found_at_its_former_address_by_its_readers(site: Site) -> None:
    site.settings.dynamic.parent.mkdir()
    with dynamic_update.update(site.settings.dynamic) as entries:
        entries.note_rename("people/bob/x", Rename("team/project", "bob", "2026-11-21T00:00:00Z"))
        entries.note_rename("people/bob/y", Rename("team/none", "bob", "2026-11-21T00:00:00Z"))
    web = site.application()
    moved = ask(web, "/people/bob/x/log", "rev=tip")
    assert (moved.status, moved.headers["Location"]) == (302, "/team/project/log?rev=tip")
    wire = ask(web, "/people/bob/x", "cmd=capabilities")
    assert (wire.status, wire.headers["Location"]) == (302, "/team/project?cmd=capabilities")
    assert ask(web, "/people/bob/y").status == 404
    assert ask(web, "/people/bob/x", method="POST").status == 405


def test_somebodys_file_cannot_run_as_this_site(site: Site, web: Application) -> None:
    site.commit("team/project", "evil.html", "<script>alert(1)</script>")
    reply = ask(web, PROJECT + "/raw-file/tip/evil.html")
    assert reply.body == b"<script>alert(1)</script>"
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    assert reply.headers["Content-Security-Policy"] == "default-src 'none'; sandbox"
    assert reply.headers["Content-Type"] == "application/binary"


def test_a_file_whose_name_is_not_ascii_can_be_fetched(site: Site, web: Application) -> None:
    site.commit("team/project", "größe.txt", "groß\n")
    path = (PROJECT + "/raw-file/tip/größe.txt").encode().decode("latin-1")
    reply = ask(web, path)
    assert (reply.status, reply.text) == (200, "groß\n")
    assert reply.headers["Content-Disposition"] == "inline; filename*=UTF-8''gr%C3%B6%C3%9Fe.txt"


def test_an_archive_is_streamed_and_counted(site: Site, web: Application) -> None:
    reply = ask(web, PROJECT + "/archive/tip.tar.gz")
    assert reply.status == 200
    assert reply.body.startswith(b"\x1f\x8b")
    line = last(site)
    assert (line["command"], line["bytes"], line["cache"]) == ("archive", len(reply.body), "off")
    assert ask(web, PROJECT + "/archive/tip.tar.bz2").status == 403
    assert ask(web, PROJECT + "/archive/nothing.tar.gz").status == 404


def test_a_mercurial_client_gets_a_changeset_as_plain_text_and_a_browser_a_page(
    web: Application,
) -> None:
    for _ in range(2):
        page = ask(web, PROJECT + "/rev/tip", headers={"User-Agent": "Mozilla/5.0"})
        patch = ask(web, PROJECT + "/rev/tip", headers={"User-Agent": "mercurial/proto-1.0"})
        assert page.headers["Content-Type"].startswith("text/html")
        assert patch.headers["Content-Type"].startswith("text/plain")


@pytest.mark.parametrize("command", ["unbundle", "pushkey"])
@pytest.mark.parametrize("method", ["GET", "POST"])
def test_a_push_is_told_to_go_over_ssh(
    site: Site, web: Application, command: str, method: str
) -> None:
    reply = ask(web, PROJECT, f"cmd={command}", method=method, body=b"x" * 200_000)
    assert reply.headers["Content-Type"] == "application/hg-error"
    assert "push goes over SSH: hg push ssh://hg@hg.example.org/team/project" in reply.text
    assert last(site)["refused"] == "push"


def test_a_push_hidden_in_a_batch_is_refused_too(site: Site, web: Application) -> None:
    cmds = "cmds=heads+%3Bpushkey+namespace%3Dbookmarks%2Ckey%3Dx%2Cold%3D%2Cnew%3D"
    reply = ask(web, PROJECT, "cmd=batch", headers={"X-HgArg-1": cmds + "1" * 40})
    assert reply.headers["Content-Type"] == "application/hg-error"
    assert site.hg("team/project", "bookmarks", "-T", "{bookmark}") == ""


def test_arguments_may_come_in_the_body_of_a_post(site: Site, web: Application) -> None:
    body = b"nodes=" + site.hg("team/project", "log", "-r", "0", "-T", "{node}").encode()
    headers = {"X-HgArgs-Post": str(len(body))}
    reply = ask(web, PROJECT, "cmd=known", method="POST", headers=headers, body=body)
    assert reply.body == b"1"


def test_arguments_in_a_body_share_the_stored_answer_of_those_in_headers(
    site: Site, web: Application
) -> None:
    arguments = "namespace=bookmarks"
    in_headers = ask(web, PROJECT, "cmd=listkeys", headers={"X-HgArg-1": arguments})
    headers = {"X-HgArgs-Post": str(len(arguments)), "X-HgArg-1": "namespace=phases"}
    in_body = ask(
        web, PROJECT, "cmd=listkeys", method="POST", headers=headers, body=arguments.encode()
    )
    assert in_body == in_headers
    assert (last(site)["cache"], last(site)["method"]) == ("hit", "POST")


def test_clients_are_told_to_send_arguments_in_a_body_and_of_no_stream(web: Application) -> None:
    told = ask(web, PROJECT, "cmd=capabilities").text.split()
    assert "httppostargs" in told
    assert not [word for word in told if word.startswith("stream")]
    (bundle2,) = (word for word in told if word.startswith("bundle2="))
    assert "stream" not in bundle2


def test_private_and_unknown_repositories_get_the_same_answer(web: Application) -> None:
    for suffix, query in (("", ""), ("", "cmd=heads"), ("/json-log", ""), ("/", "cmd=unbundle")):
        unknown = ask(web, "/team/missing" + suffix, query)
        private = ask(web, "/team/secret" + suffix, query)
        assert unknown.status == 404
        assert private == unknown
    assert "secret" not in ask(web, "/").text
    assert "secret" not in ask(web, "/api/repositories").text


def test_a_refusal_is_a_page_for_a_browser_and_a_line_for_programs(web: Application) -> None:
    page = ask(web, "/missing", headers={"Accept": "text/html,*/*"})
    assert page.headers["Content-Type"] == "text/html; charset=utf-8"
    assert ask(web, "/missing").headers["Content-Type"] == "text/plain; charset=utf-8"


def test_a_new_repository_appears_and_a_removed_one_goes_without_a_restart(
    site: Site, web: Application
) -> None:
    assert ask(web, "/late", "cmd=heads").status == 404
    site.create("late")
    assert ask(web, "/late", "cmd=heads").text == "0" * 40 + "\n"
    assert "/late" in ask(web, "/").text
    site.public.remove("late")
    site.write_registry()
    assert ask(web, "/late", "cmd=heads").status == 404
    assert site.path("late").exists()


def test_a_registry_that_makes_no_sense_leaves_the_last_good_one_in_effect(
    site: Site, web: Application, capfd: pytest.CaptureFixture[str]
) -> None:
    site.settings.registry.write_text("{")
    assert ask(web, PROJECT, "cmd=heads").status == 200
    assert "not a compiled registry" in capfd.readouterr().err
    site.write_registry()
    assert ask(web, PROJECT, "cmd=heads").status == 200


def test_what_people_create_and_archive_takes_effect_without_a_restart(
    site: Site, web: Application, capfd: pytest.CaptureFixture[str]
) -> None:
    site.create("people/bob/x")
    site.public.remove("people/bob/x")
    site.write_registry()
    assert ask(web, "/people/bob/x", "cmd=heads").status == 404
    site.settings.dynamic.parent.mkdir()
    entry = Entry("bob", "", "2026-11-21T00:00:00Z")
    with dynamic_update.update(site.settings.dynamic) as entries:
        entries["people/bob/x"] = entry
    assert ask(web, "/people/bob/x", "cmd=heads").status == 200
    assert "/people/bob/x" in ask(web, "/").text
    with dynamic_update.update(site.settings.dynamic) as entries:
        entries["people/bob/x"] = replace(entry, archived="2026-11-21T00:00:00Z")
    gone = ask(web, "/people/bob/x", "cmd=heads")
    missing = ask(web, "/people/bob/y", "cmd=heads")
    assert (gone.status, gone.headers, gone.body) == (404, missing.headers, missing.body)
    site.settings.dynamic.write_text("{")
    assert ask(web, PROJECT, "cmd=heads").status == 200
    assert "not a dynamic registry" in capfd.readouterr().err


def test_before_there_is_a_registry_the_server_says_so_and_then_serves(site: Site) -> None:
    registry = site.settings.registry
    registry.unlink()
    web = site.application()
    assert ask(web, PROJECT, "cmd=heads").status == 503
    health = ask(web, "/healthz")
    assert (health.status, json.loads(health.text)["problem"]) == (503, "no registry")
    site.write_registry()
    assert ask(web, PROJECT, "cmd=heads").status == 200
    assert ask(web, "/healthz").status == 200


def test_health_is_about_repositories_that_can_be_read(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hgfleet.web.http.worker_health.HEALTH_S", 0.0)
    site.create("other")
    web = site.application()
    document = json.loads(ask(web, "/healthz").text)
    assert (document["status"], document["repositories"], document["unreadable"]) == ("ok", 2, 0)
    (site.path("other") / ".hg" / "requires").unlink()
    health = ask(web, "/healthz")
    assert (health.status, json.loads(health.text)["unreadable"]) == (200, 1)
    (site.path("team/project") / ".hg" / "requires").unlink()
    assert ask(web, "/healthz").status == 503


def test_a_server_that_drains_says_404_and_goes_on_serving(site: Site, web: Application) -> None:
    site.settings.drain.write_text("")
    health = ask(web, "/healthz")
    assert (health.status, json.loads(health.text)["problem"]) == (404, "draining")
    assert ask(web, PROJECT, "cmd=heads").status == 200
    site.settings.drain.unlink()
    assert ask(web, "/healthz").status == 200


def test_a_mirror_that_is_not_current_fails_its_check_and_goes_on_serving(site: Site) -> None:
    state = site.folder / "state.json"
    web = Application(replace(site.settings, mirror_state=state))
    check = ask(web, "/healthz")
    assert (check.status, json.loads(check.text)["problem"]) == (
        503,
        "replication has written no state",
    )
    assert ask(web, PROJECT, "cmd=heads").status == 200
    state.write_text(json.dumps({"caught_up": True, "lease_until": time.time() + 500}))
    assert ask(web, "/healthz").status == 200


def test_a_host_without_room_for_answers_fails_its_check(site: Site) -> None:
    spool = site.folder / "spool"
    settings = replace(site.settings, spool=spool, spool_free_bytes=1)
    check = ask(Application(settings), "/healthz")
    assert (check.status, json.loads(check.text)["problem"]) == (
        503,
        "the folder for answers cannot be read: No such file or directory",
    )
    spool.mkdir()
    assert ask(Application(settings), "/healthz").status == 200
    full = Application(replace(settings, spool_free_bytes=2**62))
    assert "bytes free" in json.loads(ask(full, "/healthz").text)["problem"]
    assert ask(full, PROJECT, "cmd=heads").status == 200


def test_a_repository_that_is_missing_on_disk_is_503_and_told(
    site: Site, capfd: pytest.CaptureFixture[str]
) -> None:
    site.public.append("gone")
    site.write_registry()
    web = site.application()
    reply = ask(web, "/gone", "cmd=heads")
    assert (reply.status, reply.headers["Retry-After"]) == (503, "60")
    assert "/gone" not in reply.text
    assert '"event": "unavailable"' in capfd.readouterr().err
    assert ask(web, PROJECT, "cmd=heads").status == 200


def test_new_configuration_takes_effect_without_a_restart(web: Application, hgrc: Path) -> None:
    before = hgrc.read_text()
    assert ask(web, PROJECT + "/archive/tip.zip").status == 200
    try:
        hgrc.write_text(before.replace("allow-archive = zip, gz", "allow-archive = gz"))
        assert ask(web, PROJECT + "/archive/tip.zip").status == 403
    finally:
        hgrc.write_text(before)
    assert ask(web, PROJECT + "/archive/tip.zip").status == 200


def test_configuration_of_a_repository_cannot_open_it_for_pushes(
    site: Site, web: Application
) -> None:
    hgrc = site.path("team/project") / ".hg" / "hgrc"
    hgrc.write_text("[web]\nallow-push = *\npush_ssl = no\ncsp =\ncache = yes\n")
    reply = ask(web, PROJECT, "cmd=unbundle", method="POST")
    assert reply.headers["Content-Type"] == "application/hg-error"
    page = ask(web, PROJECT + "/log")
    assert "nonce-" in page.headers["Content-Security-Policy"]
    assert "ETag" not in page.headers


def test_links_show_the_public_address_whatever_host_was_asked(web: Application) -> None:
    for host in ("evil.example.org", 'x"><script>', ""):
        feed = ask(web, PROJECT + "/atom-log", headers={"Host": host})
        assert "https://hg.example.org" in feed.text
        assert "evil" not in feed.text
        index = ask(web, "/", headers={"Host": host})
        assert "hg clone https://hg.example.org/team/project" in index.text


def test_what_a_client_sends_beside_the_protocol_does_not_reach_hgweb(web: Application) -> None:
    plain = ask(web, PROJECT, "cmd=heads")
    odd = ask(
        web,
        PROJECT,
        "cmd=heads",
        headers={"Expect": "100-continue", "Repo-Name": "x", "X-HgArgs-Post": "zz", "Range": "x"},
    )
    assert odd.body == plain.body


def test_the_log_shows_what_a_clone_cost_the_server(site: Site, web: Application) -> None:
    caps = "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D01%252C02"
    node = site.hg("team/project", "log", "-r", "tip", "-T", "{node}")
    full = ask(web, PROJECT, "cmd=getbundle", headers={"X-HgArg-1": f"{caps}&cg=1&heads={node}"})
    assert full.status == 200
    line = last(site)
    assert (line["command"], line["full"], line["bytes"]) == ("getbundle", True, len(full.body))
    assert line["repository"] == "team/project"
    ask(web, PROJECT, "cmd=getbundle", headers={"X-HgArg-1": f"{caps}&cg=1&common={node}"})
    assert last(site)["full"] is False
    assert isinstance(last(site)["duration"], float)


def test_a_client_that_goes_away_is_logged_and_the_next_one_served(
    site: Site, web: Application
) -> None:
    # More than is held back until the answer is whole.
    site.commit("team/project", "large", os.urandom(1_000_000).hex())
    started: list[str] = []
    environ = {
        "REQUEST_METHOD": "GET",
        "PATH_INFO": PROJECT,
        "QUERY_STRING": "cmd=getbundle",
        "HTTP_X_HGARG_1": "bundlecaps=HG20%2Cbundle2%3DHG20%250Achangegroup%253D01%252C02&cg=1",
        "wsgi.url_scheme": "http",
    }

    def start_response(status: str, headers: object, exc_info: object = None) -> object:
        del headers, exc_info
        started.append(status)
        return None

    pieces = web(environ, start_response)
    pieces.close()  # type: ignore[attr-defined]  # a stream has it
    assert started == ["200 OK"]
    assert last(site)["aborted"] is True
    assert ask(web, PROJECT, "cmd=heads").status == 200


def test_robots_are_kept_off_expensive_pages(web: Application) -> None:
    assert "Disallow: /*/annotate" in ask(web, "/robots.txt").text


def test_the_index_reads_the_repositories_of_one_page_only(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    site.public += [f"many/r{number:05}" for number in range(10_000)]
    site.write_registry()
    web = site.application()
    looked: list[str] = []
    changed = web._repositories.changed

    def counting(path: str, identity: str) -> int | None:
        looked.append(path)
        return changed(path, identity)

    monkeypatch.setattr(web._listing, "_changed", counting)
    spent = []
    for _ in range(5):
        looked.clear()
        started = time.thread_time()
        page = ask(web, "/").text
        spent.append(time.thread_time() - started)
        assert len(looked) == listing.PAGE
    print("CPU seconds:", spent)
    assert min(spent) <= 0.1, spent
    assert "10001 repositories." in page
    linked, number = re.findall(r'<li><a href="/([^"]*)">', page), 1
    while 'rel="next"' in page:
        number += 1
        page = ask(web, "/", f"page={number}").text
        linked += re.findall(r'<li><a href="/([^"]*)">', page)
    assert linked == sorted(site.public)
    for wrong in ("0", "-1", "x", "", str(number + 1), "9" * 50, "%00"):
        assert ask(web, "/", f"page={wrong}").status == 404

    url, named = "/api/repositories", []
    while url:
        path, _, query = url.partition("?")
        document = json.loads(ask(web, path, query).text)
        assert len(document["repositories"]) <= listing.API_PAGE
        named += [entry["path"] for entry in document["repositories"]]
        url = document.get("next", "").removeprefix("https://hg.example.org")
    assert named == linked
    assert ask(web, "/missing").status == 404
