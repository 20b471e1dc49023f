"""The tags that a changeset moves are told from the texts of .hgtags."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from hgfleet.policies.tags import Tag, moved, nodes_by_name

A, B, NULL = b"a" * 40, b"b" * 40, b"0" * 40


def line(node: bytes, name: bytes) -> bytes:
    return node + b" " + name + b"\n"


def names(text: bytes, *parents: bytes, ancestor: bytes = b"") -> list[str]:
    tags = moved("1" * 40, text, parents, ancestor)
    return [f"{tag.name}{'-' if tag.is_removed else ''}" for tag in tags]


def test_a_line_at_the_end_sets_its_tag() -> None:
    old = line(A, b"v1")
    assert list(moved("1" * 40, old + line(B, b"v2"), [old])) == [Tag("1" * 40, b"v2")]
    assert names(old, b"") == ["v1"]
    assert names(old, old) == []


def test_a_null_node_or_a_missing_line_removes_the_tag() -> None:
    old = line(A, b"v1") + line(A, b"v2")
    assert names(old + line(NULL, b"v1"), old) == ["v1-"]
    assert names(line(A, b"v2"), old) == ["v1-"]
    assert names(b"", old) == ["v1-", "v2-"]


def test_lines_of_another_order_and_of_another_past_count() -> None:
    # Which node a tag has is decided by the last line, and between heads by the lines before it.
    old = line(A, b"v1") + line(B, b"v1")
    assert names(line(B, b"v1") + line(A, b"v1"), old) == ["v1"]
    assert names(line(B, b"v1"), old) == ["v1"]
    assert names(line(A, b"v1") + old, old) == ["v1"]
    assert names(line(A, b"v1") + line(A, b"v2"), line(A, b"v2") + line(A, b"v1")) == []


def test_a_line_is_read_as_core_reads_it() -> None:
    text = b"no node v0\n" + A + b"\n" + A.upper() + b"   v1 \r\n\n" + line(B, b"a b\xff")
    assert list(nodes_by_name(text)) == [b"v1", b"a b\xff"]
    assert names(text, b"") == ["v1", "a b\ufffd"]


def test_a_text_that_goes_on_in_the_middle_of_a_line_is_compared_whole() -> None:
    assert names(A + b" v10\n", A + b" v1") == ["v10", "v1-"]


def test_a_merge_moves_what_neither_parent_has() -> None:
    first, second = line(A, b"v1"), line(A, b"v2")
    assert names(first + second, first, second) == []
    assert names(first + second + line(B, b"v1"), first, second) == ["v1"]
    assert names(first + second, first, first + second, ancestor=first) == []


def test_a_merge_that_takes_the_former_lines_moves_the_tag_back() -> None:
    old = line(A, b"v1")
    new = old + line(B, b"v1")
    assert names(new, old, new, ancestor=old) == []
    assert names(new, new, old, ancestor=old) == []
    assert names(old, old, new, ancestor=old) == ["v1"]
    assert names(old, new, old, ancestor=old) == ["v1"]
    assert names(b"", b"", old) == ["v1-"]
    # The other lines of a side stay a clean merge.
    other = line(A, b"v2")
    assert names(old + other, old + other, new, ancestor=old) == ["v1"]
    assert names(new + other, old + other, new, ancestor=old) == []


texts = st.lists(
    st.tuples(st.sampled_from([A, B, NULL]), st.sampled_from([b"x", b"y", b"z"])), max_size=5
).map(lambda lines: b"".join(line(*fields) for fields in lines))


@given(texts, texts)
def test_the_short_way_for_added_lines_finds_what_the_comparison_finds(
    old: bytes, new: bytes
) -> None:
    known, now = nodes_by_name(old), nodes_by_name(old + new)
    changed = {name.decode() for name in now if now[name] != known.get(name)}
    assert {name.rstrip("-") for name in names(old + new, old)} == changed
