"""Requests at the wake socket: hostile input."""

from __future__ import annotations

import pytest

from hgfleet.hg import wake
from hgfleet.replication.primary.wake_server import DocumentRequest, Request, parse

IDENTITY = "7d" * 16
HASH = "5f" * 32


def test_the_request_of_a_session_is_read() -> None:
    request = wake.push_request("team/tool", IDENTITY, 42, HASH)
    assert parse(wake.line(request, 2.0)) == Request(IDENTITY, 42, 2.0, HASH)


def test_the_request_of_a_session_of_the_release_before_names_no_hash() -> None:
    request = {"path": "team/tool", "repository": IDENTITY, "id": 42}
    assert parse(wake.line(request, 2.0)) == Request(IDENTITY, 42, 2.0)


def test_the_request_for_a_document_is_read() -> None:
    line = wake.line(wake.document_request(wake.TOKENS), 2.0)
    assert parse(line) == DocumentRequest("tokens", 2.0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]\n",
        b"{}\n",
        b"\xff\n",
        wake.line(wake.push_request("team/tool", "x" * 32, 1, HASH), 2.0),
        wake.line(wake.push_request("team/tool", IDENTITY, 0, HASH), 2.0),
        wake.line(wake.push_request("team/tool", IDENTITY, 1, HASH), -1),
        wake.line(wake.push_request("team/tool", IDENTITY, 1, HASH), 61),
        wake.line(wake.push_request("team/tool", IDENTITY, 1, HASH), float("nan")),
        wake.line(wake.push_request("team/tool", IDENTITY, True, HASH), 1),
        wake.line(wake.push_request("team/tool", IDENTITY, 1, HASH[1:]), 1),
        wake.line(wake.document_request("manifests/a.manifest"), 1),
        wake.line(wake.document_request(wake.TOKENS), 61),
        b'{"document": ["tokens"], "wait": 1}\n',
        b'{"document": null}\n',
    ],
)
def test_a_request_that_makes_no_sense_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(line)
