"""Messages of mirrors and relay: each field has its type, and others are left out."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from hgfleet.replication.protocol import messages
from hgfleet.replication.protocol.messages import Applied, Asked, Brought, Confirmed, Hint, Lease

if TYPE_CHECKING:
    from collections.abc import Callable

CASES: list[tuple[Any, Callable[[bytes], Any]]] = [
    (Lease("web1", "boot", True, 1, 2, 3.5), messages.decode_lease),
    (Confirmed("web1", "boot", 3.5, 5.0, True), messages.decode_confirmed),
    (Confirmed("web1", "boot", 3.5, 5.0, True, ("a.1.b",)), messages.decode_confirmed),
    (Applied("web1", "7d" * 16, 4), messages.decode_applied),
    (Brought("web1", "registry", "boot", 4), messages.decode_applied),
    (Hint("boot", 4), messages.decode_hint),
    (Asked(("7d" * 16,)), messages.decode_asked),
]


@pytest.mark.parametrize(("message", "decode"), CASES)
def test_a_message_is_read_as_it_was_written(message: Any, decode: Callable[[bytes], Any]) -> None:
    assert decode(message.body()) == message
    later = json.loads(message.body()) | {"of_a_later_release": 1}
    assert decode(json.dumps(later).encode()) == message


@pytest.mark.parametrize(("message", "decode"), CASES)
def test_a_field_of_another_type_is_refused(message: Any, decode: Callable[[bytes], Any]) -> None:
    whole = json.loads(message.body())
    others: tuple[object, ...] = (None, {}, [1])
    for name in whole:
        for wrong in others:
            with pytest.raises(ValueError, match="got"):
                decode(json.dumps(whole | {name: wrong}).encode())


@pytest.mark.parametrize(("message", "decode"), CASES)
def test_a_message_without_a_field_is_refused(message: Any, decode: Callable[[bytes], Any]) -> None:
    whole = json.loads(message.body())
    for name in whole:
        if name in ("document", "unsent"):
            # It tells the two messages of a subject apart, or the release before has none.
            continue
        with pytest.raises(ValueError, match="expected"):
            decode(json.dumps({key: value for key, value in whole.items() if key != name}).encode())


def test_pushes_that_wait_are_named_and_other_names_are_passed_over() -> None:
    identity, hash_ = "7d" * 16, "0f" * 32
    right = f"{identity}.7.{hash_}"
    others = ("", right[:-1], f"{identity}.x.{hash_}", f"{identity}.{hash_}", f"x{right}")
    confirmed = Confirmed("web1", "boot", 3.5, 5.0, True, (*others, right))
    assert list(messages.decode_confirmed(confirmed.body()).pushes()) == [(identity, 7, hash_)]
    many = Confirmed("web1", "boot", 3.5, 5.0, True, (right,) * 1000)
    assert len(list(many.pushes())) == messages.MOST_UNSENT
