"""The copy of a push that a site requires before a push may begin."""

from __future__ import annotations

import pytest

from hgfleet.hg import required_copy, wake
from hgfleet.replication.primary.visibility import Answer, has_copy
from hgfleet.replication.primary.wake_server import CopyRequest, parse


@pytest.mark.parametrize(
    ("required", "takes", "live", "is_possible"),
    [
        ("broker", True, 0, True),
        ("broker", False, 2, False),
        ("mirror", True, 1, True),
        ("mirror", True, 0, False),
        ("mirror", False, 1, False),
    ],
)
def test_a_copy_can_be_had(required: str, *, takes: bool, live: int, is_possible: bool) -> None:
    """A mirror gets its copy from the broker."""
    assert required_copy.can_be_had(required, takes=takes, live=live) == is_possible
    answer = Answer(live, 2, 0.0, broker=takes)
    assert has_copy(answer, required) == is_possible
    # Relay and session decide alike, also behind the socket's JSON.
    assert (required_copy.refusal(required, answer.to_json()) == "") == is_possible


def test_without_a_requirement_no_push_is_refused() -> None:
    assert required_copy.refusal("none", None) == ""
    assert required_copy.refusal("none", {"broker": False}) == ""


@pytest.mark.parametrize(
    ("required", "answer", "cause"),
    [
        ("broker", None, "the relay of this host does not answer"),
        ("mirror", None, "the relay of this host does not answer"),
        ("broker", {}, "the broker is away, or takes no pushes"),
        ("broker", {"broker": "yes"}, "the broker is away, or takes no pushes"),
        ("mirror", {"broker": False, "visible": 2}, "the broker is away, or takes no pushes"),
        ("mirror", {"broker": True}, "no mirror is connected and up to date"),
        ("mirror", {"broker": True, "visible": "2"}, "no mirror is connected and up to date"),
    ],
)
def test_a_refusal_has_its_cause_and_the_way_out(
    required: str, answer: dict[str, object] | None, cause: str
) -> None:
    sentence = required_copy.refusal(required, answer)
    assert cause in sentence
    assert "nothing was changed; push again in a minute" in sentence
    # A reply to a push has room for 255 bytes.
    assert len(sentence) <= 255


def test_a_setting_that_makes_no_sense_refuses_pushes() -> None:
    sentence = required_copy.refusal("mirrors", {"broker": True, "visible": 2})
    assert "is 'mirrors', expected none, broker, mirror" in sentence
    assert len(required_copy.refusal("x" * 300, None)) <= 255


@pytest.mark.parametrize("required", ["broker", "mirror"])
def test_the_request_of_a_push_that_begins_is_read(required: str) -> None:
    line = wake.line(required_copy.request(required), 5.0)
    assert parse(line) == CopyRequest(required, 5.0)


@pytest.mark.parametrize("required", ["none", "", "mirrors", None, ["broker"], {"broker": 1}])
def test_a_request_for_another_copy_is_refused(required: object) -> None:
    with pytest.raises(ValueError, match="required copy"):
        parse(wake.line({"require": required}, 5.0))
