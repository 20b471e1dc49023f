"""Log lines as entries: hostile messages, control characters, times."""

from __future__ import annotations

import json

import pytest

from hgfleet.core import logfmt
from hgfleet.logs import log_entry
from hgfleet.logs.log_entry import Entry

ID = "1f2e3d4c5b6a7988"
PUSH = f"{'7d' * 16}.42"


@pytest.mark.parametrize(
    "value",
    [
        "plain",
        "two words",
        'a "quote"',
        "back\\slash",
        "\x1b[31m\n\r\t",
        "x id=0",
        "ä€",
        "",
        "\udcff",
    ],
)
def test_fields_are_read_as_they_were_written(value: str) -> None:
    line = logfmt.line("session", command=value, id=ID, seconds=0.25)
    assert log_entry.fields_of(line) == {
        "event": "session",
        "command": value,
        "id": ID,
        "seconds": "0.250",
    }


@pytest.mark.parametrize(
    "message",
    [
        "",
        f"a sentence with id={ID}",
        f'event=session command="no end id={ID}',
        f"event=session id={ID} and words",
        f"event=session id={ID} id={ID}",
        f'event=session command="x"id={ID}',
        f'{{"id":"{ID}"',
        f'["{ID}"]',
        "[" * 100_000,
        "{" * 100_000,
    ],
)
def test_a_message_of_another_form_has_no_fields(message: str) -> None:
    assert log_entry.fields_of(message) == {}


def test_a_client_cannot_put_an_id_into_another_field() -> None:
    line = logfmt.line("session", command=f'x" id={ID} y="', id="0" * 16)
    assert Entry(0, "hg1", "hgfleet-shell", line, log_entry.fields_of(line)).id == "0" * 16
    uri = json.dumps({"id": "0" * 16, "uri": f'/x","id":"{ID}'})
    assert Entry(0, "hg1", "nginx", uri, log_entry.fields_of(uri)).id == "0" * 16


def journal(message: object, **more: object) -> bytes:
    data = {
        "MESSAGE": message,
        "__REALTIME_TIMESTAMP": "1795440000123456",
        "_HOSTNAME": "hg1",
        "SYSLOG_IDENTIFIER": "hgfleet-shell",
        "_TRANSPORT": "syslog",
        **more,
    }
    return json.dumps(data).encode()


def test_a_line_of_the_journal_is_an_entry() -> None:
    parsed = log_entry.of_journal(journal(f"event=push push={PUSH} id={ID}"))
    assert parsed is not None
    assert (parsed.host, parsed.source, parsed.id, parsed.push) == (
        "hg1",
        "hgfleet-shell",
        ID,
        PUSH,
    )
    assert parsed.line() == (
        f"2026-11-23T13:20:00.123456Z hg1 hgfleet-shell: event=push push={PUSH} id={ID}"
    )
    assert json.loads(parsed.to_json())["fields"] == {"event": "push", "push": PUSH, "id": ID}


def test_a_service_that_prints_its_lines_goes_by_its_unit() -> None:
    more = {"_TRANSPORT": "stdout", "SYSLOG_IDENTIFIER": "hgfleet"}
    parsed = log_entry.of_journal(journal("x", _SYSTEMD_UNIT="hgfleet-relay.service", **more))
    assert parsed is not None
    assert parsed.source == "hgfleet-relay"
    # The process had ended before the journal looked for its unit.
    parsed = log_entry.of_journal(journal("x"))
    assert parsed is not None
    assert parsed.source == "hgfleet-shell"


def test_control_characters_reach_no_terminal() -> None:
    bytes_of_a_message = list(b"red \x1b[31m\r\n \xff \xc2\x9b2J")
    parsed = log_entry.of_journal(journal(bytes_of_a_message, _HOSTNAME="hg1\x1b[2J"))
    assert parsed is not None
    assert parsed.line().isprintable()
    assert "\\x1b[31m\\x0d\\x0a" in parsed.line()
    assert parsed.to_json().isascii()
    assert parsed.to_json().isprintable()


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"\xff",
        b"[]",
        b"{}",
        b'"x"',
        b"[" * 100_000,
        journal(["x"]),
        journal([256]),
        journal("x", __REALTIME_TIMESTAMP="now"),
        journal("x", __REALTIME_TIMESTAMP=None),
    ],
)
def test_another_line_of_the_journal_is_none(line: bytes) -> None:
    assert log_entry.of_journal(line) is None


@pytest.mark.parametrize(
    ("fields", "time"),
    [
        ({"time": "2026-11-23T10:40:00+00:00", "ended": 1795430400.123}, 1795430400123000),
        ({"time": "2026-11-23T10:40:00.250Z"}, 1795430400250000),
        ({"time": "2026-11-23T12:40:00+02:00"}, 1795430400000000),
    ],
)
def test_a_request_has_the_time_of_its_end(fields: dict[str, object], time: int) -> None:
    line = json.dumps({**fields, "id": ID, "status": 200}).encode() + b"\n"
    request = log_entry.of_request_log(line, "hgweb1", "nginx")
    assert request is not None
    assert (request.time, request.id, request.fields["status"]) == (time, ID, "200")


@pytest.mark.parametrize(
    "line",
    [
        b"\n",
        b'{"id":"x"}\n',
        b'{"time":"yesterday"}\n',
        b'{"ended":"nan"}\n',
        b'{"ended":1e300}\n',
        b'{"ended":"inf"}\n',
    ],
)
def test_another_line_of_a_request_log_is_none(line: bytes) -> None:
    assert log_entry.of_request_log(line, "hgweb1", "nginx") is None
