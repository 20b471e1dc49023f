"""The difference of two manifests has every changed line, for every way to cut the delta."""

from __future__ import annotations

import random
import struct

import pytest

from hgfleet.policies import manifest_diff
from hgfleet.policies.manifest_diff import ManifestError, difference

NODES = [f"{n:040x}" for n in range(100)]


def manifest(**files: str) -> bytes:
    return b"".join(f"{path}\0{rest}\n".encode() for path, rest in sorted(files.items()))


def piece(start: int, end: int, new: bytes) -> bytes:
    return struct.pack(">lll", start, end, len(new)) + new


def whole(before: bytes, after: bytes) -> bytes:
    return piece(0, len(before), after)


def test_a_difference_has_what_was_added_changed_and_removed() -> None:
    before = manifest(a=NODES[1], b=NODES[2], c=NODES[3])
    after = manifest(a=NODES[1], b=NODES[4] + "l", d=NODES[5])
    made = difference(before, after, whole(before, after))
    assert made.after == {b"b": NODES[4].encode() + b"l", b"d": NODES[5].encode()}
    assert made.before == {b"b": NODES[2].encode(), b"c": NODES[3].encode()}
    assert sorted(made.paths()) == [b"b", b"c", b"d"]
    assert manifest_diff.entry(made.after[b"b"]) == (bytes.fromhex(NODES[4]), b"l")


def test_pieces_that_do_not_begin_with_a_line_hide_nothing() -> None:
    """The pieces of a hostile client: by themselves they are harmless lines, or none at all."""
    before = manifest(a=NODES[1], b=NODES[2])
    flag = len(before) - 1
    after = before[:flag] + b"l" + before[flag:]
    made = difference(before, after, piece(flag, flag, b"l"))
    assert made.after == {b"b": NODES[2].encode() + b"l"}

    # Put together, the pieces read "x NUL node LF"; in their places they make a link of b.
    spoof = piece(flag, flag, b"l\nx\0" + NODES[3].encode())
    after = before[:flag] + b"l\nx\0" + NODES[3].encode() + b"\n"
    assert set(difference(before, after, spoof).after) == {b"b", b"x"}


def test_random_differences_are_right_however_they_are_cut() -> None:
    randomness = random.Random(3)

    def some() -> dict[str, str]:
        names = randomness.sample("abcdefghij", k=randomness.randint(0, 10))
        return {name: randomness.choice(NODES[:4]) + randomness.choice(["", "l"]) for name in names}

    for _ in range(500):
        old, new = some(), some()
        before, after = manifest(**old), manifest(**new)
        prefix = 0
        while prefix < min(len(before), len(after)) and before[prefix] == after[prefix]:
            prefix += 1
        start = randomness.randint(0, prefix)
        delta = piece(start, len(before), after[start:])
        made = difference(before, after, delta)
        changed = {k.encode(): v.encode() for k, v in new.items() if old.get(k) != v}
        assert made.after == changed
        assert set(made.before) == {k.encode() for k, v in old.items() if new.get(k) != v}


@pytest.mark.parametrize(
    "after",
    [b"a\n", b"a\0short\n", b"\0" + b"0" * 40 + b"\n", b"a\0" + b"0" * 40 + b"z\n", b"a"],
)
def test_what_is_no_manifest_is_an_error(after: bytes) -> None:
    with pytest.raises(ManifestError):
        difference(b"", after, whole(b"", after))
