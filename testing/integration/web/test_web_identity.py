"""A folder with another repository than the registry's entry names: no byte of it is served.

On a mirror the registry is replaced in one step, and folders are moved after it.
"""

from __future__ import annotations

import json
import os
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import identity
from hgfleet.web.app import Application
from hgfleet.web.engine.execution import Execution
from hgfleet.web.engine.opened_repositories import Repositories, UnavailableRepositoryError
from hgfleet.web.engine.places import Place
from testing.integration.web.support import PROJECT, Reply, Site, ask, last, settle

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hgfleet.web.http.exchange import Environ, Exchange
    from hgfleet.web.http.routing import InRepository

PUBLIC, PRIVATE = "a" * 32, "b" * 32
NAMES = ("team/project", "team/secret")

PAGES = (
    ("", ""),
    ("/", ""),
    ("/log", ""),
    ("/log", "rev=plan"),
    ("/graph", ""),
    ("/rev/tip", ""),
    ("/raw-rev/tip", ""),
    ("/file/tip", ""),
    ("/file/tip/plan.txt", ""),
    ("/raw-file/tip/plan.txt", ""),
    ("/annotate/tip/plan.txt", ""),
    ("/filelog/tip/plan.txt", ""),
    ("/diff/tip/plan.txt", ""),
    ("/archive/tip.tar.gz", ""),
    ("/branches", ""),
    ("/bookmarks", ""),
    ("/tags", ""),
    ("/rss-log", ""),
    ("/atom-log", ""),
    ("/json-log", ""),
    ("/json-changelog", ""),
    ("/json-manifest/tip", ""),
    ("/json-pushes", ""),
    ("/pushloghtml", ""),
    ("/atom-pushlog", ""),
    ("/json-repoinfo", ""),
    ("/nonsense", ""),
)

WIRE: tuple[tuple[str, dict[str, str]], ...] = (
    ("cmd=capabilities", {}),
    ("cmd=heads", {}),
    ("cmd=branchmap", {}),
    ("cmd=batch", {"X-HgArg-1": "cmds=heads+%3Bknown+nodes%3D"}),
    ("cmd=lookup", {"X-HgArg-1": "key=tip"}),
    ("cmd=listkeys", {"X-HgArg-1": "namespace=bookmarks"}),
    ("cmd=getbundle", {"X-HgArg-1": "bundlecaps=HG20&common=&heads=&cg=1"}),
    ("cmd=clonebundles", {}),
    ("cmd=clonebundles_manifest", {}),
    ("cmd=stream_out", {}),
)


def register(site: Site, **named: str) -> None:
    """Write the identities of repositories of the inventory, as the primary decided them."""
    identities = {name.replace("_", "/"): value for name, value in named.items()}
    new = site.folder / "dynamic/registry.json.new"
    new.parent.mkdir(exist_ok=True)
    new.write_text(json.dumps({"format": 1, "repositories": {}, "identities": identities}))
    new.rename(site.folder / "dynamic/registry.json")


def exchange(site: Site) -> None:
    """Exchange the places of both repositories."""
    first, other = map(site.path, NAMES)
    away = first.with_name("away")
    first.rename(away)
    other.rename(first)
    away.rename(other)


@pytest.fixture
def site(site: Site) -> Site:
    """A public and a private repository, each with the identity of its entry."""
    site.commit("team/secret", "plan.txt", "the plan\n")
    site.hg("team/secret", "bookmark", "-r", "0", "hidden")
    bundles = site.path("team/secret") / ".hg/clonebundles.manifest"
    bundles.write_text("https://bundles.example.org/plan.hg BUNDLESPEC=zstd-v2\n")
    for name, value in zip(NAMES, (PUBLIC, PRIVATE), strict=True):
        (site.path(name) / identity.FILE).write_text(identity.text(value))
    register(site, team_project=PUBLIC, team_secret=PRIVATE)
    settle()
    return site


def is_refused(reply: Reply) -> bool:
    """Whether an answer says that the repository is away for now, and nothing of it."""
    return (
        reply.status == 503
        and int(reply.headers["Retry-After"]) > 0
        and ("try again in a minute" in reply.text or not reply.body)
        and "ETag" not in reply.headers
        and reply.headers["Cache-Control"] == "no-store"
    )


def ask_all(web: Application, **headers: str) -> dict[str, Reply]:
    """Ask for everything that the address of a repository answers."""
    replies = {
        f"{method} {rest}?{query}": ask(web, PROJECT + rest, query, method=method, headers=headers)
        for rest, query in PAGES
        for method in ("GET", "HEAD")
    }
    for query, more in WIRE:
        replies[query] = ask(web, PROJECT, query, headers={**more, **headers})
    return replies


def test_a_repository_of_the_entrys_identity_is_served(site: Site) -> None:
    web = site.application()
    assert ask(web, f"{PROJECT}/raw-file/tip/one.txt").text == "content\n"
    assert ask(web, PROJECT, "cmd=heads").status == 200


@pytest.mark.parametrize("accept", ["*/*", "text/html"])
def test_another_repository_at_the_place_of_a_public_one_is_not_served(
    site: Site, accept: str
) -> None:
    exchange(site)
    for what, reply in ask_all(site.application(), Accept=accept).items():
        assert is_refused(reply), what
        assert b"plan" not in reply.body, what
    assert {line["refused"] for line in site.log()} == {"identity"}


