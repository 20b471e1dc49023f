"""When a person id was made: an id of OpenLDAP, another id of version 1, and other ids."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from hgfleet.core.person_id import is_older, made


@pytest.mark.parametrize(
    ("person_id", "created"),
    [
        # entryUUID and createTimestamp of the same entry, as OpenLDAP prints them.
        ("3096cde2-64b5-103c-836e-1d0b0995a781", datetime(2022, 5, 10, 13, 59, 44, tzinfo=UTC)),
        ("e55fe110-e33a-103c-8b11-df684872bf89", datetime(2022, 10, 18, 14, 14, 17, tzinfo=UTC)),
        # The example of RFC 9562, version 1.
        ("c232ab00-9414-11ec-b3c8-9f6bdeced846", datetime(2022, 2, 22, 19, 22, 22, tzinfo=UTC)),
    ],
)
def test_an_id_tells_when_it_was_made(person_id: str, created: datetime) -> None:
    seconds = made(person_id)
    assert seconds is not None
    assert 0 <= seconds - created.timestamp() < 1


NOW = datetime(2026, 11, 24, tzinfo=UTC).timestamp()


@pytest.mark.parametrize(
    "person_id",
    ["48571d94-b774-499c-a17f-9eb9f10678f9", "00000000-0000-1000-8000-000000000000"],
)
def test_an_id_that_tells_no_time_makes_nothing_older(person_id: str) -> None:
    assert made(person_id) is None
    assert not is_older("2001-01-01T00:00:00Z", person_id, NOW)


def test_nothing_is_older_where_a_time_is_not_known() -> None:
    assert not is_older("", "3096cde2-64b5-103c-836e-1d0b0995a781")
    assert not is_older("2001-01-01T00:00:00Z", "")


@pytest.mark.parametrize(
    ("created", "expected"),
    [
        ("2022-05-10T12:00:00Z", True),
        # Clocks differ.
        ("2022-05-10T13:30:00Z", False),
        ("2022-05-10T15:00:00Z", False),
        # From the future, which tells nothing.
        ("2031-01-01T00:00:00Z", True),
    ],
)
def test_what_was_made_before_the_person_is_older(created: str, expected: bool) -> None:
    assert is_older(created, "3096cde2-64b5-103c-836e-1d0b0995a781", NOW) is expected
