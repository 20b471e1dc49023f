from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime, timedelta

from hgfleet.bundles.decide.demand import Demand
from hgfleet.bundles.decide.manifest import Entry, object_url
from hgfleet.bundles.decide.names import make_key
from hgfleet.bundles.decide.plan import Action, Plan, Refresh, State, Stores, misplaced, order, plan
from hgfleet.registry.model.registry import Repository

PUBLIC = "https://store.example/bundles"
US = "https://us.example/bundles"
ONE = Stores({"main": PUBLIC})
TWO = Stores({"eu": PUBLIC, "us": US})
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
OLD_TIP, TIP = "a" * 40, "b" * 40
REFRESH = Refresh(share=0.01, age=timedelta(days=7))
MINE, OTHER = "5f" * 16, "9a" * 16
PROJECT = Repository(
    "team/project", "", "public", (), True, ("stream", "zstd", "gzip"), identity=MINE
)


def entry(
    kind: str, *, tip: str = TIP, days: float = 1, named: str = MINE, at: str = PUBLIC
) -> Entry:
    sha256 = {"stream": "1", "zstd": "2", "gzip": "3"}[kind] * 64
    url = object_url(at, make_key(named, tip, sha256, kind))
    made = NOW - timedelta(days=days)
    return Entry(url, f"{kind}-v2", sha256, 10, 100, made, identity=MINE)


def state(changesets: int = 1000, **covered: int) -> State:
    known = {{"old": OLD_TIP, "tip": TIP}[name]: count for name, count in covered.items()}
    return State(heads=frozenset({TIP}), tip=TIP, changesets=changesets, covered=known)


def decide(
    published: list[Entry],
    now: State,
    repository: Repository = PROJECT,
    *,
    dead: dict[str, str] | None = None,
    foreign: bool = False,
    force: bool = False,
    stores: Stores = ONE,
    demand: Demand | None = None,
) -> Plan:
    return plan(
        repository,
        now,
        published,
        stores=stores,
        demand=demand,
        refresh=REFRESH,
        now=NOW,
        dead=dead,
        foreign=foreign,
        force=force,
    )


def test_a_repository_without_bundles_gets_all_of_its_kinds() -> None:
    decision = decide([], state())
    assert decision.action is Action.GENERATE
    assert decision.build == decision.kinds == ("stream", "zstd", "gzip")
    assert decision.reasons[0] == "stream: no bundle is published"


def test_bundles_of_the_tip_are_kept() -> None:
    published = [entry("stream"), entry("zstd"), entry("gzip")]
    decision = decide(published, state(tip=1000))
    assert decision.action is Action.KEEP
    assert decision.reasons == ("current",)


def test_only_the_missing_kind_is_made() -> None:
    published = [entry("stream"), entry("gzip")]
    decision = decide(published, state(tip=1000))
    assert decision.build == ("zstd",)
    assert decision.keep == {"stream": {"main": published[0]}, "gzip": {"main": published[1]}}
    assert decision.kinds == ("stream", "zstd", "gzip")


def test_another_order_in_the_registry_needs_no_new_bundle() -> None:
    published = [entry("zstd"), entry("stream"), entry("gzip")]
    decision = decide(published, state(tip=1000))
    assert decision.action is Action.REPUBLISH
    assert order(decision.kinds, ["main"], decision.keep) == [
        published[1],
        published[0],
        published[2],
    ]


def test_a_kind_that_the_registry_no_longer_wants_leaves_the_manifest() -> None:
    repository = replace(PROJECT, bundles=("zstd",))
    published = [entry("stream"), entry("zstd")]
    decision = decide(published, state(tip=1000), repository)
    assert decision.action is Action.REPUBLISH
    assert decision.kinds == ("zstd",)


def test_lines_of_others_leave_the_manifest() -> None:
    published = [entry("stream"), entry("zstd"), entry("gzip")]
    assert decide(published, state(tip=1000), foreign=True).action is Action.REPUBLISH
    assert decide([], State(), foreign=True).action is Action.WITHDRAW


def test_a_few_new_changesets_wait_until_the_bundle_is_old() -> None:
    published = [entry(kind, tip=OLD_TIP, days=6.9) for kind in ("stream", "zstd", "gzip")]
    decision = decide(published, state(1000, old=990))
    assert decision.action is Action.KEEP
    assert decision.reasons == ("covers all but 10 of 1,000 changesets",)
    published = [entry(kind, tip=OLD_TIP, days=7) for kind in ("stream", "zstd", "gzip")]
    decision = decide(published, state(1000, old=999))
    assert decision.build == ("stream", "zstd", "gzip")
    assert "1 changeset is newer than the bundle, and it is 7 days old" in decision.reasons[0]


