"""Verification of a push log against its repository."""

from __future__ import annotations

from typing import Any

from hgfleet.pushlog.coverage import Contents, problems
from hgfleet.pushlog.log_file import Entry
from hgfleet.pushlog.record import FIRST, Heads, hash_of
from testing.support.pushlog_records import record

A, B, C = ("aa" * 20, "bb" * 20, "cc" * 20)


def entries(*changes: dict[str, Any]) -> list[Entry]:
    """Return the entries of a valid chain; "all" has the changesets after a record."""
    made: list[Entry] = []
    for number, change in enumerate(changes, 1):
        heads = Heads(digest=Heads.digest_of(change.pop("all")))
        previous = made[-1].hash if made else FIRST
        new = record(id=number, previous=previous, heads=heads, **change)
        made.append(Entry(made[-1].end if made else 0, new.line(), new))
        assert hash_of(new.line()) == made[-1].hash
    return made


def problems_of(log: list[Entry], *nodes: str) -> list[str]:
    """Verify against a repository where each changeset is a head."""
    return list(problems(log, Contents(frozenset(nodes), Heads.digest_of)))


PUSH_A = {"changesets": (A,), "all": [A]}
PUSH_B = {"changesets": (B,), "all": [A, B]}
STRIP_A = {"kind": "strip", "changesets": (A,), "all": [B]}
ADOPT_A = {"kind": "adoption", "changesets": (), "all": [A]}


def log(*changes: dict[str, Any]) -> list[Entry]:
    return entries(*(dict(change) for change in changes))


def test_a_log_that_fits_has_no_problem() -> None:
    assert problems_of([]) == []
    assert problems_of(log(PUSH_A, PUSH_B), A, B) == []
    assert problems_of(log(ADOPT_A, PUSH_B), A, B) == []
    assert problems_of(log(PUSH_A, PUSH_B, STRIP_A), B) == []
    assert problems_of(log(ADOPT_A, PUSH_B, STRIP_A), B) == []
    again = {"changesets": (A,), "all": [A, B]}
    assert problems_of(log(PUSH_A, PUSH_B, STRIP_A, again), A, B) == []


def test_each_difference_is_named() -> None:
    assert problems_of([], A) == ["no log, and 1 changesets; `hgfleet pushlog adopt` begins a log"]
    heads = "the repository has other heads than after its last record"
    assert problems_of(log(PUSH_A), A, B) == [f"no record has changeset {B[:12]}", f"{heads} 1"]
    assert problems_of(log(PUSH_A, PUSH_B), A) == [
        f"record 2 has changeset {B[:12]}, missing in the repository",
        f"{heads} 2",
    ]
    adopted = "the changesets without a push are not the changesets that were adopted"
    assert problems_of(log(ADOPT_A, PUSH_B), A, B, C) == [adopted, f"{heads} 2"]
    twice = {"changesets": (A,), "all": [A]}
    assert problems_of(log(PUSH_A, twice), A) == [f"changeset {A[:12]} is in records 1 and 2"]
    assert problems_of(log(PUSH_A, ADOPT_A), A) == [
        "record 2 is an adoption, and only the first record can be one",
        adopted,
    ]
    gone = {"kind": "strip", "changesets": (B,), "all": [A]}
    assert problems_of(log(PUSH_A, gone), A) == [
        f"record 2 removes {B[:12]}, which no record before it has"
    ]


def test_many_changesets_are_counted() -> None:
    nodes = [f"{number:040x}" for number in range(30)]
    (first, _) = problems_of(log(PUSH_A), A, *nodes)
    assert first.endswith(" and 20 more")


def test_a_broken_chain_ends_the_verification() -> None:
    whole = log(PUSH_A, PUSH_B)
    (only,) = problems_of([whole[1]], A, B)
    assert only.startswith("the chain is broken at byte")
