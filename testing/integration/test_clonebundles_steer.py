"""Steering in a real hg, and the prober against endpoints that fail in every way."""

from __future__ import annotations

import hashlib
import http.server
import json
import os
import subprocess
import sys
import threading
import time
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.manifest import Entry, Manifests
from hgfleet.steering import health, probe, provider_networks, selection
from hgfleet.steering.config import Config, Provider
from hgfleet.steering.health import Condition, Health
from hgfleet.steering.manifest_watcher import ManifestWatcher
from hgfleet.steering.order import Endpoint
from hgfleet.steering.prober import Prober
from hgfleet.steering.selection import ObjectState
from testing.integration.closedstore import ClosedStore, write_settings

if TYPE_CHECKING:
    from collections.abc import Iterator

HG = Path(sys.executable).with_name("hg")
ROOT = Path(__file__).resolve().parents[2]
NOW = datetime(2026, 11, 20, 12, tzinfo=UTC)
CONTENT = b"x" * 100_000
SHA256 = hashlib.sha256(CONTENT).hexdigest()


@dataclass
class Server:
    """An endpoint with a fault to choose: a status, "slow", or none."""

    content: dict[str, bytes] = field(default_factory=dict)
    fault: str = ""
    refused: set[str] = field(default_factory=set)
    """Methods with paths that get 403, as in `asked`."""
    etag: str = '"1"'
    asked: list[str] = field(default_factory=list)
    refreshed: int = 0
    delay: float = 0
    resume: threading.Event = field(default_factory=threading.Event)

    def __post_init__(self) -> None:
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                if server.resume.is_set():  # stopped: connections that were kept end as well
                    self.close_connection = True
                    return
                server.asked.append(f"{self.command} {self.path}")
                time.sleep(server.delay)
                server.refreshed += self.headers["Cache-Control"] == "no-cache"
                body = server.content.get(self.path.removeprefix("/bundles/"), b"")
                status = 206 if "Range" in self.headers else 200
                if server.fault.isdigit():
                    status, body = int(server.fault), b""
                elif server.asked[-1] in server.refused:
                    status, body = 403, b""
                elif not body:
                    status = 404
                if "Range" in self.headers:
                    first, last = self.headers["Range"].removeprefix("bytes=").split("-")
                    body = body[int(first) : int(last) + 1]
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.send_header("ETag", server.etag)
                self.end_headers()
                if self.command == "GET":
                    if server.fault in ("slow", "no pieces"):
                        self.wfile.write(body[:1])
                        self.wfile.flush()
                        server.resume.wait(20)
                    else:
                        self.wfile.write(body)

            do_HEAD = do_GET  # noqa: N815

            def log_message(self, *_arguments: object) -> None:
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_port}/bundles"
        threading.Thread(target=self.http.serve_forever, daemon=True).start()

    def entry(self, name: str, spec: str = "zstd-v2") -> Entry:
        self.content[name] = CONTENT
        return Entry(f"{self.url}/{name}", spec, SHA256, len(CONTENT), 3, NOW)

    def stop(self) -> None:
        self.resume.set()
        self.http.shutdown()
        self.http.server_close()


@pytest.fixture
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.stop()


@pytest.fixture
def config(tmp_path: Path, server: Server) -> Config:
    return Config(
        endpoints=(Endpoint("one", server.url),),
        manifests=tmp_path / "manifests",
        health=tmp_path / "health.json",
        state=tmp_path,
        ca=Path(os.environ.get("SSL_CERT_FILE", "/etc/ssl/certs/ca-certificates.crt")),
        interval_seconds=0.1,
        timeout_seconds=0.5,
    )


@pytest.fixture
def prober(config: Config) -> Prober:
    return Prober(config.endpoints[0], config)


# --- the prober -----------------------------------------------------------------------------


def test_an_endpoint_that_answers_is_up_after_one_round(server: Server, prober: Prober) -> None:
    prober.round([server.entry("a"), server.entry("b")])
    assert prober.condition.is_up
    assert prober.dead == {}
    assert {"HEAD /bundles/a", "HEAD /bundles/b"} <= set(server.asked)
    assert sum(line.startswith("GET") for line in server.asked) == 1
    assert prober.read == set()
    prober.round([server.entry("a"), server.entry("b")])
    assert prober.read == {f"{server.url}/a"}


