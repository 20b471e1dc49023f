"""Stored answers: a change of a repository shows at once in each answer that depends on it."""

from __future__ import annotations

import json
import os
import re
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from hgfleet.hg import fingerprint
from hgfleet.hg.fingerprint import SETTLED_NS
from hgfleet.web.engine.execution import Execution
from hgfleet.web.engine.opened_repositories import Repositories
from hgfleet.web.engine.places import Place
from testing.integration.web.support import PROJECT, Reply, Site, ask, last, settle

if TYPE_CHECKING:
    from hgfleet.web.app import Application
    from hgfleet.web.http.exchange import Environ


@pytest.fixture
def web(site: Site) -> Application:
    settle()
    return site.application()


def push_commit(site: Site) -> None:
    site.commit("team/project", "three.txt")


def push_bookmark(site: Site) -> None:
    site.hg("team/project", "bookmark", "-r", "0", "release")


def push_phase(site: Site) -> None:
    site.hg("team/project", "phase", "--public", "0")


def push_secret(site: Site) -> None:
    site.hg("team/project", "phase", "--force", "--secret", "1")


def push_tag(site: Site) -> None:
    site.hg("team/project", "tag", "--local", "-r", "0", "v1")


def change_settings(site: Site) -> None:
    site.publishing.append("team/project")
    site.write_registry()


def publish_bundles(site: Site) -> None:
    manifest = site.path("team/project") / ".hg" / "clonebundles.manifest"
    manifest.write_text("https://bundles.example.org/x.hg BUNDLESPEC=zstd-v2\n")


def namespace(name: str) -> tuple[str, dict[str, str]]:
    return "cmd=listkeys", {"X-HgArg-1": f"namespace={name}"}


def test_an_answer_is_stored_and_given_again(site: Site, web: Application) -> None:
    first = ask(web, PROJECT, "cmd=heads")
    assert last(site)["cache"] == "miss"
    second = ask(web, PROJECT, "cmd=heads")
    assert last(site)["cache"] == "hit"
    assert last(site)["command"] == "heads"
    assert second == first


@pytest.mark.parametrize(
    ("change", "path", "query", "headers"),
    [
        (push_commit, PROJECT, "cmd=heads", {}),
        (push_commit, PROJECT, "cmd=branchmap", {}),
        (push_commit, PROJECT, "cmd=batch", {"X-HgArg-1": "cmds=heads+%3Bknown+nodes%3D"}),
        (push_commit, PROJECT, "cmd=lookup", {"X-HgArg-1": "key=tip"}),
        (push_commit, PROJECT + "/json-log", "", {}),
        (push_commit, PROJECT + "/log", "", {}),
        (push_commit, PROJECT + "/json-manifest/tip", "", {}),
        (push_bookmark, PROJECT, *namespace("bookmarks")),
        (push_bookmark, PROJECT + "/json-bookmarks", "", {}),
        (push_phase, PROJECT, *namespace("phases")),
        (push_phase, PROJECT + "/json-changeset/0", "", {}),
        (push_secret, PROJECT, "cmd=heads", {}),
        (push_secret, PROJECT + "/json-log", "", {}),
        (push_tag, PROJECT + "/json-tags", "", {}),
        (change_settings, PROJECT, *namespace("phases")),
        (publish_bundles, PROJECT, "cmd=capabilities", {}),
        (publish_bundles, PROJECT, "cmd=clonebundles", {}),
        (publish_bundles, PROJECT, "cmd=clonebundles_manifest", {}),
    ],
)
def test_a_change_shows_at_once_in_every_answer_that_depends_on_it(
    site: Site, web: Application, change: object, path: str, query: str, headers: dict[str, str]
) -> None:
    def now() -> Reply:
        reply = ask(web, path, query, headers=headers)
        assert reply.status == 200, reply.body
        reply.headers.pop("Content-Security-Policy", None)
        reply.body = re.sub(rb'nonce="[^"]*"', b"", reply.body)
        return reply

    before = now()
    assert now() == before
    change(site)  # type: ignore[operator]  # one of the functions above
    changed = now()
    assert changed.body != before.body
    assert now() == changed
    settle()
    assert now() == changed, "what is stored later is the same"


def test_two_moves_of_a_bookmark_within_a_second_are_both_seen(
    site: Site, web: Application
) -> None:
    query, headers = namespace("bookmarks")
    nodes = site.hg("team/project", "log", "-T", "{node}\n").split()
    mark = site.path("team/project") / ".hg" / "bookmarks"
    for number in range(20):
        node = nodes[number % 2]
        new = mark.with_name("new")
        new.write_text(f"{node} release\n")
        os.utime(new, (1_700_000_000, 1_700_000_000))
        new.rename(mark)
        assert ask(web, PROJECT, query, headers=headers).text == f"release\t{node}"


def test_json_has_a_tag_and_revalidates(site: Site, web: Application) -> None:
    reply = ask(web, PROJECT + "/json-log")
    tag = reply.headers["ETag"]
    assert json.loads(reply.text)["changeset_count"] == 2
    again = ask(web, PROJECT + "/json-log", headers={"If-None-Match": f'"other", W/{tag}'})
    assert (again.status, again.body) == (304, b"")
    assert again.headers["ETag"] == tag
    assert last(site)["status"] == 304
    site.commit("team/project", "three.txt")
    fresh = ask(web, PROJECT + "/json-log", headers={"If-None-Match": tag})
    assert fresh.status == 200
    assert fresh.headers["ETag"] != tag


def test_a_conditional_request_fills_the_cache_for_all_clients(
    site: Site, web: Application
) -> None:
    ask(web, PROJECT + "/json-log", headers={"If-None-Match": "*"})
    reply = ask(web, PROJECT + "/json-log")
    assert (reply.status, last(site)["cache"]) == (200, "hit")
    assert json.loads(reply.text)["changeset_count"] == 2


def test_idle_repositories_that_have_changed_are_released(
    site: Site,
) -> None:
    repositories = Repositories(site.folder / "repos")
    for name in ("open/one", "open/two"):
        site.create(name)
        site.commit(name, "file")

    def lend(name: str) -> None:
        settle()
        place = Place(name, "", "{}")
        repositories.release(repositories.acquire(place, repositories.fingerprint(name)))

    for name in ("open/one", "open/two", "open/two"):
        lend(name)
    assert set(repositories._idle) == {"open/one", "open/two"}
    site.commit("open/one", "other")
    for _ in range(2):
        lend("open/two")
    assert set(repositories._idle) == {"open/two"}
    assert repositories._count == 1


def test_an_answer_is_stored_only_if_the_state_was_settled_when_it_was_read(
    site: Site, web: Application, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A worker may read before a second change that leaves the same stat behind."""
    newest = web._repositories.fingerprint("team/project").changed_ns
    clock = SimpleNamespace(time_ns=lambda: newest)
    monkeypatch.setattr(fingerprint, "time", clock)
    collect = Execution.collect

    def slow(self: Execution, environ: Environ, most: int) -> bool:
        done = collect(self, environ, most)
        clock.time_ns = lambda: newest + 2 * SETTLED_NS
        return done

    monkeypatch.setattr(Execution, "collect", slow)
    for expected in ("miss", "miss", "hit"):
        ask(web, PROJECT, "cmd=heads")
        assert last(site)["cache"] == expected
