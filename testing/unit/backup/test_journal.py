from __future__ import annotations

import pytest

from hgfleet.backup.point import transaction_journal
from hgfleet.backup.point.transaction_journal import Journal


def test_sizes_and_copies_are_those_before_the_transaction() -> None:
    appended = b"data/f4.i\x000\n00changelog.i\x00192\npushlog\x0077\n"
    replaced = (
        b"2\n"
        b"\0phaseroots\0journal.backup.phaseroots.bck\x000\n"
        b"plain\0bookmarks\0journal.backup.bookmarks.bck\x000\n"
        b"\0bookmarks\0\x000\n"
    )
    assert transaction_journal.parse(appended, replaced) == Journal(
        {"store/data/f4.i": 0, "store/00changelog.i": 192, "store/pushlog": 77},
        {
            "store/phaseroots": "store/journal.backup.phaseroots.bck",
            "bookmarks": "journal.backup.bookmarks.bck",
            "store/bookmarks": None,
        },
    )


def test_the_first_line_of_a_file_counts() -> None:
    journal = transaction_journal.parse(b"pushlog\x007\npushlog\x009\n", b"")
    assert journal == Journal({"store/pushlog": 7}, {})


def test_a_line_that_is_being_written_announces_nothing() -> None:
    assert transaction_journal.parse(b"a\x001\npushlog\x007", b"2\n\0phase") == Journal(
        {"store/a": 1}, {}
    )


@pytest.mark.parametrize(
    ("appended", "replaced"), [(b"a 1\n", b""), (b"a\0x\n", b""), (b"", b"3\n"), (b"", b"2\na\n")]
)
def test_another_format_is_no_journal(appended: bytes, replaced: bytes) -> None:
    assert transaction_journal.parse(appended, replaced) is None
