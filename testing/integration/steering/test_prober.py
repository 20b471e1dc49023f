"""The prober against endpoints that fail in every way."""

from __future__ import annotations

import os
import shutil
import socket
import time
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.decide.manifest import Entry, Manifests
from hgfleet.steering import connection, health, manifest_watcher, probe, selection
from hgfleet.steering.manifest_watcher import ManifestWatcher
from hgfleet.steering.order import Endpoint
from hgfleet.steering.prober import Prober
from testing.integration.support.store import NOW, Store, write_keys

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hgfleet.steering.settings import Config


CONTENT = b"x" * 100_000


@pytest.fixture
def prober(config: Config) -> Prober:
    return Prober(config.endpoints[0], config)


def probe_round(prober: Prober, entries: list[Entry]) -> None:
    """Probe once, while these entries are published."""
    known = [state.entry for state in prober.objects]
    prober.change(
        [entry for entry in entries if entry not in known],
        [entry for entry in known if entry not in entries],
    )
    prober.round()


def test_an_endpoint_that_answers_is_up_after_one_round(store: Store, prober: Prober) -> None:
    probe_round(prober, [store.put("a", CONTENT), store.put("b", CONTENT)])
    assert prober.condition.is_up
    assert prober.objects.dead == {}
    assert {"HEAD a", "HEAD b"} <= set(store.asked())
    assert len(store.asked("GET")) == 1
    assert prober.objects.read == set()
    probe_round(prober, [store.put("a", CONTENT), store.put("b", CONTENT)])
    assert prober.objects.read == {f"{store.url}/a"}


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("403", "the answer is 403"),
        ("500", "the answer is 500"),
        ("slow", "after 1 bytes: no answer in time"),
    ],
)
def test_a_fault_takes_the_endpoint_out_at_once_and_good_rounds_bring_it_back(
    store: Store, prober: Prober, fault: str, problem: str
) -> None:
    entries = [store.put("a", CONTENT)]
    probe_round(prober, entries)
    store.fault = fault
    probe_round(prober, entries)
    assert not prober.condition.is_up
    assert problem in prober.condition.problem
    store.fault = ""
    for _ in range(health.GOOD_IN_A_ROW):
        assert not prober.condition.is_up
        probe_round(prober, entries)
    assert prober.condition.is_up


