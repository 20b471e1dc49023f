"""Tags of several heads: the tags that core finds, with each line parsed once."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest
from mercurial import tags as core

from hgfleet.policies import tag_heads
from hgfleet.policies.tag_heads import HeadTags

if TYPE_CHECKING:
    from collections.abc import Sequence

ONE, TWO, THREE, NULL = (digit * 40 for digit in (b"1", b"2", b"3", b"0"))


def lines(*pairs: tuple[bytes, bytes]) -> bytes:
    return b"".join(b"%s %s\n" % pair for pair in pairs)


def tags(texts: Sequence[bytes]) -> dict[bytes, bytes]:
    heads = HeadTags()
    for text in texts:
        heads.add(text)
    return heads.nodes()


def of_core(texts: Sequence[bytes]) -> dict[bytes, bytes]:
    """Return the tags that core (7.2) finds, with its own functions."""
    ui: Any = SimpleNamespace(debug=lambda _text: None)
    tags_of_core: dict[bytes, Any] = {}
    for text in texts:
        core._updatetags(core._readtags(ui, None, text.splitlines(), b"x"), tags_of_core)
    return {name: node for name, (node, _) in tags_of_core.items() if node != bytes(20)}


@pytest.mark.parametrize(
    ("texts", "node"),
    [
        ([lines((ONE, b"v"))], ONE),
        ([lines((ONE, b"v")), lines((ONE, b"v"))], ONE),
        # Two heads that know nothing of each other: the newer head counts.
        ([lines((ONE, b"v")), lines((TWO, b"v"))], TWO),
        # The older head supersedes the line of the newer head.
        ([lines((ONE, b"v"), (TWO, b"v")), lines((ONE, b"v"))], TWO),
        ([lines((ONE, b"v")), lines((ONE, b"v"), (TWO, b"v")), lines((ONE, b"v"))], TWO),
        ([lines((ONE, b"v"), (NULL, b"v")), lines((ONE, b"v"))], None),
        # Of two heads that supersede each other, the head with more lines.
        ([lines((ONE, b"v"), (TWO, b"v"), (ONE, b"v")), lines((ONE, b"v"), (TWO, b"v"))], ONE),
        ([lines((ONE, b"v"), (ONE, b"v")), lines((ONE, b"v"), (TWO, b"v"))], TWO),
    ],
)
def test_the_line_that_is_not_superseded_counts(texts: list[bytes], node: bytes | None) -> None:
    wanted = {} if node is None else {b"v": bytes.fromhex(node.decode())}
    assert tags(texts) == of_core(texts) == wanted


def text(chance: random.Random) -> bytes:
    """Return lines of few names and few changesets, some of them malformed."""
    made = [
        b"%s%s%s"
        % (
            chance.choice((ONE, ONE, TWO, THREE, NULL, b"x" * 40, b"1" * 39)),
            chance.choice((b" ", b" ", b" ", b"  ", b"")),
            chance.choice((b"a", b"a", b"b", b"c", b"c ", b"d e")),
        )
        for _ in range(chance.randrange(7))
    ]
    return chance.choice((b"\n", b"\n", b"\r\n")).join(made)


def test_the_tags_are_those_of_core() -> None:
    chance = random.Random(7)
    compared = 0
    for _ in range(3000):
        texts = [text(chance) for _ in range(chance.randrange(6))]
        wanted = of_core(texts)
        assert tags(texts) == wanted, texts
        compared += len(wanted)
    assert compared > 3000


def test_moved_tags_are_those_that_differ_at_the_end() -> None:
    chance = random.Random(8)
    told = 0
    for _ in range(1000):
        texts = {b"%d" % number: text(chance) for number in range(4)}
        before, now = (
            chance.sample(sorted(texts), chance.randrange(len(texts) + 1)) for _ in range(2)
        )
        moved = list(tag_heads.moved(before, now, texts.__getitem__))
        old, new = (of_core([texts[name] for name in names]) for names in (before, now))
        names = sorted(old.keys() | new.keys())
        assert moved == [
            (name, old.get(name), new.get(name)) for name in names if old.get(name) != new.get(name)
        ]
        told += len(moved)
    assert told > 500


def test_texts_that_both_begin_with_are_read_once() -> None:
    read = []

    def reading(name: bytes) -> bytes:
        read.append(name)
        return lines((ONE, name))

    moved = list(tag_heads.moved([b"a", b"b", b"c"], [b"a", b"b", b"d"], reading))
    assert read == [b"a", b"b", b"c", b"d"]
    assert [name for name, _, _ in moved] == [b"c", b"d"]


def test_a_line_that_several_texts_have_is_parsed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed = []
    entry = tag_heads.entry
    monkeypatch.setattr(tag_heads, "entry", lambda line: parsed.append(line) or entry(line))
    first = lines(*((ONE, b"v%d" % number) for number in range(100)))
    tags([first, first + lines((TWO, b"w")), first])
    assert len(parsed) == 101
