from __future__ import annotations

import json

from hgfleet.registry.model import Registry, Repository
from hgfleet.web import health

PUBLIC = Repository("open/one", "", "public", (), True, ())
OTHER = Repository("open/two", "", "public", (), True, ())
PRIVATE = Repository("closed/one", "", ("staff",), (), True, ())
REGISTRY = Registry({entry.path: entry for entry in (PUBLIC, OTHER, PRIVATE)}, {})


def test_a_worker_that_serves_is_healthy() -> None:
    status, document = health.assess(REGISTRY, (), is_draining=False)
    assert status == 200
    assert document == {"status": "ok", "repositories": 2, "unreadable": 0}


def test_one_unreadable_repository_is_told_and_takes_no_server_out() -> None:
    status, document = health.assess(REGISTRY, ("open/one",), is_draining=False)
    assert status == 200
    assert document["unreadable"] == 1


def test_a_worker_that_can_read_none_fails_also_while_it_drains() -> None:
    for is_draining in (False, True):
        unreadable = ("open/one", "open/two")
        status, document = health.assess(REGISTRY, unreadable, is_draining=is_draining)
        assert status == 503
        assert document["problem"] == "no repository can be read"


def test_a_worker_without_a_registry_fails() -> None:
    status, document = health.assess(None, (), is_draining=True)
    assert status == 503
    assert json.dumps(document) == '{"status": "failing", "problem": "no registry"}'


def test_a_draining_worker_takes_no_new_clients() -> None:
    status, document = health.assess(REGISTRY, (), is_draining=True)
    assert status == 404
    assert document["problem"] == "draining"


def test_unreadable_repositories_are_looked_up_again_after_a_change() -> None:
    readable = {"open/one", "open/two"}
    readability = health.Readability(readable.__contains__)
    assert readability.unreadable(REGISTRY) == ()
    readable.clear()
    assert readability.unreadable(REGISTRY) == ()
    readability.forget()
    assert readability.unreadable(REGISTRY) == ("open/one", "open/two")