def test_a_repository_without_identity_is_not_that_of_an_entry(site: Site) -> None:
    (site.path("team/project") / identity.FILE).unlink()
    assert is_refused(ask(site.application(), f"{PROJECT}/raw-file/tip/one.txt"))


def test_an_entry_without_identity_serves_what_is_there(site: Site) -> None:
    register(site)
    assert ask(site.application(), f"{PROJECT}/raw-file/tip/one.txt").status == 200


def test_stored_answers_and_open_repositories_are_those_of_the_identity(site: Site) -> None:
    web = site.application()
    before = ask_all(web)
    assert before["GET /raw-file/tip/plan.txt?"].status == 404
    assert before["GET /json-log?"].status == 200
    again = ask_all(web)
    exchange(site)
    for what, reply in ask_all(web).items():
        assert is_refused(reply), what
    exchange(site)
    # The moves changed the folders, so answers are made again, and are the same.
    settle()
    assert {what: reply.status for what, reply in ask_all(web).items()} == {
        what: reply.status for what, reply in again.items()
    }


def test_answers_of_a_former_repository_end_with_its_entry(site: Site) -> None:
    """Only the entry changes: the folder, its fingerprint and the path are as they were."""
    web = site.application()
    tags = {
        what: reply.headers["ETag"]
        for what, reply in ask_all(web).items()
        if "ETag" in reply.headers
    }
    assert len(tags) > 5
    ask_all(web)
    register(site, team_project="c" * 32)
    for what, reply in ask_all(web).items():
        assert is_refused(reply), what
    for tag in tags.values():
        assert is_refused(ask(web, f"{PROJECT}/json-log", headers={"If-None-Match": tag}))


def test_lists_have_no_time_of_another_repository(site: Site) -> None:
    os.utime(site.path("team/secret") / ".hg/store/00changelog.i", (10**9, 10**9))
    exchange(site)
    web = site.application()
    listed = json.loads(ask(web, "/api/repositories").body)["repositories"]
    assert [(entry["path"], entry["changed"]) for entry in listed] == [("team/project", None)]
    assert "2001" not in ask(web, "/").text


def test_the_repository_that_was_opened_is_looked_at_too(site: Site) -> None:
    """A folder may be moved between the look at its place and its opening."""
    repositories = Repositories(site.folder / "repos")
    path = "team/project"
    fingerprint = repositories.fingerprint(path)
    own, other = Place(path, PUBLIC, "{}"), Place(path, PRIVATE, "{}")
    repositories.release(repositories.acquire(own, fingerprint))
    with pytest.raises(UnavailableRepositoryError, match=PRIVATE):
        repositories.acquire(other, fingerprint)
    assert repositories.acquire(own, fingerprint).place == own


@pytest.mark.parametrize("rest", ["/raw-file/tip/one.txt", "?cmd=heads", "?cmd=clonebundles"])
def test_a_repository_that_was_moved_while_it_answered_is_not_served(
    site: Site, monkeypatch: pytest.MonkeyPatch, rest: str
) -> None:
    web = site.application()
    original = Execution.collect

    def collect(self: Execution, environ: Environ, most: int) -> bool:
        done = original(self, environ, most)
        exchange(site)
        return done

    monkeypatch.setattr(Execution, "collect", collect)
    path, _, query = rest.partition("?")
    assert is_refused(ask(web, PROJECT + path, query))
    monkeypatch.undo()
    assert is_refused(ask(web, PROJECT + path, query))
    exchange(site)
    assert ask(web, PROJECT + path, query).status == 200


def test_a_clone_that_waited_is_not_let_in_to_another_repository(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The entry has another identity, or the folder has, when its turn comes."""
    web = site.application()
    asked: list[bool] = []
    original = web._requests.answer

    def answer(request: Exchange, route: InRepository) -> Iterable[bytes]:
        asked.append(request.may_go_on())
        register(site, team_project="c" * 32)
        asked.append(request.may_go_on())
        register(site, team_project=PUBLIC)
        asked.append(request.may_go_on())
        exchange(site)
        with pytest.raises(UnavailableRepositoryError):
            request.may_go_on()
        return original(request, route)

    monkeypatch.setattr(web._requests, "answer", answer)
    assert is_refused(ask(web, PROJECT, "cmd=heads"))
    assert asked == [True, False, True]


def test_a_parked_repository_is_away_and_all_others_are_served(site: Site) -> None:
    site.create("team/other")
    site.commit("team/other", "one.txt")
    state = site.folder / "state.json"
    web = Application(replace(site.settings, mirror_state=state))
    assert {reply.status for reply in ask_all(web).values()} >= {200}
    settle()

    def park(*identities: str) -> None:
        new = state.with_suffix(".new")
        new.write_text(json.dumps({"caught_up": True, "lease_until": 0, "unserved": identities}))
        new.replace(state)

    park(PUBLIC)
    for what, reply in ask_all(web).items():
        assert is_refused(reply), what
    assert last(site)["refused"] == "parked"
    assert ask(web, "/team/other/raw-file/tip/one.txt").text == "content\n"
    park()
    assert ask(web, f"{PROJECT}/raw-file/tip/one.txt").status == 200
