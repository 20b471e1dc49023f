"""The broker: sentences for its errors, and the configuration of its streams."""

from __future__ import annotations

import ssl

import nats.errors
import nats.js.errors
import pytest
from nats.js.api import DiscardPolicy, RetentionPolicy, StreamConfig

from hgfleet.replication.protocol import messages, streams
from hgfleet.replication.protocol.broker_errors import sentence
from hgfleet.webhooks import letters

BROKERS = ("tls://broker1:4222",)
EXPIRED = ssl.SSLCertVerificationError(1, "certificate verify failed")
EXPIRED.verify_message = "certificate has expired"


@pytest.mark.parametrize(
    ("error", "cause", "way_out"),
    [
        (ConnectionRefusedError(111, "refused"), "no broker answers", "systemctl status"),
        (nats.errors.TimeoutError(), "no broker answers", "systemctl status"),
        (nats.errors.NoServersError(), "no broker answers", "systemctl status"),
        (nats.errors.Error("nats: 'Authorization Violation'"), "refuses this host", "role"),
        (nats.errors.AuthorizationError(), "refuses this host", "role"),
        (
            nats.errors.Error("nats: permissions violation for publish"),
            "does not permit",
            "permissions",
        ),
        (EXPIRED, "certificate has expired", "role `base`"),
        (ssl.SSLError(1, "bad certificate"), "TLS with the broker", "role `base`"),
        (nats.errors.UnexpectedEOF(), "TLS with the broker", "role `base`"),
        (nats.js.errors.NoStreamResponseError(), "without JetStream", "restart"),
        (
            nats.js.errors.ServerError(
                code=503, err_code=10077, description="maximum messages exceeded"
            ),
            "takes no more messages (maximum messages exceeded, code 10077)",
            "more room",
        ),
        (
            nats.js.errors.BadRequestError(code=400, err_code=10060, description="wrong"),
            "the broker refuses (wrong, code 10060)",
            "",
        ),
    ],
)
def test_an_error_is_named_with_its_way_out(error: Exception, cause: str, way_out: str) -> None:
    said = sentence(error, BROKERS)
    assert cause in said
    assert way_out in said


def test_an_ended_connection_without_tls_is_no_matter_of_certificates() -> None:
    assert "no broker answers" in sentence(nats.errors.UnexpectedEOF(), ("nats://broker1:4222",))


def test_settings_of_a_stream_that_differ_are_found() -> None:
    wanted = streams.expected(messages.PUSHES, 1)
    assert streams.differences(wanted, wanted) == {}
    changed = wanted.evolve(
        retention=RetentionPolicy.WORK_QUEUE, max_age=60.0, description="of an operator"
    )
    differing = streams.differences(wanted, changed)
    assert sorted(differing) == ["max_age", "retention"]
    said = streams.unchangeable(messages.PUSHES, differing, "no")
    assert "stream hgfleet-pushes: " in said
    assert "delete the stream" in said
    bounded = streams.differences(wanted.evolve(max_bytes=7), wanted)
    assert "the role `replication` writes both" in streams.unchangeable("x", bounded, "no")


@pytest.mark.parametrize("disk", [2**27, 2**30, 50 * 2**30])
def test_the_bounds_of_all_streams_together_are_below_a_brokers_disk(disk: int) -> None:
    bucket = disk // 4
    bounds = [streams.bound(name, bucket) for name in streams.SUBJECTS]
    webhooks = min(letters.MOST_BYTES, bucket // letters.SHARE)
    # The release before has a limit of 1000 where this one has 1024.
    assert bucket + webhooks + sum(bounds) <= disk * (1000 / 1024) ** 3
    for name, bound in zip(streams.SUBJECTS, bounds, strict=True):
        config = streams.expected(name, 3, bound)
        assert (config.max_bytes, config.discard) == (bound, DiscardPolicy.OLD)


def test_settings_that_an_older_broker_does_not_tell_are_off() -> None:
    wanted = streams.expected(messages.PUSHES, 1)
    values = {name: value for name, value in vars(wanted).items() if name != "sealed"}
    assert streams.differences(wanted, StreamConfig(**values)) == {}


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        (f"{'a' * 32}.7", 7),
        (f"{'a' * 32}.7.2", 7),
        (f"{'a' * 32}.7.2.{'0f' * 8}", 7),
        (f"{'a' * 32}.7.2.0f", None),
        (f"{'a' * 32}.7.", None),
        (f"{'b' * 32}.7", None),
        ("x", None),
        (f"{'a' * 32}.x", None),
    ],
)
def test_the_number_of_a_message_is_in_its_id(name: str, expected: int | None) -> None:
    assert streams.number_of({messages.MESSAGE_ID_HEADER: name}, "a" * 32) == expected


def test_a_message_without_headers_has_no_number() -> None:
    assert streams.number_of(None, "a" * 32) is None


def test_terms_are_kept_for_ever_and_pushes_for_a_week() -> None:
    assert streams.expected(messages.EPOCHS, 1).max_age == 0
    assert streams.expected(messages.PUSHES, 1).max_age == streams.MAX_AGE
