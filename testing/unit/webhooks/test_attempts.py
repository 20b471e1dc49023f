"""Attempts to deliver an event: signatures, results, pauses."""

from __future__ import annotations

import hashlib
import hmac
import json
from typing import Any

import pytest

from hgfleet.replication.protocol.events import Event
from hgfleet.webhooks import attempts
from hgfleet.webhooks.attempts import Verdict

A = "a" * 32
NOW = 1_795_440_000.0


def event(number: int = 1, repository: str = A, path: str = "team/tool", **more: Any) -> Event:
    fields = {"is_public": True, "body": json.dumps({"push": number}).encode()} | more
    return Event(path, repository, number, **fields)


@pytest.mark.parametrize(
    ("status", "expected"),
    [
        (200, Verdict.DELIVERED),
        (204, Verdict.DELIVERED),
        (301, Verdict.RETRY),
        (400, Verdict.DEAD),
        (404, Verdict.DEAD),
        (410, Verdict.DEAD),
        (408, Verdict.RETRY),
        (429, Verdict.RETRY),
        (500, Verdict.RETRY),
        (503, Verdict.RETRY),
        (999, Verdict.RETRY),
    ],
)
def test_the_status_decides(status: int, expected: Verdict) -> None:
    assert attempts.verdict(status) is expected


def test_pauses_grow_and_have_a_bound() -> None:
    assert [attempts.pause(number, 1.0) for number in (1, 2, 3, 4)] == [2, 4, 8, 16]
    assert attempts.pause(3, 0.0) == 4.0
    assert attempts.pause(10_000, 1.0) == attempts.LONGEST_PAUSE


def test_a_delivery_is_given_up_when_its_time_is_over() -> None:
    assert attempts.next_attempt(NOW, NOW + 10, 1, 1.0, 3600) == NOW + 12
    assert attempts.next_attempt(NOW, NOW + 3599, 1, 1.0, 3600) is None
    # It waited behind another delivery: it has had its attempt.
    assert attempts.next_attempt(NOW, NOW + 4000, 1, 0.0, 3600) is None


def test_a_receiver_verifies_the_signature_of_timestamp_and_body() -> None:
    made = attempts.headers(event(7), b"0123456789abcdef", NOW + 0.9)
    assert made["X-Hgfleet-Delivery"] == f"{A}.7"
    assert made["X-Hgfleet-Timestamp"] == "1795440000"
    signed = b'1795440000.{"push": 7}'
    expected = hmac.new(b"0123456789abcdef", signed, hashlib.sha256).hexdigest()
    assert made["X-Hgfleet-Signature-256"] == f"sha256={expected}"
