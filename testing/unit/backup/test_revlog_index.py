from __future__ import annotations

import struct

import pytest

from hgfleet.backup.point import revlog_index
from hgfleet.backup.point.revlog_index import SIZE, Kept
from hgfleet.core.errors import HostError

INLINE, GENERALDELTA, VERSION = 1 << 16, 1 << 17, 1


def revlog(links: list[int], header: int, lengths: int = 10) -> bytes:
    """An index with a revision per link revision, each with data of `lengths` bytes."""
    made = b""
    for number, link in enumerate(links):
        offset = (number * lengths) << 16
        first = struct.pack(">Q", offset) if number else struct.pack(">IHH", header, 0, 0)
        rest = struct.pack(">iiiiii20s12x", lengths, 99, 0, link, -1, -1, bytes([number]) * 20)
        made += first + rest + (b"d" * lengths if header & INLINE else b"")
    return made


@pytest.mark.parametrize(
    ("changesets", "revisions"), [(9, 4), (8, 3), (6, 3), (5, 2), (1, 1), (0, 0)]
)
def test_revisions_of_the_first_changesets_are_kept(changesets: int, revisions: int) -> None:
    links = [0, 1, 5, 8]
    separate = revlog(links, GENERALDELTA | VERSION)
    kept = revlog_index.keep(separate, changesets)
    assert kept == Kept(revisions, revisions * SIZE, revisions * 10, is_inline=False)
    inline = revlog(links, INLINE | GENERALDELTA | VERSION)
    kept = revlog_index.keep(inline, changesets)
    assert kept == Kept(revisions, revisions * (SIZE + 10), 0, is_inline=True)


@pytest.mark.parametrize("header", [VERSION, INLINE | VERSION])
def test_an_entry_that_is_being_written_is_left_out(header: int) -> None:
    index = revlog([0, 1], header)
    assert revlog_index.keep(index[:-3], 9).revisions == 1
    assert revlog_index.keep(index[: SIZE // 2], 9).revisions == 0


@pytest.mark.parametrize("header", [VERSION, INLINE | VERSION])
def test_the_last_kept_node_is_found(header: int) -> None:
    index = revlog([0, 1, 2], header)
    kept = revlog_index.keep(index, 2)
    assert revlog_index.last_node(index, kept) == "01" * 20
    assert revlog_index.last_node(index, revlog_index.keep(index, 0)) == ""


def test_an_empty_index_has_nothing_to_keep() -> None:
    assert revlog_index.keep(b"", 5) == Kept(0, 0, 0, is_inline=False)


@pytest.mark.parametrize("header", [0, 2, 0xDEAD, 1 << 18 | VERSION])
def test_another_format_is_refused(header: int) -> None:
    with pytest.raises(HostError, match="expected version 1"):
        revlog_index.keep(revlog([0], header), 1)
