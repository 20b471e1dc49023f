"""The note of an entry about the path that it came from."""

from __future__ import annotations

from typing import Any

import pytest

from hgfleet.registry.dynamic.entry import Entry
from hgfleet.selfservice import renaming
from testing.unit.selfservice.selfservice_registry import MADE

BEFORE = Entry("bob", "", MADE, moved_from="people/bob/x")
AFTER = Entry("bob", "", MADE)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ({"people/bob/y": BEFORE}, {"people/bob/y": AFTER}),
        ({"people/bob/y": AFTER}, {"people/bob/y": AFTER}),
        # Deleted by another session in the meantime.
        ({}, {}),
    ],
)
def test_an_entry_at_its_place_forgets_where_it_came_from(
    entries: dict[str, Any], expected: dict[str, Any]
) -> None:
    changed: Any = dict(entries)
    renaming.forget(changed, "people/bob/y")
    assert changed == expected
