"""The clients of the bench of hostile requests, against a server of this test."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
import threading
from collections import Counter
from contextlib import contextmanager, nullcontext
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qs, unquote

import pytest

from testing.bench import hostile_load, hostile_site, hostile_witness
from testing.bench.hostile_load import Witness
from testing.bench.hostile_setup import Prepared
from testing.bench.hostile_witness import Nodes

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.bench.hostile_bars import Bar
    from testing.conftest import WaitFor

PAGE = {"kind": "page", "path": "healthy/log?n={}", "headers": {}}
PULL = {"kind": "pull", "path": "healthy?cmd=getbundle", "headers": {"X-HgArg-1": "common=a"}}
MADE = Prepared(
    *("people/bob/history", "people/bob/failing", "people/alice/healthy", "people/alice/private"),
    ("alice", "hgt_right"),
    {"disabled": ("mallory", "hgt_gone"), "expired": ("bob", "hgt_old")},
)
ROOT, LATE, TIP = "1" * 40, "2" * 40, "3" * 40


class Server:
    """A server whose answers a test chooses by the path; others are `as ever`."""

    def __init__(self) -> None:
        self.answers: dict[str, tuple[int, bytes]] = {}
        self.asked: Counter[str] = Counter()
        self.headers: dict[str, dict[str, str]] = {}
        self.url = ""

    @contextmanager
    def serving(self) -> Iterator[Server]:
        server = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                server.asked[self.path] += 1
                server.headers[self.path] = dict(self.headers)
                status, body = server.answers.get(self.path, (200, b"as ever"))
                self.send_response(status)
                self.send_header("Content-Length", str(len(body) if status else 99))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, *_: Any) -> None:
                pass

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
            thread = threading.Thread(target=http.serve_forever)
            thread.start()
            self.url = f"http://127.0.0.1:{http.server_port}"
            try:
                yield self
            finally:
                http.shutdown()
                thread.join()


@pytest.fixture
def server() -> Iterator[Server]:
    with Server().serving() as running:
        yield running


def test_a_witness_tells_times_other_bytes_and_failures(server: Server) -> None:
    witness = Witness(server.url, [PAGE, PULL])
    witness.learn()
    server.answers["/healthy/log?n=2"] = (200, b"of another repository")
    server.answers["/healthy/log?n=3"] = (503, b"as ever")
    server.answers["/healthy?cmd=getbundle"] = (200, b"as ever, but longer")
    witness.run(lambda: server.asked["/healthy/log?n=4"] > 0, pause=0.01)
    assert "page 2 healthy/log?n={}: other bytes" in witness.wrong
    assert any(line.startswith("pull 1 ") for line in witness.wrong)
    assert witness.failed == {"page": {"503": 1}, "pull": {}}
    told = witness.told()
    asked = sum(server.asked[path] for path in server.asked if path.startswith("/healthy/log"))
    # The first request was sent by `learn`.
    assert len(told["seconds"]["page"]) == asked - 1 > 3
    assert server.headers["/healthy?cmd=getbundle"]["X-HgArg-1"] == "common=a"


def test_a_witness_needs_an_answer_before_the_attack(server: Server) -> None:
    server.answers["/healthy/log?n=0"] = (404, b"")
    with pytest.raises(SystemExit, match="got 404, expected status 200"):
        Witness(server.url, [PAGE]).learn()


def test_an_answer_that_breaks_off_has_no_status(server: Server) -> None:
    server.answers["/healthy/log?n=1"] = (0, b"as ev")
    assert hostile_load.ask(server.url, PAGE, 1)[0] not in ("0", "200")
    assert hostile_load.ask("http://127.0.0.1:1", PAGE, 1)[0] == "ConnectionRefusedError"


@contextmanager
def client(kind: str, plan: dict[str, Any]) -> Iterator[subprocess.Popen[str]]:
    """Start a client as the bench does on a host."""
    source = Path(hostile_load.__file__).read_text()
    command = [sys.executable, "-c", source, kind]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdin=pipe, stdout=pipe, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(json.dumps(plan) + "\n")
        process.stdin.flush()
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        yield process
        process.stdin.close()


def test_both_clients_run_as_a_program_and_tell_their_result(
    server: Server, wait_for: WaitFor
) -> None:
    refused = {"kind": "expired", "path": "private?n={}", "headers": {"Authorization": "x"}}
    server.answers |= {f"/private?n={number}": (401, b"no") for number in range(2)}
    flood = {"url": server.url, "asks": [refused], "connections": 2}
    watch = {"url": server.url, "asks": [PAGE], "seconds": 0.2}
    with client("witness", watch) as watching, client("flood", flood) as flooding:
        seen = hostile_witness.go_on(watching, "the witness")
        # A connection that asks for the third time has counted two answers.
        wait_for(
            "third requests of the flood",
            lambda: server.asked["/private?n=4"] and server.asked["/private?n=5"],
            every=0.01,
        )
        got = hostile_witness.go_on(flooding, "the flood")
    assert seen["seconds"]["page"]
    assert seen["wrong"] == []
    assert got["answers"]["expired: 401"] == 2
    assert got["answers"]["expired: 200"] >= 1
    assert got["bytes"] >= 4
    assert all(server.asked[path] == 1 for path in server.asked), "no request is a stored answer"


class LocalHost:
    """A host that is this machine."""

    name = "here"

    def start(self, *argv: str) -> subprocess.Popen[str]:
        pipe = subprocess.PIPE
        return subprocess.Popen([*argv], stdin=pipe, stdout=pipe, text=True)


class Grown:
    """Takes the place of the sampler."""

    def read(self) -> Any:
        return SimpleNamespace(growth=5_000_000)


def test_a_phase_is_a_flood_and_a_witness_at_the_same_time(
    server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hostile_witness, "URL", server.url)
    monkeypatch.setattr(hostile_site, "sampler", lambda _: nullcontext(Grown()))
    here: Any = LocalHost()
    hosts = hostile_witness.Hosts(here, here, here, here)
    bad = {"kind": "expired", "path": "bad?n={}", "headers": {}}
    flood = ([bad], 3)

    def measured() -> dict[str, Bar]:
        bars = hostile_witness.run("tokens", hosts, flood, [PAGE], 0.3, ["expired"])
        assert {bar.phase for bar in bars} == {"tokens"}
        return {bar.what: bar for bar in bars}

    bars = measured()
    assert bars["requests that a refused token let in"].measured > 0
    assert bars["answers of the flood"].measured >= 1
    assert bars["growth of the process that grew most"].measured == 5
    # A busy machine may miss bars of seconds here.
    missed = [bar.what for bar in bars.values() if bar.is_of_bytes and not bar.is_held]
    assert missed == ["requests that a refused token let in"]

    server.answers |= {f"/healthy/log?n={number}": (200, b"foreign") for number in (1, 2)}
    assert measured()["others' answers with wrong bytes"].measured >= 1


def test_a_flood_ends_with_its_input(server: Server) -> None:
    with client("flood", {"url": server.url, "asks": [PAGE], "connections": 3}) as flooding:
        assert flooding.stdin is not None
        flooding.stdin.close()
        assert flooding.wait(30) == 0


def test_a_client_that_is_not_ready_is_told() -> None:
    command = [sys.executable, "-c", "pass"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.wait(30) == 0
        with pytest.raises(RuntimeError, match="not ready; expected a line, got the end"):
            hostile_witness._line(process, "not ready")


def witnessed(**more: Any) -> dict[str, Any]:
    """Return the report of a witness."""
    return {"seconds": {"page": [0.1]}, "failed": {"page": {}}, "wrong": [], **more}


def test_what_a_witness_tells_becomes_bars() -> None:
    def missed(told: dict[str, Any]) -> list[str]:
        return [bar.what for bar in hostile_witness.bars_of("x", told) if not bar.is_held]

    assert missed(witnessed()) == []
    assert missed(witnessed(failed={"page": {"503": 2, "429": 1}})) == [
        "others' pages that failed, 1 429, 2 503"
    ]
    assert missed(witnessed(wrong=["page 1"])) == ["others' answers with wrong bytes"]
    assert missed(witnessed(seconds={"page": [1.2]})) == ["others' pages: p95"]
    # A witness that asked for nothing saw nothing.
    assert len(missed(witnessed(seconds={"page": []}))) == 2


def test_a_flood_that_reached_nothing_is_an_error() -> None:
    with pytest.raises(SystemExit, match="got no byte for the flood"):
        hostile_witness.bars_of_flood("x", {"answers": {"a: TimeoutError": 9}, "bytes": 0})


@pytest.mark.parametrize(
    ("answers", "count"),
    [
        ({"expired: 401": 9, "disabled: 429": 8, "expired: 503": 1, "expired: TimeoutError": 7}, 0),
        ({"expired: 401": 9, "expired: 200": 2}, 2),
        # Let in, as a person who may not read it.
        ({"disabled: 404": 3, "expired: 401": 9}, 3),
    ],
)
def test_a_refused_token_that_lets_somebody_in_is_a_missed_bar(
    answers: dict[str, int], count: int
) -> None:
    bar = hostile_witness.let_in("tokens", MADE.refused, {"answers": answers})
    assert (bar.measured, bar.is_held, bar.is_of_bytes) == (count, not count, True)


def test_the_flood_has_each_refused_token_and_the_witness_the_right_one() -> None:
    def secrets(asks: list[Any]) -> set[str]:
        headers = {ask["headers"]["Authorization"].removeprefix("Basic ") for ask in asks}
        return {base64.b64decode(header).decode() for header in headers}

    asks = hostile_witness.asks_with_tokens(MADE)
    assert secrets(asks) == {"mallory:hgt_gone", "bob:hgt_old"}
    assert {ask["kind"] for ask in asks} == {"disabled", "expired"}
    pages = hostile_witness.asks_for_pages(MADE.private, hostile_witness.basic(MADE.reader))
    assert secrets(pages) == {"alice:hgt_right"}
    assert len({ask["path"] for ask in pages}) == len(pages)


def test_partial_clones_have_a_part_in_common() -> None:
    asks = hostile_witness.asks_for_streams("people/bob/history", Nodes(ROOT, LATE, TIP))
    arguments = [parse_qs(ask["headers"]["X-HgArg-1"]) for ask in asks]
    assert [argument["common"] for argument in arguments] == [[ROOT], [LATE]]
    assert all(argument["heads"] == [TIP] for argument in arguments)
    (first, *rest) = arguments[0]["bundlecaps"][0].split(",")
    assert first == "HG20"
    assert unquote(rest[0]) == "bundle2=HG20\nchangegroup=01,02"
