"""Which lines belong to a session, its pushes and its connection; logs of requests on a disk."""

from __future__ import annotations

import gzip
import json
import os
import re
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import logfmt
from hgfleet.core.errors import UsageError
from hgfleet.logs import following, sources
from hgfleet.logs.log_entry import MICROSECONDS, Entry, fields_of

if TYPE_CHECKING:
    from pathlib import Path

ID = "1f2e3d4c5b6a7988"
OTHER = "0" * 16
IDENTITY = "7d" * 16
PUSH = f"{IDENTITY}.42"


def entry(seconds: float, source: str, event: str, **fields: object) -> Entry:
    line = logfmt.line(event, **fields)
    return Entry(round(seconds * MICROSECONDS), "hg1", source, line, fields_of(line))


SESSION = entry(10, "hgfleet-shell", "session", client="192.0.2.7", port=50000, id=ID)
RECORDED = entry(11, "hgfleet-shell", "push", push=PUSH, id=ID)
PUBLISHED = entry(12, "hgfleet-relay", "relay.published", push=PUSH)
APPLIED = entry(13, "hgfleet-applier", "applied", push=PUSH, id=ID)
ANOTHER = entry(14, "hgfleet-applier", "applied", push=f"{IDENTITY}.43", id=OTHER)
ALL = [ANOTHER, APPLIED, PUBLISHED, RECORDED, SESSION]


@pytest.mark.parametrize("given", ["", "42", ID.upper(), f"{ID}\n", "x|y", ".*", f"{PUSH}.2", "-f"])
def test_a_name_that_is_none_is_refused(given: str) -> None:
    with pytest.raises(UsageError, match="expected the id of a session"):
        following.names([ID, given])


@pytest.mark.parametrize("begin", [ID, PUSH])
def test_a_session_and_its_push_lead_to_each_other(begin: str) -> None:
    wanted = following.names([begin])
    for _ in range(2):
        wanted = following.more(ALL, wanted)
    assert wanted == {ID, PUSH}
    lines = [line for line in ALL if following.belongs(line, wanted)]
    assert following.in_order(lines) == [SESSION, RECORDED, PUBLISHED, APPLIED]


def test_lines_of_others_lead_nowhere() -> None:
    assert following.more(ALL, {"f" * 16}) == {"f" * 16}
    assert not following.belongs(entry(1, "haproxy", "request", detail=ID), {ID})
    assert not following.belongs(entry(1, "haproxy", "request", id="", push=""), {""})


def test_a_search_is_bounded() -> None:
    pushes = [
        entry(1, "hgfleet-shell", "push", push=f"{IDENTITY}.{n}", id=ID) for n in range(1, 999)
    ]
    assert len(following.more(pushes, {ID})) == following.MOST_NAMES


def test_an_entry_is_shown_once() -> None:
    assert following.in_order([RECORDED, SESSION, RECORDED]) == [SESSION, RECORDED]


def test_sshd_is_found_by_the_connection_of_the_session() -> None:
    (connection,) = following.connections([RECORDED, SESSION])
    assert connection.client == "192.0.2.7"

    def is_of(said: str, source: str = "sshd-session", seconds: float = 9) -> bool:
        line = Entry(round(seconds * MICROSECONDS), "hg1", source, said)
        return following.is_of(line, connection)

    assert is_of("Accepted publickey for hg from 192.0.2.7 port 50000 ssh2: ED25519 SHA256:x")
    assert is_of("Connection closed by user hg from 192.0.2.7 port 50000")
    assert not is_of("Accepted publickey for hg from 192.0.2.7 port 5000 ssh2")
    assert not is_of("Accepted publickey for hg from 192.0.2.7 port 500001 ssh2")
    assert not is_of("Accepted publickey for hg from 192.0.2.77 port 50000 ssh2")
    assert not is_of("Accepted publickey for hg from 192x0.2.7 port 50000 ssh2")
    assert not is_of("from 192.0.2.7 port 50000", source="hgfleet-shell")
    # The port is another client's on another day.
    assert not is_of("from 192.0.2.7 port 50000", seconds=86400)


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"client": "192.0.2.7"},
        {"client": ".*", "port": 1},
        {"client": "192.0.2.7", "port": "1|2"},
        {"client": "192.0.2.7", "port": 65536},
    ],
)
def test_a_session_without_a_connection_asks_nothing(fields: dict[str, object]) -> None:
    assert following.connections([entry(1, "hgfleet-shell", "session", id=ID, **fields)]) == []


def test_a_pattern_matches_its_names_alone() -> None:
    pattern = following.pattern({ID, PUSH})
    assert re.search(pattern, f"id={ID}")
    assert re.search(pattern, f"push={PUSH}")
    assert not re.search(pattern, f"push={IDENTITY}x42")


def request(seconds: int, identity: str) -> bytes:
    return json.dumps({"ended": seconds, "id": identity, "uri": f"/?id={ID}"}).encode() + b"\n"


def test_requests_are_found_in_files_that_were_rotated(tmp_path: Path) -> None:
    folder = tmp_path / "var/log/nginx"
    folder.mkdir(parents=True)
    (folder / "access.log").write_bytes(request(300, ID) + b"\xff\n" + request(301, OTHER))
    (folder / "access.log-20261125-1").write_bytes(request(200, ID))
    with gzip.open(folder / "access.log-20261124-1.gz", "wb") as file:
        file.write(request(100, ID) + request(99, ID))
    (folder / "access.log-20261123-1").write_bytes(request(98, ID))
    os.utime(folder / "access.log-20261123-1", (98, 98))
    (folder / "error.log").write_bytes(request(300, ID))

    requests = list(sources.requests({ID}, 100, tmp_path))

    assert [line.time // MICROSECONDS for line in following.in_order(requests)] == [100, 200, 300]
    assert {line.source for line in requests} == {"nginx"}