def test_the_name_of_an_endpoint_is_looked_up_again(
    store: Store, prober: Prober, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old address may still answer, with what the store had when it moved."""
    looked_up: list[object] = []
    look_up = socket.getaddrinfo

    def count(*words: object, **named: object) -> object:
        looked_up.append(words)
        return look_up(*words, **named)  # type: ignore[arg-type]

    monkeypatch.setattr(socket, "getaddrinfo", count)
    rounds(prober, [store.put("a", CONTENT)], 3)
    assert len(looked_up) == 1
    monkeypatch.setattr(connection, "LOOK_UP_SECONDS", 0.0)
    rounds(prober, [store.put("a", CONTENT)], 3)
    assert len(looked_up) >= 4


def test_an_endpoint_that_is_gone_is_down(store: Store, prober: Prober) -> None:
    entries = [store.put("a", CONTENT)]
    probe_round(prober, entries)
    store.stop()
    probe_round(prober, entries)
    assert not prober.condition.is_up


def test_an_object_that_is_gone_is_dead_and_its_endpoint_is_not(
    store: Store, prober: Prober
) -> None:
    entries = [store.put("a", CONTENT), store.put("b", CONTENT)]
    probe_round(prober, entries)
    del store.content["a"]
    for _ in range(selection.ROUNDS):
        probe_round(prober, entries)
    assert prober.condition.is_up
    assert prober.objects.dead == {entries[0].url: "the answer is 404"}
    # It is there again, or named no longer: either way nothing is dead.
    store.content["a"] = CONTENT
    for _ in range(selection.ROUNDS):
        probe_round(prober, entries)
    assert prober.objects.dead == {}


def test_an_object_gets_one_request_for_its_headers_between_two_reads(
    store: Store, prober: Prober
) -> None:
    """A whole read is an answer, so the next request for the headers is due `ROUNDS` after it."""
    prober.config = replace(prober.config, interval_seconds=60.0)
    entries = [store.put(str(number), b"x") for number in range(20)]
    rounds(prober, entries, 2 * selection.ROUNDS)
    store.requests.clear()
    passes = 4
    rounds(prober, entries, passes * selection.PASS)
    reads, headers = len(store.asked("GET")), len(store.asked("HEAD"))
    assert 1 <= reads / passes <= 1.5 * len(entries)
    assert 1 <= headers <= reads
    assert {key for _, key, _ in store.requests} == {str(number) for number in range(20)}


def test_a_round_has_a_bounded_number_of_requests(store: Store, prober: Prober) -> None:
    prober.config = replace(prober.config, interval_seconds=60.0)
    entries = [store.put(str(number), b"x") for number in range(500)]
    rounds(prober, entries, 8)
    for _ in range(selection.ROUNDS):
        store.requests.clear()
        prober.round()
        assert 1 <= len(store.requests) <= selection.REQUESTS


def test_an_object_that_was_cut_is_dead_when_it_is_read(store: Store, prober: Prober) -> None:
    """The read comes first, so its answer has to tell; the endpoint has nothing wrong."""
    prober.config = replace(prober.config, interval_seconds=60.0)
    entries = [store.put(name, CONTENT) for name in "ab"]
    rounds(prober, entries)
    store.content["a"] = CONTENT[:-1]
    for _ in range(selection.PASS):
        probe_round(prober, entries)
        assert prober.condition.is_up
    assert prober.objects.dead == {entries[0].url: "it has 99,999 bytes instead of 100,000"}


def test_an_object_of_another_length_is_dead(store: Store, prober: Prober) -> None:
    entry = store.put("a", CONTENT)
    store.content["a"] = CONTENT[:-1]
    probe_round(prober, [entry])
    assert prober.objects.dead == {entry.url: "it has 99,999 bytes instead of 100,000"}


@pytest.mark.parametrize("methods", [("HEAD", "GET"), ("GET",)])
@pytest.mark.parametrize(("count", "gone"), [(2, 1), (3, 2), (9, 6)])
def test_a_403_is_the_objects_as_long_as_another_one_answers(
    store: Store, prober: Prober, count: int, gone: int, methods: tuple[str, ...]
) -> None:
    """As on AWS: a client that may not list objects gets 403 for a missing object.

    The object may also go between the requests for its headers and for its content.
    """
    # No round ends early on a busy machine, with the objects asked that are gone.
    prober.config = replace(prober.config, interval_seconds=60.0)
    entries = [store.put(str(number), CONTENT) for number in range(count)]
    rounds(prober, entries)
    store.refused = {f"{m} {number}" for m in methods for number in range(gone)}
    seen: dict[str, str] = {}
    for _ in range(2 * count):
        probe_round(prober, entries)
        assert prober.condition.is_up, prober.condition
        seen |= prober.objects.dead
    assert seen == {entry.url: "the answer is 403" for entry in entries[:gone]}
    store.refused = set()
    rounds(prober, entries, 2 * selection.ROUNDS)
    assert prober.objects.dead == {}


@pytest.mark.parametrize("methods", [("HEAD", "GET"), ("GET",)])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_403_of_everything_is_the_endpoints_and_no_objects(
    store: Store, prober: Prober, count: int, methods: tuple[str, ...]
) -> None:
    entries = [store.put(str(number), CONTENT) for number in range(count)]
    everything = {f"{m} {number}" for m in methods for number in range(count)}
    gone = {f"{m} 0" for m in ("HEAD", "GET")}
    store.refused = gone
    rounds(prober, entries)
    store.refused = everything | gone
    store.requests.clear()
    for _ in range(4):
        probe_round(prober, entries)
        assert prober.condition.problem == "the answer is 403, and no other object answers"
        # The object that was gone before is still dead, the others have nothing wrong.
        assert prober.objects.dead == {entries[0].url: "the answer is 403"}
    # A store that is closed is not asked for everything again and again.
    assert len(store.requests) <= 4 * (count / selection.ROUNDS + 2 * selection.OTHERS + 2) + count
    store.refused = gone
    for _ in range(health.GOOD_IN_A_ROW):
        assert not prober.condition.is_up
        probe_round(prober, entries)
    assert prober.condition.is_up
    assert prober.objects.dead == {entries[0].url: "the answer is 403"}


@pytest.mark.parametrize("left", [0, 20, 39])
def test_an_endpoint_that_lost_all_but_one_object_is_soon_up_for_that_one(
    store: Store, prober: Prober, left: int
) -> None:
    """More are gone than a round asks for: it is down until the last object has had its turn."""
    prober.config = replace(prober.config, interval_seconds=5.0)
    entries = [store.put(str(number), CONTENT) for number in range(40)]
    rounds(prober, entries)
    store.refused = {f"{m} {n}" for m in ("HEAD", "GET") for n in range(40) if n != left}
    rounds(prober, entries, 2 * selection.ROUNDS + health.GOOD_IN_A_ROW)
    assert prober.condition.is_up
    assert set(prober.objects.dead) == {entry.url for entry in entries if entry != entries[left]}


@pytest.mark.parametrize("error", ["500", "503", "silent", "slow", "page"])
def test_an_object_that_is_not_served_is_dead_and_its_endpoint_is_not(
    store: Store, prober: Prober, error: str
) -> None:
    """Such as an object with a bad sector: its headers are right for as long as it lies there."""
    entries = [store.put(name, CONTENT) for name in "abc"]
    rounds(prober, entries)
    store.broken = {"GET b": error}
    for _ in range(selection.PASS):
        probe_round(prober, entries)
        if prober.objects.dead:
            break
    for _ in range(3 * selection.ROUNDS):
        probe_round(prober, entries)
        assert prober.condition.is_up, prober.condition
        assert list(prober.objects.dead) == [entries[1].url]
    store.broken = {}
    rounds(prober, entries, selection.ROUNDS)
    assert prober.objects.dead == {}


@pytest.mark.parametrize("error", ["500", "silent", "slow"])
def test_an_error_with_the_content_of_every_object_is_the_endpoints(
    store: Store, prober: Prober, error: str
) -> None:
    entries = [store.put(name, CONTENT) for name in "abc"]
    rounds(prober, entries)
    store.broken = {f"GET {name}": error for name in "abc"}
    for _ in range(2 * selection.ROUNDS):
        probe_round(prober, entries)
        assert not prober.condition.is_up
        assert prober.objects.dead == {}


def test_a_slow_endpoint_is_not_acquitted_by_a_small_object(store: Store, prober: Prober) -> None:
    """A byte a second is enough for an object of a single byte."""
    entries = [store.put("a", CONTENT), store.put("b", b"x")]
    rounds(prober, entries)
    store.fault = "slow"
    rounds(prober, entries, 3)
    assert not prober.condition.is_up
    assert prober.objects.dead == {}


def test_a_copy_that_was_not_served_is_requested_past_the_cache(
    store: Store, config: Config
) -> None:
    """The cache holds a page that its origin sent with status 200."""
    edge = Endpoint("edge", store.url, is_cdn=True, origin="origin")
    entries = [store.put(name, CONTENT) for name in "ab"]
    prober = Prober(edge, config)
    store.broken = {f"{method} {name}": "page" for name in "ab" for method in ("GET", "HEAD")}
    probe_round(prober, entries)
    assert prober.objects.read == set()
    rounds(prober, entries, 4 * selection.ROUNDS)
    assert prober.condition.is_up
    assert prober.objects.read == {entry.url for entry in entries}


def rounds(prober: Prober, entries: list[Entry], count: int = 4) -> None:
    """Enough for a pass through two objects, a piece of 64 KiB a round."""
    for _ in range(count):
        probe_round(prober, entries)


def test_a_corrupt_object_is_found_by_reading_and_so_is_its_repair(
    store: Store, prober: Prober
) -> None:
    """Length, entity tag and time are as they were: a disk or a cache did it."""
    entries = [store.put("a", CONTENT), store.put("b", CONTENT)]
    rounds(prober, entries)
    assert prober.objects.read == {entry.url for entry in entries}
    store.content["b"] = CONTENT[:-1] + b"y"
    rounds(prober, entries)
    assert prober.condition.is_up
    assert prober.objects.dead == {entries[1].url: "its content is not what was published"}
    store.content["b"] = CONTENT
    rounds(prober, entries)
    assert prober.objects.dead == {}


def test_an_object_that_was_replaced_is_dead_until_it_has_been_read(
    store: Store, prober: Prober
) -> None:
    entries = [store.put("a", CONTENT), store.put("b", CONTENT)]
    rounds(prober, entries)
    store.etag, store.content["b"] = '"2"', b"y" * len(CONTENT)
    rounds(prober, entries)
    assert prober.objects.dead == {entries[1].url: "its content is not what was published"}
    assert prober.objects.read == {entries[0].url}
    store.fault, store.etag = "slow", '"3"'
    rounds(prober, entries)
    assert set(prober.objects.dead.values()) == {"it was replaced, and has not been read since"}
    # The right bytes are there again, or the bundle jobs verified the object: either will do.
    store.fault, store.content["b"] = "", CONTENT
    rounds(prober, entries)
    assert prober.objects.dead == {}


def test_an_object_that_is_replaced_while_it_is_read_is_read_from_the_beginning(
    store: Store, prober: Prober
) -> None:
    entry = store.put("a", CONTENT)
    probe_round(prober, [entry])
    store.etag = '"2"'
    rounds(prober, [entry], 3)
    assert prober.objects.read == {entry.url}


def test_a_copy_counts_from_when_it_has_been_read(store: Store, config: Config) -> None:
    origin = Endpoint("origin", "https://s3.example/bundles")
    edge = Endpoint("edge", store.url, is_cdn=True, origin="origin")
    entry = replace(store.put("a", CONTENT), url=f"{origin.url}/a")
    at_origin, at_edge = probe.share([entry], [origin, edge])
    assert at_origin == [entry]
    assert at_edge == [replace(entry, url=f"{store.url}/a")]
    prober = Prober(edge, config)
    store.content["a"] = CONTENT[:-1] + b"y"
    probe_round(prober, at_edge)
    assert prober.condition.is_up
    assert prober.objects.read == set()
    assert prober.objects.dead == {at_edge[0].url: "its content is not what was published"}
    assert store.refreshed == 0
    store.content["a"] = CONTENT
    rounds(prober, at_edge)
    assert prober.objects.read == {at_edge[0].url}
    # A cache is asked to fetch the wrong object again, and nothing else.
    assert store.refreshed == 2


def test_a_slow_endpoint_delays_no_round_and_has_all_its_objects_asked_for(
    store: Store, prober: Prober
) -> None:
    """A round of all endpoints lasts as long as the slowest, and health must be current."""
    store.delay = 0.05
    entries = [store.put(str(number), CONTENT) for number in range(12)]
    probe_round(prober, entries)
    first = set(store.asked("HEAD"))
    assert 0 < len(first) < len(entries)
    for _ in range(2 * len(entries)):
        probe_round(prober, entries)
    assert prober.condition.is_up
    assert set(store.asked("HEAD")) > first
    assert len(set(store.asked("HEAD"))) == len(entries)


def test_without_objects_any_answer_will_do(store: Store, prober: Prober) -> None:
    probe_round(prober, [])
    assert prober.condition.is_up
    store.fault = "503"
    probe_round(prober, [])
    assert not prober.condition.is_up


def test_manifests_that_change_or_go_are_noticed(config: Config, store: Store) -> None:
    manifests, watcher = Manifests(config.manifests), ManifestWatcher(config.manifests)
    assert watcher.changes() == ([], [])
    first, second = store.put("a", CONTENT), store.put("b", CONTENT)
    manifests.publish("team/project", [first], NOW)
    assert watcher.changes() == ([first], [])
    assert watcher.changes() == ([], [])
    # An entry that stays is no change, also where another repository names it from now on.
    manifests.publish("team/project", [second, first], NOW)
    assert watcher.changes() == ([second], [])
    manifests.publish("team/other", [first], NOW)
    # The replaced entry is kept for the pruning of objects, and is not published.
    manifests.publish("team/project", [second], NOW)
    assert watcher.changes() == ([], [])
    assert {entry.url for entry in watcher.entries()} == {first.url, second.url}
    manifests.path("team/project").unlink()
    assert watcher.changes() == ([], [second])
    shutil.rmtree(config.manifests)
    assert watcher.changes() == ([], [first])


def test_manifests_are_read_only_in_folders_that_changed(
    config: Config, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifests, watcher = Manifests(config.manifests), ManifestWatcher(config.manifests)
    entries = [store.put(name, CONTENT) for name in "abc"]
    for team, entry in zip("xyz", entries, strict=True):
        manifests.publish(f"{team}/project", [entry], NOW)
        os.utime(config.manifests / team, (1_700_000_000, 1_700_000_000))
    os.utime(config.manifests, (1_700_000_000, 1_700_000_000))
    assert len(watcher.changes().added) == len(entries)
    scanned: list[str] = []
    scan = os.scandir

    def count(path: str) -> object:
        scanned.append(path)
        return scan(path)

    monkeypatch.setattr(os, "scandir", count)
    looks = 3
    for _ in range(looks):
        assert watcher.changes() == ([], [])
    assert len(scanned) < looks
    manifests.publish("y/project", entries[:1], NOW)
    assert watcher.changes() == ([], [entries[1]])
    # A manifest that was edited in place changes no folder; its turn comes.
    path = manifests.path("z/project")
    path.write_text(path.read_text().replace("changesets=3", "changesets=44"))
    os.utime(config.manifests / "z", (1_700_000_000, 1_700_000_000))
    changes = [watcher.changes() for _ in range(manifest_watcher.FULL)]
    assert [replace(entries[2], changesets=44)] in [change.added for change in changes]


def test_a_run_writes_its_state_and_reports_changes(config: Config, store: Store) -> None:
    Manifests(config.manifests).publish("project", [store.put("a", CONTENT)], NOW)
    told: list[str] = []
    rounds = iter(["", "500", "500"])

    def is_over(_seconds: float) -> bool:
        store.fault = next(rounds, "stop")
        return store.fault == "stop"

    probe.run(config, lambda event, **_: told.append(event), is_over)
    state = health.parse(config.health.read_text())
    assert state is not None
    assert state.is_current(time.time())
    assert state.down(["one"]) == {"one"}
    assert told == ["endpoint-up", "endpoint-down"]


@pytest.fixture
def closed() -> Iterator[Store]:
    made = Store("closed", private=True)
    yield made
    made.stop()


def test_objects_of_a_private_store_are_asked_for_with_a_signature(
    config: Config, closed: Store
) -> None:
    entries = [closed.put(name, CONTENT) for name in ("a", "b")]
    assert closed.reader is not None
    config = replace(config, signing=config.state / "signing.toml")
    prober = Prober(Endpoint("closed", closed.url), config)

    # Without a key no client is sent there; the extension could not sign either.
    probe_round(prober, entries)
    assert "cannot read the keys" in prober.condition.problem
    assert closed.requests == []

    write_keys(config.signing, closed.reader)
    for _ in range(health.GOOD_IN_A_ROW):
        probe_round(prober, entries)
    assert prober.condition.is_up
    assert prober.objects.dead == {}
    assert {status for _, _, status in closed.requests} == {200}

    # A key that may not list gets 403 for a missing object: that is no reason to leave the others.
    closed.refused = {"HEAD a", "GET a"}
    for _ in range(selection.ROUNDS):
        probe_round(prober, entries)
    assert prober.condition.is_up
    assert list(prober.objects.dead) == [entries[0].url]
    write_keys(config.signing, replace(closed.reader, secret_key="other"))
    probe_round(prober, entries)
    assert "the answer is 403" in prober.condition.problem