@pytest.mark.parametrize(
    ("fault", "problem"),
    [
        ("403", "the answer is 403"),
        ("500", "the answer is 500"),
        ("slow", "after 1 bytes: no answer in time"),
    ],
)
def test_a_fault_takes_the_endpoint_out_at_once_and_it_comes_back(
    server: Server, prober: Prober, fault: str, problem: str
) -> None:
    entries = [server.entry("a")]
    prober.round(entries)
    server.fault = fault
    prober.round(entries)
    assert not prober.condition.is_up
    assert problem in prober.condition.problem
    server.fault = ""
    for _ in range(health.GOOD_IN_A_ROW):
        assert not prober.condition.is_up
        prober.round(entries)
    assert prober.condition.is_up


def test_an_endpoint_that_is_gone_is_down(server: Server, prober: Prober) -> None:
    entries = [server.entry("a")]
    prober.round(entries)
    server.stop()
    prober.round(entries)
    assert not prober.condition.is_up


def test_an_object_that_is_gone_is_dead_and_its_endpoint_is_not(
    server: Server, prober: Prober
) -> None:
    entries = [server.entry("a"), server.entry("b")]
    prober.round(entries)
    del server.content["a"]
    for _ in range(selection.ROUNDS):
        prober.round(entries)
    assert prober.condition.is_up
    assert prober.dead == {entries[0].url: "the answer is 404"}
    # It is there again, or named no longer: either way nothing is dead.
    server.content["a"] = CONTENT
    for _ in range(selection.ROUNDS):
        prober.round(entries)
    assert prober.dead == {}


def test_an_object_of_another_length_is_dead(server: Server, prober: Prober) -> None:
    entry = server.entry("a")
    server.content["a"] = CONTENT[:-1]
    prober.round([entry])
    assert prober.dead == {entry.url: "it has 99,999 bytes instead of 100,000"}


@pytest.mark.parametrize("methods", [("HEAD", "GET"), ("GET",)])
@pytest.mark.parametrize(("count", "gone"), [(2, 1), (3, 2), (9, 6)])
def test_a_403_is_the_objects_as_long_as_another_one_answers(
    server: Server, prober: Prober, count: int, gone: int, methods: tuple[str, ...]
) -> None:
    """As on AWS: to whoever may not list, that is all that is said of what is gone.

    Also of what is gone since its headers were asked for.
    """
    entries = [server.entry(str(number)) for number in range(count)]
    rounds(prober, entries)
    server.refused = {f"{m} /bundles/{number}" for m in methods for number in range(gone)}
    seen: dict[str, str] = {}
    for _ in range(2 * count):
        prober.round(entries)
        assert prober.condition.is_up, prober.condition
        seen |= prober.dead
    assert seen == {entry.url: "the answer is 403" for entry in entries[:gone]}
    server.refused = set()
    rounds(prober, entries)
    assert prober.dead == {}


@pytest.mark.parametrize("methods", [("HEAD", "GET"), ("GET",)])
@pytest.mark.parametrize("count", [2, 3, 40])
def test_a_403_of_everything_is_the_endpoints_and_no_objects(
    server: Server, prober: Prober, count: int, methods: tuple[str, ...]
) -> None:
    entries = [server.entry(str(number)) for number in range(count)]
    everything = {f"{m} /bundles/{number}" for m in methods for number in range(count)}
    gone = {f"{m} /bundles/0" for m in ("HEAD", "GET")}
    server.refused = gone
    rounds(prober, entries)
    server.refused = everything | gone
    server.asked = []
    for _ in range(4):
        prober.round(entries)
        assert prober.condition.problem == "the answer is 403, and no other object answers"
        # One that was gone before is still, the others have nothing wrong.
        assert prober.dead == {entries[0].url: "the answer is 403"}
    # A store that is closed is not asked for everything again and again.
    assert len(server.asked) <= 4 * (count / selection.ROUNDS + 2 * selection.OTHERS + 2)
    server.refused = gone
    for _ in range(health.GOOD_IN_A_ROW):
        assert not prober.condition.is_up
        prober.round(entries)
    assert prober.condition.is_up
    assert prober.dead == {entries[0].url: "the answer is 403"}


