"""Clones and pulls by the arguments of their request, and the counts of them."""

from __future__ import annotations

import pytest

from hgfleet.hg.clone_counts import CLONE, PULL, Answers, counts, kind_of

NULL = b"0" * 40
NODE = b"1" * 40


@pytest.mark.parametrize(
    ("arguments", "kind"),
    [
        ({b"common": NULL, b"cg": b"1"}, CLONE),
        ({}, CLONE),
        ({b"common": NULL + b" " + NODE, b"cg": b"1"}, PULL),
        ({b"common": NODE, b"cg": b"0"}, None),
        ({b"common": NULL, b"cg": b"0", b"stream": b"1"}, CLONE),
        ({b"common": NODE, b"stream": b"0"}, PULL),
    ],
)
def test_a_clone_is_a_request_for_everything(
    arguments: dict[bytes, bytes], kind: str | None
) -> None:
    assert kind_of(arguments) == kind


def test_the_bytes_of_a_clone_bundle_come_from_elsewhere() -> None:
    total: dict[str, float] = {}
    for kind, source, size in (
        ("clone", "clone-bundle", 300),
        ("clone", "live", 2000),
        ("pull", "pull-bundle", 40),
        ("pull", "pull-bundle", 2),
        ("pull", "clone-bundle", 9),
        (None, None, 9),
    ):
        for name, amount in counts(kind, source, size).items():
            total[name] = total.get(name, 0) + amount
    answers = Answers(total)
    assert {answer: count for answer, count in answers.counts.items() if count} == {
        ("clone", "clone-bundle"): 1,
        ("clone", "live"): 1,
        ("pull", "pull-bundle"): 2,
    }
    assert {answer: size for answer, size in answers.bytes.items() if size} == {
        ("clone", "live"): 2000,
        ("pull", "pull-bundle"): 42,
    }
