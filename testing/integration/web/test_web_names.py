"""Names of changesets: each named changeset is served, and nothing of the working copy ever is."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from testing.integration.web.support import PROJECT, Site, ask, copied

if TYPE_CHECKING:
    from hgfleet.web.app import Application

NAMED = ["x-f", "rel-f", "f", "ff", "wdir", "release/2147483647", "f" * 39]
SEARCHED = "overflow 2147483647 in ff, wdir and f"


@pytest.fixture(scope="module")
def site(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A repository with names that read like the working copy, and a file in that."""
    site = copied(template, tmp_path_factory.mktemp("names"))
    site.hg("team/project", "branch", "-q", "x-f")
    site.commit("team/project", "two.txt")
    site.hg("team/project", "commit", "-q", "-m", SEARCHED, "--config", "ui.allowemptycommit=yes")
    for name in NAMED[1:]:
        site.hg("team/project", "bookmark", "-i", name)
    (site.path("team/project") / "secret.txt").write_text("of the working directory")
    site.hg("team/project", "add", "-q", "secret.txt")
    return site


@pytest.fixture(scope="module")
def web(site: Site) -> Application:
    return site.application()


@pytest.mark.parametrize("name", NAMED)
def test_a_branch_or_bookmark_may_be_called_like_the_working_copy(
    site: Site, web: Application, name: str
) -> None:
    node = site.hg("team/project", "log", "-r", "tip", "-T", "{node}")
    quoted = name.replace("/", "%252F")
    for path in (f"json-rev/{quoted}", f"json-log/{quoted}", f"json-changelog/{quoted}"):
        reply = ask(web, f"{PROJECT}/{path}".replace("%252F", "%2F"))
        assert reply.status == 200, (path, reply)
        assert json.loads(reply.body)["node"] == node
    if "/" not in name:
        pushes = ask(web, f"{PROJECT}/json-pushes", f"changeset={name}")
        assert pushes.status == 200, pushes


@pytest.mark.parametrize("query", ["rev=overflow+2147483647", "rev=in+ff", "rev=wdir+and+f"])
def test_a_search_may_have_the_words(web: Application, query: str) -> None:
    reply = ask(web, f"{PROJECT}/json-log", query)
    assert [entry["desc"] for entry in json.loads(reply.body)["entries"]] == [SEARCHED]


WORKING_COPY = ["fff", "ffff", "f" * 12, "f" * 40, "F" * 40, "2147483647"]


@pytest.mark.parametrize("name", WORKING_COPY)
@pytest.mark.parametrize(
    "page", ["rev/{}", "raw-file/{}/secret.txt", "file/{}", "log/{}", "archive/{}.zip", "graph/{}"]
)
def test_a_name_that_only_the_working_copy_has_is_unknown(
    web: Application, name: str, page: str
) -> None:
    reply = ask(web, f"{PROJECT}/{page.format(name)}")
    # The node of a file that no file has is a mistake in the request.
    assert reply.status == 404 or (reply.status == 400 and "raw-file" in page), reply
    assert b"of the working directory" not in reply.body


@pytest.mark.parametrize(
    "search",
    ["rev({})", "id({})", "parents(rev({}))", "{}::", "all() and id({})", "p1({})", "not not {}"],
)
@pytest.mark.parametrize("name", WORKING_COPY)
def test_no_search_finds_the_working_copy(web: Application, name: str, search: str) -> None:
    reply = ask(web, f"{PROJECT}/json-log", f"rev={search.format(name)}")
    assert reply.status == 200, reply
    nodes = [entry["node"] for entry in json.loads(reply.body)["entries"]]
    assert "f" * 40 not in nodes
    assert b"of the working directory" not in reply.body