@pytest.mark.parametrize("left", [0, 20, 39])
def test_an_endpoint_that_lost_all_but_one_object_is_soon_up_for_that_one(
    server: Server, prober: Prober, left: int
) -> None:
    """More are gone than a round asks for: then it is down until the one has had its turn."""
    prober.config = replace(prober.config, interval_seconds=5.0)
    entries = [server.entry(str(number)) for number in range(40)]
    rounds(prober, entries)
    server.refused = {f"HEAD /bundles/{n}" for n in range(40) if n != left}
    rounds(prober, entries, selection.ROUNDS + health.GOOD_IN_A_ROW)
    assert prober.condition.is_up
    assert set(prober.dead) == {one.url for one in entries if one != entries[left]}


def rounds(prober: Prober, entries: list[Entry], count: int = 4) -> None:
    """Enough for a pass through two objects, a piece of 64 KiB a round."""
    for _ in range(count):
        prober.round(entries)


def test_a_bit_that_turned_is_found_by_reading_and_so_is_its_mending(
    server: Server, prober: Prober
) -> None:
    """Length, entity tag and time are what they were: a disk or a cache did it."""
    entries = [server.entry("a"), server.entry("b")]
    rounds(prober, entries)
    assert prober.read == {one.url for one in entries}
    server.content["b"] = CONTENT[:-1] + b"y"
    rounds(prober, entries)
    assert prober.condition.is_up
    assert prober.dead == {entries[1].url: "its content is not what was published"}
    server.content["b"] = CONTENT
    rounds(prober, entries)
    assert prober.dead == {}


def test_an_object_that_was_replaced_is_dead_until_it_has_been_read(
    server: Server, prober: Prober
) -> None:
    entries = [server.entry("a"), server.entry("b")]
    rounds(prober, entries)
    server.etag, server.content["b"] = '"2"', b"y" * len(CONTENT)
    rounds(prober, entries)
    assert prober.dead == {entries[1].url: "its content is not what was published"}
    assert prober.read == {entries[0].url}
    server.fault, server.etag = "no pieces", '"3"'
    rounds(prober, entries)
    assert set(prober.dead.values()) == {"it was replaced, and has not been read since"}
    # The right bytes are there again, or the bundle jobs verified what is there: either will do.
    server.fault, server.content["b"] = "", CONTENT
    rounds(prober, entries)
    assert prober.dead == {}


def test_an_object_that_is_replaced_while_it_is_read_is_read_from_the_beginning(
    server: Server, prober: Prober
) -> None:
    entry = server.entry("a")
    prober.round([entry])
    server.etag = '"2"'
    rounds(prober, [entry], 2)
    assert prober.read == {entry.url}


def test_a_copy_counts_from_when_it_has_been_read(server: Server, config: Config) -> None:
    origin = Endpoint("origin", "https://s3.example/bundles")
    edge = Endpoint("edge", server.url, is_cdn=True, origin="origin")
    entry = replace(server.entry("a"), url=f"{origin.url}/a")
    at_origin, at_edge = probe.share([entry], [origin, edge])
    assert at_origin == [entry]
    assert at_edge == [replace(entry, url=f"{server.url}/a")]
    prober = Prober(edge, config)
    server.content["a"] = CONTENT[:-1] + b"y"
    prober.round(at_edge)
    assert prober.condition.is_up
    assert prober.read == set()
    assert prober.dead == {at_edge[0].url: "its content is not what was published"}
    assert server.refreshed == 0
    server.content["a"] = CONTENT
    rounds(prober, at_edge)
    assert prober.read == {at_edge[0].url}
    # A cache is asked to fetch again what was wrong, and nothing else.
    assert server.refreshed == 2


def test_an_endpoint_that_is_far_holds_up_nobody_and_has_all_its_objects_asked_for(
    server: Server, prober: Prober
) -> None:
    """A round of all endpoints lasts as long as the slowest one's, and health must be current."""
    server.delay = 0.05
    entries = [server.entry(str(number)) for number in range(12)]
    prober.round(entries)
    first = {line for line in server.asked if line.startswith("HEAD")}
    assert 0 < len(first) < len(entries)
    for _ in range(2 * len(entries)):
        prober.round(entries)
    assert prober.condition.is_up
    assert {line for line in server.asked if line.startswith("HEAD")} > first
    assert len({line for line in server.asked if line.startswith("HEAD")}) == len(entries)


def test_without_objects_any_answer_will_do(server: Server, prober: Prober) -> None:
    prober.round([])
    assert prober.condition.is_up
    server.fault = "503"
    prober.round([])
    assert not prober.condition.is_up


