"""Generations of documents: none is given twice, and none goes back."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from hgfleet.core import files, generation
from hgfleet.core.errors import RegistryError
from hgfleet.core.generation import Decision, Generation, Memory, Version

if TYPE_CHECKING:
    from pathlib import Path

OLD, NEW = Generation(1, 50), Generation(1, 60)
HERE = Memory(NEW, "60")


@pytest.mark.parametrize(
    "value",
    [
        *(None, 7, [], {}, {"term": 1}, {"term": True, "number": 1}, {"term": 0, "number": 1}),
        *({"term": 1, "number": -1}, {"term": 1, "number": 10**16}, {"term": "1", "number": 1}),
    ],
)
def test_what_is_no_generation_is_none(value: object) -> None:
    assert generation.of(value) is None


def test_a_generation_is_read_as_it_was_written() -> None:
    text = json.dumps({generation.KEY: NEW.to_json()}).encode()
    assert generation.version(text) == Version(NEW, generation.digest(text), epoch=1)
    assert generation.version(b"{").generation is None
    assert generation.version(b"[]").generation is None


@pytest.mark.parametrize(
    ("memory", "epoch", "made"),
    [
        (Memory(), 1, (1, 1)),
        (Memory(), 3, (3, 1)),
        (Memory(NEW, epoch=1), 1, (1, 61)),
        # A promotion or a restore has begun an epoch.
        (Memory(NEW, epoch=1), 2, (2, 61)),
        # Its file is lost: no term goes back.
        (Memory(Generation(4, 60), epoch=4), 1, (4, 61)),
        # A mirror that becomes the primary has made no generation, and others may have later ones.
        (Memory(NEW), 1, (2, 61)),
        # An operator has begun terms before the epoch came.
        (Memory(Generation(3, 60), epoch=1), 2, (4, 61)),
    ],
)
def test_the_next_generation(memory: Memory, epoch: int, made: tuple[int, int]) -> None:
    assert generation.following(memory, epoch).generation == made


def test_an_operator_begins_a_term() -> None:
    made = generation.following(Memory(NEW, epoch=1), 1, begins=True)
    assert (made.generation, made.epoch) == ((2, 61), 1)
    assert generation.following(made, 1).generation == (2, 62)


def test_a_mirror_takes_what_is_newer_or_its_own() -> None:
    later = Generation(1, 61), Generation(2, 1)
    for there in (Version(NEW, "60"), *(Version(newer, "x") for newer in later)):
        assert generation.decide(HERE, there) == Decision()
    # A rebuilt mirror has no memory.
    for there in (Version(None, "x"), Version(OLD, "x")):
        assert generation.decide(Memory(), there) == Decision()


@pytest.mark.parametrize(
    ("there", "words", "went_back"),
    [
        (Version(None, "x"), "has no generation", False),
        (Version(OLD, "50"), "generation 1.50 of the primary is older", True),
        (Version(NEW, "other"), "another content under generation 1.60", False),
    ],
)
def test_a_mirror_refuses_what_is_older(there: Version, words: str, went_back: bool) -> None:
    decision = generation.decide(HERE, there)
    assert words in decision.refused
    assert "keeps generation 1.60" in decision.refused
    assert decision.went_back == went_back


def test_a_term_in_which_the_primary_went_back_is_over() -> None:
    """Its writers go on from the older generation, and reach the number that this mirror has."""
    seen = Memory(NEW, "60", went_back=True)
    later = generation.decide(seen, Version(Generation(1, 61), "x"))
    assert "a term in which it went back" in later.refused
    assert later.went_back
    # It is over for any other version, until a new term, or this mirror's own version.
    assert generation.decide(seen, Version(None, "x")).went_back
    assert generation.decide(seen, Version(Generation(2, 51), "x")) == Decision()
    assert generation.decide(seen, Version(NEW, "60")) == Decision()


def test_a_primary_that_follows_the_version_of_this_mirror_has_come_back() -> None:
    """An operator put the newest version back, and a session wrote before this mirror looked."""
    seen = Memory(NEW, "ab" * 32, went_back=True)
    later = Version(Generation(1, 61), "x", {"60": "ab" * 8})
    assert generation.decide(seen, later) == Decision()
    # Any other past is refused.
    for past in ({}, {"60": "other"}, {"59": "ab" * 8}):
        assert generation.decide(seen, later._replace(past=past)).refused
    assert generation.decide(replace(seen, sha256=""), later._replace(past={"60": ""})).refused


def test_a_number_says_nothing_without_its_content() -> None:
    """A mirror that was away did not see that the primary went back, and wrote on."""
    past = {"59": "x", "60": "60"}
    later = Version(Generation(1, 70), "x", past)
    assert generation.decide(HERE, later) == Decision()
    other = generation.decide(HERE, later._replace(past=past | {"60": "other"}))
    assert "generation 1.70 of the primary follows another version 1.60" in other.refused
    assert other.went_back
    # The past names versions around 1.60, without 1.60: the primary never had this mirror's.
    gap = generation.decide(HERE, later._replace(past={"59": "x", "61": "x"}))
    assert "follows another version 1.60" in gap.refused
    # The mirror was away for longer than that; or the primary has begun a term.
    assert generation.decide(HERE, later._replace(past={"69": "x"})) == Decision()
    begun = Version(Generation(2, 70), "x", {"60": "other"})
    assert generation.decide(HERE, begun) == Decision()


def test_a_version_names_those_before_it() -> None:
    memory = Memory(NEW, "ab" * 32, epoch=1, past={str(number): "x" for number in range(20, 60)})
    made = generation.following(memory, 1)
    assert list(made.past) == [str(number) for number in range(29, 61)]
    assert made.past["60"] == "ab" * 8
    value = {"past": {"7": "x", "8": 8, "x": "x", "9" * 400: "x"}}
    assert generation.past_of(value) == {"7": "x"}
    assert generation.past_of({"past": []}) == generation.past_of(7) == {}


def test_a_memory_is_as_new_as_its_document() -> None:
    assert generation.known(HERE, None) == HERE
    assert generation.known(HERE, Version(None, "x")) == HERE
    assert generation.known(HERE, Version(OLD, "x")) == HERE
    there = Version(Generation(3, 61), "x", epoch=2)
    assert generation.known(HERE, there) == Memory(there.generation, "x", epoch=2)


def test_a_document_names_the_epoch_of_a_term_that_is_later() -> None:
    """An operator has begun a term; then a restore, or a promotion, begins an epoch."""
    begun = generation.following(Memory(NEW, "60", epoch=1), 1, begins=True)
    assert begun.generation is not None
    content = json.dumps({generation.KEY: begun.generation.to_json(begun.past, 1)}).encode()
    here = generation.version(content)
    assert here == Version(begun.generation, generation.digest(content), begun.past, 1)
    # The copy of a mirror, on a host that has no memory of it.
    known = generation.known(Memory(), here)
    assert known.epoch == 1
    made = generation.following(known, 2)
    assert made.generation == (3, 62)
    assert generation.is_due(known, here, 2)
    later = Memory(Generation(2, 63), "63")
    assert generation.decide(later, Version(made.generation, "x", made.past)) == Decision()
    # In the same epoch it may be an older copy, and begins none.
    assert generation.following(known, 1).generation == (2, 62)


@pytest.mark.parametrize("epoch", [None, 0, -1, True, "1", 10**16])
def test_the_epoch_of_a_document_is_its_term_where_it_names_no_other(epoch: object) -> None:
    value = {"term": 2, "number": 60, "epoch": epoch}
    assert Version.of(value, b"").epoch == 2
    assert "epoch" not in Generation(2, 60).to_json({}, 2)


def test_a_killed_writer_has_not_gone_back() -> None:
    memory = Memory(NEW, "60", before="59")
    for sha256, is_back in (("59", False), ("x", True)):
        there = Version(Generation(1, 59), sha256)
        assert generation.has_gone_back(memory, there) == is_back
    assert not generation.has_gone_back(memory, Version(None, "x"))
    assert not generation.has_gone_back(memory, Version(NEW, "x"))


def test_a_version_that_was_written_is_gone_back_from_by_one(tmp_path: Path) -> None:
    texts = [
        json.dumps({generation.KEY: Generation(1, number).to_json()}).encode() for number in (1, 2)
    ]
    older, newest = (generation.version(text) for text in texts)
    with files.open_folder(tmp_path) as folder:
        writer = generation.Writer(folder, "registry.json", older, 1)
        writer.remember(texts[1])
        # Killed here, its next writer goes on.
        assert generation.Writer(folder, "registry.json", older, 1).is_mine
        writer.done()
        with pytest.raises(RegistryError, match=r"got generation 1.1, expected 1.2"):
            generation.Writer(folder, "registry.json", older, 1)
        # Killed after it wrote the document: who opens it next knows that it is there.
        writer.remember(texts[1])
        assert generation.Writer(folder, "registry.json", newest, 1).is_mine
        assert generation.read(folder, "registry.json").before == ""
        with pytest.raises(RegistryError, match=r"got generation 1.1, expected 1.2"):
            generation.Writer(folder, "registry.json", older, 1)


def test_a_memory_survives_in_its_file(tmp_path: Path) -> None:
    memory = Memory(NEW, "60", "59", 1, "it is older", "50", {"59": "59"}, went_back=True)
    with files.open_folder(tmp_path) as folder:
        assert generation.read(folder, "registry.json") == Memory()
        generation.write(folder, "registry.json", memory)
        assert generation.read(folder, "registry.json") == memory
    (tmp_path / ".registry-generation").write_text(
        '{"generation": {"term": 1, "number": 1}, "x": 1}'
    )
    assert generation.read_beside(tmp_path / "registry.json") == Memory()
    assert generation.read_beside(tmp_path / "none/registry.json") == Memory()


def test_a_number_is_used_once_though_the_writer_is_killed(tmp_path: Path) -> None:
    numbers = []
    with files.open_folder(tmp_path) as folder:
        for _ in range(3):
            writer = generation.Writer(folder, "registry.json", None, 1)
            numbers.append(writer.next()["number"])
            # Killed before it wrote the document.
            writer.remember(b"text")
    assert numbers == [1, 2, 3]


def test_a_document_that_went_back_is_refused_by_the_writer_and_begun_by_an_operator(
    tmp_path: Path,
) -> None:
    first, second = (
        json.dumps({generation.KEY: Generation(1, number).to_json()}).encode() for number in (1, 3)
    )
    with files.open_folder(tmp_path) as folder:
        memory = Memory(Generation(1, 3), generation.digest(second), "2", 1)
        generation.write(folder, "registry.json", memory)
        with pytest.raises(RegistryError, match=r"got generation 1.1, expected 1.3.*begin-term"):
            generation.Writer(folder, "registry.json", generation.version(first), 1)
        generation.begin_term(folder, "registry.json", generation.version(first), 1)
        writer = generation.Writer(folder, "registry.json", generation.version(first), 1)
        assert writer.is_due
        assert generation.of(writer.next()) == (2, 5)
