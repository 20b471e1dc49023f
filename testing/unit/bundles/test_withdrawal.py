"""Entries that clients of a repository must not get any more."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hgfleet.bundles.decide.manifest import Entry, object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.decide.plan import Stores
from hgfleet.bundles.steps.withdrawal import REMOVED, due
from hgfleet.registry.model.registry import Repository

MINE, OTHER = "5f" * 16, "9a" * 16
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OPEN, CLOSED = "https://open.example/b", "https://closed.example/b"
PUBLIC_STORES = Stores({"open": OPEN}, others={"closed": CLOSED})
PRIVATE_STORES = Stores({"closed": CLOSED}, others={"open": OPEN})
PROJECT = Repository("team/project", "", "public", (), True, ("zstd",), identity=MINE)
TEAM = replace(PROJECT, read=("team",))


def entry(at: str = OPEN, of: str = MINE) -> Entry:
    url = object_url(at, make_key(of, "a" * 40, "1" * 64, "zstd"))
    return Entry(url, "zstd-v2", "1" * 64, 10, 3, NOW, private=at == CLOSED, identity=of)


def test_bundles_for_the_readers_of_a_repository_stay() -> None:
    assert due([entry()], PROJECT, PUBLIC_STORES, None, NOW) == {}
    assert due([entry(CLOSED)], TEAM, PRIVATE_STORES, None, NOW) == {}


def test_bundles_for_others_go() -> None:
    assert [*due([entry()], TEAM, PRIVATE_STORES, None, NOW).values()] == [
        "open is no store for it"
    ]
    assert due([entry(CLOSED)], PROJECT, PUBLIC_STORES, None, NOW)
    assert due([replace(entry(), private=True)], PROJECT, PUBLIC_STORES, None, NOW)
    assert due([entry(of=OTHER)], PROJECT, PUBLIC_STORES, None, NOW)
    assert due([entry()], replace(PROJECT, bundles=()), PUBLIC_STORES, None, NOW)


def test_bundles_made_before_a_removal_go() -> None:
    second = timedelta(seconds=1)
    assert due([entry()], PROJECT, PUBLIC_STORES, NOW - second, NOW) == {}
    for removal in (NOW, NOW + second):
        assert [*due([entry()], PROJECT, PUBLIC_STORES, removal, NOW).values()] == [REMOVED]


def test_state_of_the_release_before_waits_for_the_identity() -> None:
    former = replace(entry(of="team/project"), identity="")
    assert due([former], replace(PROJECT, identity=""), PUBLIC_STORES, None, NOW) == {}
    # No repository has the path any more.
    gone = replace(PROJECT, identity="", read=(), bundles=())
    assert due([former], gone, PRIVATE_STORES, None, NOW)


def test_a_bundle_of_the_future_may_have_been_made_before_a_removal() -> None:
    """The clock of its host ran ahead when it was made: it would keep removed changesets."""
    ahead = replace(entry(), made=NOW + timedelta(days=3))
    assert [*due([ahead], PROJECT, PUBLIC_STORES, NOW, NOW).values()] == [REMOVED]
    assert due([ahead], PROJECT, PUBLIC_STORES, None, NOW) == {}
