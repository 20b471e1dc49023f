"""Requests at the wake socket: hostile input."""

from __future__ import annotations

import pytest

from hgfleet.replication import wake
from hgfleet.replication.wake_server import Request, parse

IDENTITY = "7d" * 16


def test_the_request_of_a_session_is_read() -> None:
    line = wake.request("team/tool", IDENTITY, 42, 2.0)
    assert parse(line) == Request("team/tool", IDENTITY, 42, 2.0)


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"[]\n",
        b"{}\n",
        b"\xff\n",
        wake.request("../etc", IDENTITY, 1, 2.0),
        wake.request("team/tool", "x" * 32, 1, 2.0),
        wake.request("team/tool", IDENTITY, 0, 2.0),
        wake.request("team/tool", IDENTITY, 1, -1),
        wake.request("team/tool", IDENTITY, 1, 61),
        wake.request("team/tool", IDENTITY, 1, float("nan")),
        wake.request("team/tool", IDENTITY, True, 1),
    ],
)
def test_a_request_that_makes_no_sense_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match=r".+"):
        parse(line)