def test_an_old_bundle_of_a_repository_without_changes_is_kept() -> None:
    published = [entry(kind, days=400) for kind in ("stream", "zstd", "gzip")]
    assert decide(published, state(tip=1000)).action is Action.KEEP


def test_many_new_changesets_do_not_wait() -> None:
    published = [entry(kind, tip=OLD_TIP) for kind in ("stream", "zstd", "gzip")]
    decision = decide(published, state(1000, old=989))
    assert decision.action is Action.GENERATE
    assert decision.reasons[0] == (
        "stream: 11 of 1,000 changesets (1.1%) are newer than the bundle (limit 1.0%)"
    )


def test_a_bundle_with_stripped_history_is_replaced() -> None:
    published = [entry(kind, tip=OLD_TIP) for kind in ("stream", "zstd", "gzip")]
    decision = decide(published, state(1000))
    assert decision.action is Action.GENERATE
    assert "no longer has" in decision.reasons[0]


def test_a_dead_url_is_replaced_and_the_others_stay() -> None:
    published = [entry("stream"), entry("zstd"), entry("gzip")]
    decision = decide(published, state(tip=1000), dead={published[1].url: "the answer is 404"})
    assert decision.build == ("zstd",)
    assert decision.reasons == (
        "zstd: the published bundle cannot be downloaded (the answer is 404)",
    )


def test_bundles_at_another_public_url_are_made_anew() -> None:
    elsewhere = Entry("https://old.example/x", "zstd-v2", "2" * 64, 10, 100, NOW)
    assert decide([elsewhere], state(tip=1000)).build == ("stream", "zstd", "gzip")


def test_bundles_of_another_repository_are_never_taken_for_ones_own() -> None:
    published = [entry(kind, named=OTHER) for kind in ("stream", "zstd", "gzip")]
    assert decide(published, state(tip=1000)).build == ("stream", "zstd", "gzip")


def test_force_makes_everything_anew() -> None:
    published = [entry("stream"), entry("zstd"), entry("gzip")]
    assert decide(published, state(tip=1000), force=True).build == ("stream", "zstd", "gzip")


def test_an_empty_repository_has_no_manifest() -> None:
    assert decide([], State()).action is Action.KEEP
    assert decide([entry("zstd")], State()).action is Action.WITHDRAW


PRIVATE = replace(PROJECT, read=("staff",), bundles=("stream",))
CLOSED = "https://closed.example/bundles"


def test_without_a_private_store_what_is_not_public_is_withdrawn_and_never_looked_at() -> None:
    none = Stores({}, others={"main": PUBLIC})
    for force in (False, True):
        decision = decide([entry("stream")], State(), PRIVATE, force=force, stores=none)
        assert decision.action is Action.WITHDRAW
        assert decision.build == decision.kinds == ()
        assert decision.reasons == ("not public, and no store is private: it gets no bundles",)
    assert decide([], State(), PRIVATE, stores=none).action is Action.KEEP


def test_where_every_store_is_private_what_is_public_gets_no_bundles() -> None:
    decision = decide([], state(), stores=Stores({}, others={"closed": CLOSED}))
    assert decision.action is Action.KEEP
    assert decision.reasons == ("public, and every store is private: it gets no bundles",)


def test_who_turns_private_gets_bundles_in_the_private_store_alone() -> None:
    stores = Stores({"closed": CLOSED}, others={"main": PUBLIC})
    decision = decide([entry("stream")], state(tip=1000), PRIVATE, stores=stores)
    assert decision.action is Action.GENERATE
    assert decision.build == ("stream",)
    assert decision.keep == {}
    assert decision.reasons == (
        "not public any more: its bundles in main are withdrawn",
        "stream: no bundle is published",
    )
    assert misplaced([entry("stream"), entry("stream", at=CLOSED)], stores) == {
        entry("stream").url: "main is no store for it"
    }


def test_who_turns_public_gets_bundles_in_the_public_store_alone() -> None:
    stores = Stores({"main": PUBLIC}, others={"closed": CLOSED})
    public = replace(PRIVATE, read="public")
    moved = [entry("stream", at=CLOSED), entry("stream")]
    decision = decide(moved, state(tip=1000), public, stores=stores)
    # Half done: the bundle is there already, and the entries of the private store go.
    assert decision.action is Action.REPUBLISH
    assert decision.keep == {"stream": {"main": entry("stream")}}
    assert decision.reasons[0] == "public now: its bundles in closed are withdrawn"


def test_no_kinds_in_the_registry_means_no_bundles() -> None:
    none = Repository("team/project", "", "public", (), True, ())
    assert decide([entry("stream")], state(tip=1000), none).action is Action.WITHDRAW


