"""The lists of parts cover core's table, and each direction takes its own parts."""

from __future__ import annotations

from itertools import combinations

import pytest
from mercurial import bundle2, bundle2_part_handlers, changegroup

from hgfleet.hg import bundle_parts
from hgfleet.hg.bundle_parts import Answer, Direction, answer

bundle2_part_handlers.init()
CORE = {name.decode(): handler for name, handler in bundle2.parthandlermapping.items()}


def test_every_part_of_core_is_in_one_of_the_lists() -> None:
    lists = (set(bundle_parts.PUSHED), bundle_parts.TAKEN, bundle_parts.CLOSED)
    # An extension that another test loads may have taken it out.
    assert set().union(*lists) == set(CORE) | {"remote-changegroup"}
    assert lists[2].isdisjoint(lists[0] | lists[1])
    assert bundle_parts.INTERRUPTING <= bundle_parts.ANSWERED
    assert {"bookmarks", "changegroup", "obsmarkers", "phase-heads"} == bundle_parts.REBUILT
    closed_in_pushes = bundle_parts.ANSWERED | bundle_parts.RAW | bundle_parts.CLOSED
    assert closed_in_pushes.isdisjoint(bundle_parts.PUSHED)
    assert all(names.isdisjoint(other) for names, other in combinations(lists[2:], 2))


def test_every_parameter_of_a_pushed_part_is_in_one_of_two_lists() -> None:
    for name, listed in bundle_parts.PUSHED.items():
        closed = bundle_parts.CLOSED_PARAMETERS.get(name, frozenset())
        known = {parameter.decode() for parameter in getattr(CORE[name], "params", ())}
        assert listed | closed == known, name
        assert listed.isdisjoint(closed)


def test_versions_of_a_push_are_versions_of_core() -> None:
    known = {version.decode() for version in changegroup._packermap}
    assert known - bundle_parts.VERSIONS == {"04", "05"}
    assert known > bundle_parts.VERSIONS


@pytest.mark.parametrize("mandatory", [True, False])
def test_a_push_has_its_parts_and_no_other_that_core_knows(mandatory: bool) -> None:
    for name in CORE:
        reply = answer(Direction.PUSH, name, mandatory=mandatory, known=True, logged=True)
        assert (reply is Answer.TAKE) == (name in bundle_parts.PUSHED), name
    new = answer(Direction.PUSH, "of-a-later-core", mandatory=mandatory, known=True, logged=True)
    assert new is Answer.REFUSE
    # Core has no handler: it refuses the part, or passes it over.
    new = answer(Direction.PUSH, "flying-carpet", mandatory=mandatory, known=False, logged=True)
    assert new is Answer.TAKE
    # Core has no handler any more.
    new = answer(
        Direction.PUSH, "remote-changegroup", mandatory=mandatory, known=False, logged=True
    )
    assert new is Answer.REFUSE


@pytest.mark.parametrize(
    ("part", "mandatory", "logged", "expected"),
    [
        ("changegroup", True, True, Answer.TAKE),
        ("output", False, True, Answer.TAKE),
        ("stream2", True, False, Answer.TAKE),
        ("stream2", True, True, Answer.REFUSE),
        ("stream2", False, True, Answer.REFUSE),
        ("hgtagsfnodes", False, True, Answer.SKIP),
        ("hgtagsfnodes", True, True, Answer.REFUSE),
        ("cache:rev-branch-cache", False, False, Answer.SKIP),
        ("pushvars", True, False, Answer.REFUSE),
        ("check:heads", True, False, Answer.REFUSE),
        ("of-a-later-core", False, False, Answer.SKIP),
    ],
)
def test_what_is_pulled_or_read_from_a_file_has_the_parts_of_answers(
    part: str, mandatory: bool, logged: bool, expected: Answer
) -> None:
    reply = answer(Direction.TAKEN, part, mandatory=mandatory, known=True, logged=logged)
    assert reply is expected


def test_a_part_inside_of_another_one_tells_an_error_or_is_refused() -> None:
    taken = {
        name
        for name in CORE
        if answer(Direction.INTERRUPTION, name, mandatory=False, known=True, logged=False)
        is Answer.TAKE
    }
    assert taken == {"error:abort"}


def test_sentences_fit_into_the_reply_to_a_push() -> None:
    for direction in Direction:
        for part in (*CORE, "\x1b[31m" * 40):
            sentence = bundle_parts.refusal(direction, part)
            assert len(sentence) <= 255, sentence
            assert sentence.isprintable()
            assert "nothing was changed" in sentence


def test_parameters_and_versions_of_a_push() -> None:
    known = {"version", "treemanifest"}
    assert bundle_parts.parameters_refusal("changegroup", {"version"}, known) is None
    assert bundle_parts.parameters_refusal("changegroup", {"colour"}, known) is None
    said = bundle_parts.parameters_refusal("changegroup", {"treemanifest", "version"}, known)
    assert said is not None
    assert "the parameter treemanifest of the part changegroup" in said
    assert bundle_parts.version_refusal("02", {"01", "02", "04"}) is None
    said = bundle_parts.version_refusal("04", {"01", "02", "04"})
    assert said is not None
    assert "expected 01, 02;" in said
