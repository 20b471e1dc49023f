"""A renderer that failed one request answers no other, and nothing of a request outlives it."""

from __future__ import annotations

import threading
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.principal import Principal
from hgfleet.web.app import Application
from testing.integration.web import hostile_archives
from testing.integration.web.support import PROJECT, Reply, Site, ask, copied

if TYPE_CHECKING:
    from collections.abc import Callable

SECRET = "/team/secret"
NAME = {"Authorization": "somebody"}
"""The header of a reader of private repositories."""

ARCHIVES = 12
PAGES = 60
"""Reduced from 100 and 1,000, which `testing/bench/hostile_archives.py` sends to the cluster."""


Hostile = tuple[Site, dict[str, str]]
"""A site, and the changesets whose archives fail, by the way in which they do."""


@pytest.fixture(scope="module")
def hostile(template: Site, tmp_path_factory: pytest.TempPathFactory) -> Hostile:
    """A site with a repository whose archives fail in each way."""
    site = copied(template, tmp_path_factory.mktemp("failing"))
    for path in ("team/project", "team/secret"):
        (site.path(path) / ".hg/hgrc").write_text("[web]\nallow-archive = zip, gz\n")
    site.commit("team/secret", "name-of-a-secret.txt")
    nodes = hostile_archives.make(site)
    (site.path("team/hostile") / ".hg/hgrc").write_text("[web]\nallow-archive = zip, gz\n")
    return site, nodes


def application(site: Site) -> Application:
    """An application with little memory for a request, where NAME is a reader of the secret."""
    settings = replace(
        site.settings, request_memory_bytes=hostile_archives.MEMORY, waiting=64, renderers=4
    )
    web = Application(settings)
    staff = Principal("alice", frozenset({"staff"}))
    web._sign_in.principal = (  # type: ignore[method-assign]  # a reader without a daemon
        lambda exchange: staff if "HTTP_AUTHORIZATION" in exchange.environ else None
    )
    return web


def at_once(*works: Callable[[], None]) -> None:
    """Do these at the same time."""
    threads = [threading.Thread(target=work) for work in works]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def test_failed_archives_leave_nothing_in_answers_of_others(
    hostile: Hostile,
) -> None:
    site, nodes = hostile
    asked = [
        (f"{PROJECT}/archive/tip.zip", {}),
        (f"{PROJECT}/archive/tip.tar.gz", {}),
        (f"{SECRET}/archive/tip.zip", NAME),
    ]
    pages = [(f"{PROJECT}/raw-file/tip/one.txt", {}), (f"{SECRET}/json-log", NAME)]
    right = {path: ask(application(site), path, headers=given) for path, given in asked + pages}
    assert {reply.status for reply in right.values()} == {200}
    web = application(site)
    wrong: list[tuple[str, Reply]] = []

    def hostile_client(suffix: str) -> None:
        for number in range(ARCHIVES):
            hostile_archives.fail(web, nodes, suffix, number)

    def other(wanted: list[tuple[str, dict[str, str]]], count: int) -> None:
        for number in range(count):
            path, given = wanted[number % len(wanted)]
            # Another query is another key of the stored answers: each is computed.
            address = {"X-Real-IP": f"198.51.100.{number % 200}"}
            reply = ask(web, path, f"x={number}", headers=given | address)
            if (reply.status, reply.body) != (200, right[path].body):
                wrong.append((path, reply))

    at_once(
        lambda: hostile_client("zip"),
        lambda: hostile_client("tar.gz"),
        lambda: other(asked, ARCHIVES),
        lambda: other(pages, PAGES),
    )
    assert [(path, reply.status, reply.body[:80]) for path, reply in wrong] == []
