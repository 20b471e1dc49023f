"""Merge of changegroups: every order of files, blocks of every size, and corrupt chunks."""

from __future__ import annotations

import io
import random
import struct
import tracemalloc
from typing import TYPE_CHECKING

import pytest

from hgfleet.bundles.hg import changegroup_merge
from hgfleet.bundles.hg.changegroup_merge import Changegroup, CorruptChangegroupError, merge

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

Content = tuple[list[bytes], list[bytes], dict[bytes, list[bytes]]]


def chunk(content: bytes) -> bytes:
    return struct.pack(">l", len(content) + 4) + content


def group(deltas: Iterable[bytes]) -> bytes:
    return b"".join(map(chunk, deltas)) + b"\0" * 4


def written(content: Content) -> bytes:
    changelog, manifests, files = content
    named = b"".join(chunk(name) + group(files[name]) for name in sorted(files))
    return group(changelog) + group(manifests) + named + b"\0" * 4


def joined(contents: list[Content]) -> Content:
    changelog: list[bytes] = []
    manifests: list[bytes] = []
    files: dict[bytes, list[bytes]] = {}
    for changesets, other, more in contents:
        changelog += changesets
        manifests += other
        for name, deltas in more.items():
            files.setdefault(name, []).extend(deltas)
    return changelog, manifests, files


def some(rng: random.Random) -> Content:
    def deltas(most: int) -> list[bytes]:
        return [rng.randbytes(100 + rng.randrange(300)) for _ in range(rng.randrange(most))]

    names = rng.sample([b"a", b"a/b", b"a b", b"b", b"\xff\xfe", b"z" * 300], rng.randrange(7))
    return deltas(5), deltas(4), {name: deltas(4) for name in names}


def opened(data: bytes, most: int = 2**20) -> Changegroup:
    file = io.BytesIO(data)
    return Changegroup("a link", lambda size: file.read(min(size, most)))


@pytest.mark.parametrize("seed", range(40))
def test_a_merge_has_each_group_once_with_the_deltas_in_order(seed: int) -> None:
    rng = random.Random(seed)
    contents = [some(rng) for _ in range(rng.randrange(1, 8))]
    sources = [opened(written(content), rng.choice([1, 3, 7, 1000])) for content in contents]
    assert b"".join(merge(sources)) == written(joined(contents))


def test_small_chunks_and_files_leave_in_large_pieces() -> None:
    """A pull has thousands of them, and each piece costs the server more than its bytes."""
    files = {b"%04d" % number: [b"f" * 120] for number in range(1000)}
    source = opened(written(([b"c" * 120] * 1000, [b"m" * 120] * 1000, files)))
    pieces = list(merge([source]))
    assert len(pieces) <= sum(map(len, pieces)) / changegroup_merge.BLOCK + 1


@pytest.mark.parametrize("end", [0, 3, 50, 110, 150, -1])
def test_a_truncated_changegroup_is_an_error(end: int) -> None:
    whole = written(([b"c" * 120], [b"m" * 100], {b"file": [b"f" * 100]}))
    with pytest.raises(CorruptChangegroupError, match=r"a link: .* in the midst of a chunk"):
        list(merge([opened(whole[:end])]))


CORRUPT: Mapping[str, bytes] = {
    "negative": struct.pack(">l", -7),
    "less than its own length": struct.pack(">l", 3),
    "no room for a delta's header": chunk(b"x" * 99),
    "an empty name": group([]) * 2 + struct.pack(">l", 4),
    "a name without end": group([]) * 2 + struct.pack(">l", 2**30),
    "the same file twice": group([]) * 2 + (chunk(b"a") + group([])) * 2 + b"\0" * 4,
    "files in another order": group([]) * 2 + chunk(b"b") + group([]) + chunk(b"a") + group([]),
}


@pytest.mark.parametrize("case", CORRUPT)
def test_a_corrupt_chunk_is_an_error(case: str) -> None:
    with pytest.raises(CorruptChangegroupError, match=r"got a chunk of|got the file"):
        list(merge([opened(written(([], [], {}))), opened(CORRUPT[case])]))


def test_a_merge_keeps_no_group_in_memory() -> None:
    """30 links with 2,000 files each, and a delta of 64 MB."""

    def source(number: int) -> Changegroup:
        def pieces() -> Iterator[bytes]:
            yield group([b"c" * 200] * 100) + group([])
            if number == 0:
                yield chunk(b"a") + struct.pack(">l", 2**26 + 4)
                yield from (b"d" * 2**16 for _ in range(2**10))
                yield b"\0" * 4
            for name in range(2000):
                yield chunk(b"file%06d" % name) + group([b"d" * 100])
            yield b"\0" * 4

        stream, rest = pieces(), b""

        def read(size: int) -> bytes:
            nonlocal rest
            rest = rest or next(stream, b"")
            part, rest = rest[:size], rest[size:]
            return part

        return Changegroup("a link", read)

    sources = [source(number) for number in range(30)]
    tracemalloc.start()
    try:
        total = sum(map(len, merge(sources)))
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert total > 2**26
    assert peak < 30 * 4 * changegroup_merge.BLOCK
