"""Notes of a probe about a web host: wrong data, requests that fail, and times of pages."""

from __future__ import annotations

import hashlib
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

import pytest

from testing.support import loading

if TYPE_CHECKING:
    from collections.abc import Iterator

probe = loading.module("ansible/on_host/probe.py")

HEAD = "1" * 40
TRUTH: list[dict[str, Any]] = [
    {
        "path": "r",
        "heads": [HEAD],
        "tip": HEAD,
        "file": "README",
        "sha256": hashlib.sha256(b"content").hexdigest(),
    }
]
HEADS = "/r?cmd=heads"
RIGHT: dict[str, bytes | int | str] = {
    HEADS: HEAD.encode() + b"\n",
    f"/r/raw-file/{HEAD}/README": b"content",
}


class Web(ThreadingHTTPServer):
    """A web host; an answer is a body, a status, or "hangs" or "breaks off"."""

    def __init__(self) -> None:
        self.answers: dict[str, bytes | int | str] = dict(RIGHT)
        self.end = threading.Event()
        self.requests = 0
        super().__init__(("127.0.0.1", 0), Handler)


class Handler(BaseHTTPRequestHandler):
    server: Web

    def do_GET(self) -> None:
        self.server.requests += 1
        answer = self.server.answers.get(self.path.partition("?probe=")[0], 404)
        if answer == "hangs":
            self.server.end.wait()
            return
        body = answer if isinstance(answer, bytes) else b"an error"
        self.send_response(answer if isinstance(answer, int) else 200)
        self.send_header("Content-Length", str(len(body) + (answer == "breaks off")))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_arguments: object) -> None:
        """Log nothing."""


@pytest.fixture
def web(monkeypatch: pytest.MonkeyPatch) -> Iterator[Web]:
    monkeypatch.setattr(probe, "CA", None)
    server = Web()
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    yield server
    server.end.set()
    server.shutdown()
    thread.join()
    server.server_close()


def asked(web: Web) -> probe.Asked:
    return probe.Asked(f"http://127.0.0.1:{web.server_port}")


def test_answers_as_on_the_primary_are_no_problem(web: Web) -> None:
    host = asked(web)
    assert probe.content(host, TRUTH) == []
    assert host.errors == []


def test_other_answers_are_wrong_data(web: Web) -> None:
    web.answers = dict.fromkeys(RIGHT, b"0" * 40)
    host = asked(web)
    assert probe.content(host, TRUTH) == ["r: heads 000000000000, on the primary 111111111111"]
    web.answers[HEADS] = RIGHT[HEADS]
    assert probe.content(host, TRUTH) == ["r: README of 111111111111 differs"]
    assert host.errors == []


NEWER = "2" * 40
PUSHED = {
    **RIGHT,
    HEADS: NEWER.encode(),
    f"/r?cmd=known&nodes={HEAD}": b"1",
    f"/r?cmd=known&nodes={NEWER}": b"1",
}
"""Answers of a host and of the primary, after a push since the primary was asked for heads."""


def test_a_push_since_the_primary_was_read_is_no_wrong_data(web: Web) -> None:
    web.answers = dict(PUSHED)
    assert probe.content(asked(web), TRUTH, asked(web)) == []
    assert probe.content(asked(web), TRUTH) == []


@pytest.mark.parametrize("unknown", [HEAD, NEWER])
def test_a_host_without_a_push_or_with_one_of_its_own_has_wrong_data(
    web: Web, unknown: str
) -> None:
    web.answers = {**PUSHED, f"/r?cmd=known&nodes={unknown}": b"0"}
    wrong = ["r: heads 222222222222, on the primary 111111111111"]
    assert probe.content(asked(web), TRUTH, asked(web)) == wrong


def test_a_host_that_says_it_is_empty_has_wrong_data(web: Web) -> None:
    web.answers = {**PUSHED, HEADS: b"0" * 40}
    web.answers[f"/r?cmd=known&nodes={'0' * 40}"] = b"1"
    assert probe.content(asked(web), TRUTH, asked(web)) != []


def test_many_changesets_are_asked_for_in_parts(web: Web) -> None:
    nodes = [f"{number:040x}" for number in range(probe.NODES_AT_ONCE + 1)]
    first = "+".join(nodes[:-1])
    web.answers[f"/r?cmd=known&nodes={first}"] = b"1" * probe.NODES_AT_ONCE
    web.answers[f"/r?cmd=known&nodes={nodes[-1]}"] = b"1"
    assert probe.knows(asked(web), "r", nodes)
    web.answers[f"/r?cmd=known&nodes={nodes[-1]}"] = b"0"
    assert not probe.knows(asked(web), "r", nodes)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        ("hangs", "does not answer: {}: timed out"),
        ("breaks off", "does not answer: {}: IncompleteRead(8 bytes read, 1 more expected)"),
        (503, "a request failed: {}: status 503"),
    ],
)
def test_a_request_that_fails_is_no_wrong_data(
    web: Web, answer: int | str, error: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer == "hangs":
        monkeypatch.setattr(probe, "PAGE_SECONDS", 0.2)
    web.answers = dict.fromkeys(RIGHT, answer)
    host = asked(web)
    assert probe.content(host, TRUTH) == []
    places = ["/r", f"/r/raw-file/{HEAD}/README"]
    assert host.errors == [error.format(place) for place in places]


def test_a_host_that_hangs_is_asked_a_few_times(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(probe, "PAGE_SECONDS", 0.2)
    web.answers = dict.fromkeys(RIGHT, "hangs")
    probe.content(asked(web), TRUTH * 10)
    assert web.requests <= probe.MOST_ERRORS + 1


def test_the_time_of_a_page_is_that_of_an_answer(web: Web) -> None:
    host = asked(web)
    host.page("/r/rev/1")
    assert host.errors == ["a request failed: /r/rev/1: status 404"]
    assert host.seconds == []


def test_a_slow_host_is_asked_for_few_pages(web: Web, monkeypatch: pytest.MonkeyPatch) -> None:
    web.answers = {"/": b"a page", "/healthz": b"{}"}
    question = {"url": asked(web).url, "peers": [], "primary": "", "truth": [], "pages": 20}
    assert len(probe.figures(question)["seconds"]) == 20
    monkeypatch.setattr(probe, "PAGES_SECONDS", 0)
    assert len(probe.figures(question)["seconds"]) == probe.FEWEST_PAGES