def test_every_object_has_its_turn() -> None:
    entries = [Entry(f"u{n}", "zstd-v2", "", 1, 1, NOW) for n in range(1000)]
    for objects in (entries[:1], entries[:7], entries[:600]):
        known = {entry: ObjectState(asked=1) for entry in objects}
        for turn in range(2, 2 + selection.ROUNDS):
            for entry in selection.batch(known):
                known[entry].asked = turn
        assert min(one.asked for one in known.values()) > 1
    # What has never been asked for does not wait for that.
    known = {entry: ObjectState(asked=entry is not entries[-1]) for entry in entries}
    asked = selection.batch(known)
    assert asked[0] == entries[-1]
    assert len(asked) == 1 + selection.MOST


def test_what_is_urgent_is_read_first_and_then_what_waits_longest() -> None:
    small, large, other, gone, unseen = (
        Entry(name, "zstd-v2", "", size, 1, NOW)
        for name, size in (("s", 1), ("l", 9), ("o", 5), ("g", 5), ("u", 5))
    )
    known = {
        small: ObjectState(asked=1, compared=3),
        large: ObjectState(asked=1, compared=2, is_urgent=True),
        other: ObjectState(asked=1, compared=2),
        gone: ObjectState(asked=1, is_urgent=True, headers="the answer is 404"),
        unseen: ObjectState(is_urgent=True),
    }
    order = []
    while (entry := selection.next_to_read(known, 5)) is not None:
        order.append(entry)
        known[entry].compared, known[entry].is_urgent = 5, False
    assert order == [large, other, small]


def test_manifests_that_change_or_go_are_noticed(config: Config, server: Server) -> None:
    manifests, entries = Manifests(config.manifests), ManifestWatcher(config.manifests).entries
    first, second = server.entry("a"), server.entry("b")
    manifests.publish("team/project", [first], NOW)
    assert entries() == [first]
    manifests.publish("team/project", [second], NOW)
    # The replaced one is kept for the pruning of objects, and is not published.
    assert entries() == [second]
    manifests.path("team/project").unlink()
    assert entries() == []


def test_a_run_writes_its_state_and_tells_what_changes(config: Config, server: Server) -> None:
    Manifests(config.manifests).publish("project", [server.entry("a")], NOW)
    told: list[str] = []
    rounds = iter(["", "500", "500"])

    def is_over(_seconds: float) -> bool:
        server.fault = next(rounds, "stop")
        return server.fault == "stop"

    probe.run(config, lambda event, **_: told.append(event), is_over)
    state = health.parse(config.health.read_text())
    assert state is not None
    assert state.is_current(time.time())
    assert state.down(["one"]) == {"one"}
    assert told == ["endpoint-up", "endpoint-down"]


@pytest.fixture
def closed() -> Iterator[ClosedStore]:
    made = ClosedStore()
    yield made
    made.stop()


def test_objects_of_a_private_store_are_asked_for_with_a_signature(
    config: Config, closed: ClosedStore
) -> None:
    paths = [f"/closed/{name}" for name in ("a", "b")]
    closed.content = dict.fromkeys(paths, CONTENT)
    entries = [
        Entry(f"{closed.root}{path}", "zstd-v2", SHA256, len(CONTENT), 3, NOW, private=True)
        for path in paths
    ]
    config = replace(config, signing=config.state / "signing.toml")
    prober = Prober(Endpoint("closed", closed.store.url), config)

    # Without a key nobody is sent there; the extension could not sign either.
    prober.round(entries)
    assert not prober.condition.is_up
    assert "cannot read the keys" in prober.condition.problem
    assert closed.asked == []

    write_settings(config.signing, closed.store)
    for _ in range(health.GOOD_IN_A_ROW):
        prober.round(entries)
    assert prober.condition.is_up
    assert prober.dead == {}
    assert {status for _, _, status in closed.asked} == {200}

    # A key that may not list gets 403 for what is gone: that is no reason to leave the others.
    closed.gone = {paths[0]}
    for _ in range(selection.ROUNDS):
        prober.round(entries)
    assert prober.condition.is_up
    assert list(prober.dead) == [entries[0].url]
    write_settings(config.signing, replace(closed.store, secret_key="other"))
    prober.round(entries)
    assert not prober.condition.is_up
    assert "the answer is 403" in prober.condition.problem


# --- networks of providers ------------------------------------------------------------------


