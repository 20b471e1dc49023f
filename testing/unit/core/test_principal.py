"""Ownership is decided by name and by person id."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from hgfleet.core.principal import Principal

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"


class Thing(NamedTuple):
    """A repository, an entry, a token or a note."""

    owner: str | None
    owner_id: str = ""
    created: str = "2026-11-21T00:00:00Z"


@pytest.mark.parametrize(
    ("thing", "person_id", "owns"),
    [
        (Thing("bob", FORMER), FORMER, True),
        (Thing("bob", FORMER), TODAY, False),
        # A directory that does not tell who it is.
        (Thing("bob", FORMER), "", False),
        # A thing of a release before.
        (Thing("bob"), TODAY, True),
        (Thing("bob"), "", True),
        (Thing("bob", created="2001-01-01T00:00:00Z"), TODAY, False),
        (Thing("bob", created="2001-01-01T00:00:00Z"), "", True),
        (Thing("bob", TODAY, created="2001-01-01T00:00:00Z"), TODAY, True),
        (Thing("bob", created=""), TODAY, True),
        (Thing("carol"), TODAY, False),
        (Thing("carol", TODAY), TODAY, False),
        # A thing of the inventory.
        (Thing(None), "", False),
    ],
)
def test_a_name_that_is_given_again_owns_nothing_of_the_former_person(
    thing: Thing, person_id: str, owns: bool
) -> None:
    assert Principal("bob", person_id=person_id).owns(thing) is owns