def test_a_repository_that_is_not_there_keeps_what_it_has() -> None:
    decision = decide([entry("stream")], State(exists=False))
    assert decision.action is Action.SKIP
    assert "registry apply" in decision.reasons[0]


def test_a_store_that_lacks_a_bundle_gets_a_copy() -> None:
    published = [entry("stream"), entry("stream", at=US), entry("zstd"), entry("gzip")]
    decision = decide(published, state(tip=1000), stores=TWO)
    assert decision.action is Action.COPY
    assert decision.copy == {"zstd": ("us",), "gzip": ("us",)}
    assert decision.reasons == ("zstd: not in us", "gzip: not in us")
    assert decision.build == ()


def test_what_is_generated_anew_is_not_copied() -> None:
    published = [entry(kind, tip=OLD_TIP) for kind in ("stream", "zstd", "gzip")]
    decision = decide(published, state(1000, old=500), stores=TWO)
    assert decision.build == ("stream", "zstd", "gzip")
    assert decision.copy == {}


def test_no_copy_is_planned_for_a_store_that_is_down() -> None:
    published = [entry(kind) for kind in ("stream", "zstd", "gzip")]
    stores = Stores(TWO.urls, {"us": "connection refused"})
    decision = decide(published, state(tip=1000), stores=stores)
    assert decision.action is Action.KEEP
    assert decision.reasons == ("current", "not in us, which is down: connection refused")


def test_a_bundle_that_one_store_lost_is_copied_back_and_says_what_happened() -> None:
    kinds = ("stream", "zstd", "gzip")
    published = [entry(kind, at=at) for kind in kinds for at in (PUBLIC, US)]
    decision = decide(
        published, state(tip=1000), stores=TWO, dead={published[3].url: "the answer is 404"}
    )
    assert decision.copy == {"zstd": ("us",)}
    assert decision.reasons == ("zstd: not in us (the answer is 404)",)


def test_stores_that_are_behind_get_the_newest_bundle() -> None:
    old = entry("zstd", tip=OLD_TIP, at=US)
    old = Entry(old.url, old.bundlespec, "9" * 64, old.size, 90, old.made)
    repository = replace(PROJECT, bundles=("zstd",))
    decision = decide([entry("zstd"), old], state(1000, old=999, tip=1000), repository, stores=TWO)
    assert decision.copy == {"zstd": ("us",)}
    assert decision.keep == {"zstd": {"eu": entry("zstd")}}


def test_kinds_come_before_stores_in_a_manifest() -> None:
    entries = {kind: {"eu": entry(kind), "us": entry(kind, at=US)} for kind in ("stream", "gzip")}
    assert order(("stream", "zstd", "gzip"), ["us", "eu"], entries) == [
        entry("stream", at=US),
        entry("stream"),
        entry("gzip", at=US),
        entry("gzip"),
    ]


def test_a_busy_repository_gets_new_bundles_earlier() -> None:
    published = [entry(kind, tip=OLD_TIP, days=0.3) for kind in ("stream", "zstd", "gzip")]
    busy = Demand(clones=3, pulls=200, seconds=61)
    decision = decide(published, state(1000, old=995), demand=busy)
    assert decision.action is Action.GENERATE
    assert decision.reasons[0] == (
        "stream: 5 changesets are newer than the bundle, and 3 clones and 200 pulls took 61 s of"
        " the server in the last day (limit 60 s)"
    )
    for calm in (None, Demand(clones=3, pulls=200, seconds=60)):
        assert decide(published, state(1000, old=995), demand=calm).action is Action.KEEP


def test_demand_alone_replaces_nothing_that_is_fresh_or_complete() -> None:
    busy = Demand(clones=3, pulls=200, seconds=10_000)
    fresh = [entry(kind, tip=OLD_TIP, days=0.2) for kind in ("stream", "zstd", "gzip")]
    assert decide(fresh, state(1000, old=995), demand=busy).action is Action.KEEP
    complete = [entry(kind, days=400) for kind in ("stream", "zstd", "gzip")]
    assert decide(complete, state(tip=1000), demand=busy).action is Action.KEEP


def test_a_bundle_of_the_future_is_old() -> None:
    """The clock ran ahead when it was made: its days would not end for as long."""
    published = [entry(kind, tip=OLD_TIP, days=-30) for kind in ("stream", "zstd", "gzip")]
    decision = decide(published, state(1000, old=999))
    assert decision.build == ("stream", "zstd", "gzip")
    # A run that began before it was made.
    later = replace(state(1000, old=999), clock=NOW + timedelta(days=30))
    assert decide(published, later).action is Action.KEEP