def test_a_providers_networks_are_fetched_and_kept_until_a_better_file_comes(
    config: Config, server: Server
) -> None:
    provider = Provider("aws", f"{server.url}/ranges", {"us-east-1": "us"})
    config = replace(config, providers=(provider,))
    told: list[str] = []

    def refresh(file: object) -> list[tuple[str, str]]:
        server.content["ranges"] = json.dumps(file).encode()
        provider_networks.refresh(config, lambda event, **_: told.append(event))
        return [(str(net), region) for net, region in provider_networks.load(config)]

    assert provider_networks.load(config) == []
    prefixes = [{"ip_prefix": f"192.0.{n}.0/24", "region": "us-east-1"} for n in range(4)]
    all_of_it = {"prefixes": prefixes, "ipv6_prefixes": []}
    known = refresh(all_of_it)
    assert known == [(f"192.0.{n}.0/24", "us") for n in range(4)]
    for bad in ({"prefixes": prefixes[:1], "ipv6_prefixes": []}, {"error": "sorry"}, "<html>"):
        assert refresh(bad) == known
    server.fault = "500"
    assert refresh(all_of_it) == known
    assert told == ["ranges", *["ranges-refused"] * 4]
    # With other regions, the file before says nothing about these.
    other = replace(provider, regions={"us-east-1": "elsewhere"})
    assert provider_networks.load(replace(config, providers=(other,))) == []


# --- the extension --------------------------------------------------------------------------


@dataclass
class Site:
    """A repository behind `hg serve --stdio`, with a manifest and a state of probes."""

    root: Path
    config: Config

    def __post_init__(self) -> None:
        (self.root / "hgrc").write_text(
            "[extensions]\nclonebundles =\n"
            f"steer = {ROOT / 'hgext/clonebundles_steer.py'}\n"
            f"[hgfleet]\nsteering = {self.root / 'steering.toml'}\n"
        )
        self.hg("init", str(self.root / "repo"))

    def environment(self, **more: str) -> dict[str, str]:
        return {
            **os.environ,
            "HGRCPATH": str(self.root / "hgrc"),
            "HGPLAIN": "1",
            "PYTHONPATH": str(ROOT),
            **more,
        }

    def hg(self, *arguments: str) -> str:
        return subprocess.run(
            [HG, *arguments], env=self.environment(), capture_output=True, text=True, check=True
        ).stdout

    def settle(self, *, networks: str = "") -> None:
        endpoints = ""
        for one in self.config.endpoints:
            endpoints += f'[[endpoint]]\nname = "{one.name}"\nurl = "{one.url}"\n'
            endpoints += f'region = "{one.region}"\n' if one.region else ""
            endpoints += f'cdn = {str(one.is_cdn).lower()}\norigin = "{one.origin}"\n'
        (self.root / "steering.toml").write_text(
            f'health = "{self.config.health}"\nstate = "{self.root}"\n{endpoints}'
            f"[networks]\n{networks}\n"
        )

    def publish(self, *entries: Entry) -> None:
        text = "".join(entry.line() + "\n" for entry in entries)
        (self.root / "repo/.hg/clonebundles.manifest").write_text(text)

    def probed(
        self, *up: str, dead: dict[str, str] | None = None, read: str = "", age: float = 0
    ) -> None:
        conditions = {name: Condition().after(None) for name in up}
        state = Health(time.time() - age, conditions, dead or {}, frozenset([read]))
        probe.write(self.config.health, state)

    def told(self, address: str = "192.0.2.1", command: bytes = b"clonebundles") -> list[str]:
        """Return the URLs that a client is told of, in their order."""
        return [line.split(" ")[0] for line in self.answer(address, command).splitlines() if line]

    def answer(self, address: str, command: bytes = b"clonebundles") -> str:
        """Ask as a client of the wire protocol does; return the manifest."""
        question = command + b"\n" + (b"* 0\n" if command != b"clonebundles" else b"")
        done = subprocess.run(
            [HG, "-R", self.root / "repo", "serve", "--stdio"],
            env=self.environment(SSH_CONNECTION=f"{address} 5000 10.0.0.1 22"),
            input=question,
            capture_output=True,
            check=True,
        )
        length, _, answer = done.stdout.partition(b"\n")
        assert len(answer) == int(length), done
        return answer.decode().strip()


@pytest.fixture
def site(tmp_path: Path, config: Config) -> Site:
    near = Endpoint("eu", "https://eu.example", "eu")
    far = Endpoint("us", "https://us.example", "us")
    return Site(tmp_path, replace(config, endpoints=(near, far)))


