from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hgfleet.bundles.manifest import Entry
from hgfleet.steering import selection
from hgfleet.steering.connection import EndpointError
from hgfleet.steering.selection import ObjectState

GONE = "the answer is 404"


@pytest.mark.parametrize(
    ("answers", "is_the_endpoints"),
    [
        ([], False),
        ([""], False),
        ([GONE], False),
        (["", GONE], False),
        ([selection.REFUSED], True),
        ([selection.REFUSED] * 3, True),
        ([selection.REFUSED, ""], False),
        (["", selection.REFUSED, selection.REFUSED], False),
        # Only a good answer is a witness: a 404 may come from a cache.
        ([GONE, selection.REFUSED], True),
        ([GONE, selection.REFUSED, ""], False),
    ],
)
def test_a_403_is_the_endpoints_if_nothing_answers(
    answers: list[str], is_the_endpoints: bool
) -> None:
    assert selection.is_closed(answers) == is_the_endpoints


@pytest.mark.parametrize(
    ("status", "length", "problem"),
    [
        (200, 5, None),
        (206, 5, None),
        (200, 4, "it has 4 bytes instead of 5"),
        (403, 0, selection.REFUSED),
        (404, 0, "the answer is 404"),
        (410, 0, "the answer is 410"),
    ],
)
def test_headers_tell_what_is_wrong_with_an_object(
    status: int, length: int, problem: str | None
) -> None:
    if problem is None:
        selection.classify(status, length, 5)
    else:
        with pytest.raises(selection.ObjectError, match=f"^{problem}$"):
            selection.classify(status, length, 5)


@pytest.mark.parametrize("status", [301, 400, 401, 429, 500, 503])
def test_any_other_answer_is_the_endpoints(status: int) -> None:
    with pytest.raises(EndpointError, match=f"^the answer is {status}$"):
        selection.classify(status, 5, 5)


def test_who_answered_well_a_moment_ago_is_asked_whose_a_403_is() -> None:
    refused, old, late, dead, new = (
        Entry(name, "zstd-v2", "", 1, 1, datetime(2026, 11, 20, tzinfo=UTC)) for name in "roldn"
    )
    known = {
        refused: ObjectState(asked=7),
        old: ObjectState(asked=5),
        dead: ObjectState(asked=6, headers=GONE),
        new: ObjectState(),
        late: ObjectState(asked=6),
    }
    assert selection.witnesses(known, {refused}) == [late, old, new, dead]
    assert selection.witnesses({refused: ObjectState(asked=7)}, {refused}) == []
    many = {Entry(str(n), "", "", 1, 1, refused.made): ObjectState(asked=n) for n in range(50)}
    assert [e.url for e in selection.witnesses(many, ())] == [
        str(49 - n) for n in range(selection.OTHERS)
    ]