def entry(url: str, spec: str) -> Entry:
    return Entry(url, spec, "0" * 64, 10, 3, NOW)


EU_STREAM = entry("https://eu.example/s.hg", "none-v2;stream=v2;requirements%3Drevlogv1")
EU_ZSTD = entry("https://eu.example/z.hg", "zstd-v2")
US_STREAM = entry("https://us.example/s.hg", "none-v2;stream=v2;requirements%3Drevlogv1")
US_ZSTD = entry("https://us.example/z.hg", "zstd-v2")
ALL = (EU_STREAM, US_STREAM, EU_ZSTD, US_ZSTD)
NETWORKS = 'us = ["192.0.2.0/24"]\neu = ["198.51.100.0/24"]'


@pytest.mark.parametrize("command", [b"clonebundles", b"clonebundles_manifest"])
def test_a_client_is_told_of_its_own_region_first(site: Site, command: bytes) -> None:
    site.settle(networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", "us")
    near = [one.url for one in (US_STREAM, US_ZSTD, EU_ZSTD, EU_STREAM)]
    assert site.told("192.0.2.9", command) == near
    assert site.told("198.51.100.9", command)[0] == EU_STREAM.url
    assert site.told("203.0.113.9", command)[0] == EU_ZSTD.url


def test_a_client_is_not_told_of_what_does_not_answer(site: Site) -> None:
    site.settle(networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", dead={EU_STREAM.url: "the answer is 404"})
    assert site.told() == [EU_ZSTD.url]


def test_a_client_is_told_of_copies_that_have_been_read(site: Site) -> None:
    cdn = Endpoint("cdn", "https://cdn.example/edge", is_cdn=True, origin="eu")
    site.config = replace(site.config, endpoints=(*site.config.endpoints, cdn))
    site.settle(networks=NETWORKS)
    site.publish(*ALL)
    site.probed("eu", "us", "cdn", read=f"{cdn.url}/z.hg")
    assert site.told("203.0.113.9")[:2] == [f"{cdn.url}/z.hg", EU_ZSTD.url]
    # It has the digest and everything else of the line that it is a copy of.
    site.probed("cdn", read=f"{cdn.url}/z.hg")
    assert site.told("203.0.113.9") == [f"{cdn.url}/z.hg"]
    assert site.answer("203.0.113.9") == EU_ZSTD.line().replace(EU_ZSTD.url, f"{cdn.url}/z.hg")


@pytest.mark.parametrize("age", [60, -60])
def test_when_nobody_has_probed_lately_a_client_is_told_of_nothing(site: Site, age: float) -> None:
    site.settle()
    site.publish(*ALL)
    assert site.told() == []
    site.probed("eu", "us", age=age)
    assert site.told() == []
    site.config.health.write_text("{")
    assert site.told() == []


def test_without_settings_the_manifest_is_passed_on(site: Site) -> None:
    site.publish(*ALL)
    assert site.told() == [one.url for one in ALL]


def test_inline_bundles_stay_in_front(site: Site) -> None:
    site.settle()
    site.publish(EU_ZSTD)
    manifest = site.root / "repo/.hg/clonebundles.manifest"
    manifest.write_text("peer-bundle-cache://x.hg BUNDLESPEC=zstd-v2\n" + manifest.read_text())
    site.probed()
    assert site.told(command=b"clonebundles_manifest") == ["peer-bundle-cache://x.hg"]


def test_a_clone_goes_round_an_endpoint_that_is_down(site: Site, server: Server) -> None:
    site.config = replace(site.config, endpoints=(Endpoint("one", server.url),))
    site.settle()
    commit = ("--config", "ui.allowemptycommit=yes", "commit", "--user", "t", "--message", "x")
    site.hg("-R", str(site.root / "repo"), *commit)
    site.publish(server.entry("bundle.hg"))
    site.probed()
    remote = f"ui.remotecmd={HG}"
    ssh = "ui.ssh=sh -c 'eval \"$2\"' ssh"
    target = str(site.root / "clone")
    said = site.hg(
        "--config", remote, "--config", ssh, "clone", f"ssh://localhost/{site.root}/repo", target
    )
    assert "clone bundle" not in said
    assert site.hg("-R", target, "log", "-T", "{desc}") == "x"
    assert server.asked == []
