"""Pushes that operators gave up: the content of the file, and the pushes that a relay leaves."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from hgfleet.core.errors import HostError
from hgfleet.pushlog.log_file import Tip
from hgfleet.replication.terms import given_up
from hgfleet.replication.terms.given_up import GivenUp
from hgfleet.replication.terms.losses import Known

if TYPE_CHECKING:
    from pathlib import Path

ID = "7d" * 16
ONE, OTHER = "11" * 32, "22" * 32


def test_a_push_is_given_up_by_identity_number_and_hash(tmp_path: Path) -> None:
    given_up.note(tmp_path, 2, [(ID, 7, ONE)])
    given_up.note(tmp_path, 3, [("8e" * 16, 1, "")])
    pushes = given_up.load(tmp_path)
    assert pushes.epoch == 3
    assert pushes.has(ID, 7, ONE, 1, current=3)
    assert pushes.has(ID, 7, "", 1, current=3)
    assert pushes.has("8e" * 16, 1, OTHER, 1, current=3)
    for identity, number, hash_ in ((ID, 7, OTHER), (ID, 6, ONE), ("9f" * 16, 7, ONE)):
        assert not pushes.has(identity, number, hash_, 1, current=3)


def test_a_term_of_the_release_before_gave_up_what_earlier_terms_have_beyond() -> None:
    assert GivenUp().has(ID, 7, ONE, 1, current=2)
    assert not GivenUp().has(ID, 7, ONE, 2, current=2)
    assert not GivenUp(2).has(ID, 7, ONE, 1, current=2)
    assert GivenUp(2).has(ID, 7, ONE, 2, current=3)


def test_a_lift_keeps_what_a_term_of_the_release_before_gave_up(tmp_path: Path) -> None:
    given_up.begin(tmp_path, 3, 2)
    given_up.note(tmp_path, 3, [("8e" * 16, 9, ONE)])
    pushes = given_up.load(tmp_path)
    assert (pushes.epoch, pushes.former) == (3, 2)
    assert pushes.has(ID, 7, ONE, 1, current=3)
    assert not pushes.has(ID, 7, ONE, 2, current=3)
    # Further lifts of this release move nothing; a term that the release before begins does.
    given_up.begin(tmp_path, 4, 3)
    assert given_up.load(tmp_path).former == 2
    given_up.begin(tmp_path, 7, 6)
    pushes = given_up.load(tmp_path)
    assert pushes.has(ID, 7, ONE, 5, current=7)
    assert not pushes.has(ID, 7, ONE, 6, current=7)


def test_a_lift_before_any_promotion_gives_up_nothing_else(tmp_path: Path) -> None:
    given_up.begin(tmp_path, 2, 1)
    assert not given_up.load(tmp_path).has(ID, 7, ONE, 1, current=2)


def test_only_a_term_of_the_release_before_leaves_pushes_unnamed(tmp_path: Path) -> None:
    assert given_up.load(tmp_path).is_settled(1)
    assert not given_up.load(tmp_path).is_settled(2)
    given_up.begin(tmp_path, 3, 2)
    assert not given_up.load(tmp_path).is_settled(3)
    given_up.note(tmp_path, 4, [])
    assert not given_up.load(tmp_path).is_settled(4)
    assert GivenUp(3).is_settled(3)
    assert not GivenUp(3).is_settled(4)


def test_a_file_without_the_epoch_of_the_release_before_is_read() -> None:
    assert given_up.parse(b'{"epoch": 2, "pushes": {}}') == GivenUp(2)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"epoch": 1}',
        '{"epoch": true, "pushes": {}}',
        '{"epoch": 1, "pushes": {"x": []}}',
        '{"epoch": 1, "former": -1, "pushes": {}}',
        '{"epoch": 1, "former": null, "pushes": {}}',
        f'{{"epoch": 1, "pushes": {{"{ID}": [["7", ""]]}}}}',
        f'{{"epoch": 1, "pushes": {{"{ID}": [7]}}}}',
    ],
)
def test_a_damaged_file_is_refused_with_the_way_out(tmp_path: Path, text: str) -> None:
    (tmp_path / given_up.FILE).write_text(text)
    with pytest.raises(HostError, match=r"restore it from a backup, or replace .*EPOCH"):
        given_up.load(tmp_path)


def test_the_way_out_of_a_damaged_file_gives_no_push_up(tmp_path: Path) -> None:
    (tmp_path / "epoch.json").write_text('{"epoch": 3, "primary": "hg1"}')
    (tmp_path / given_up.FILE).write_text("")
    with pytest.raises(HostError) as caught:
        given_up.load(tmp_path)
    assert "do not remove it" in str(caught.value)
    advised = re.search(r"replace its content by (.*\}\})", str(caught.value))
    assert advised is not None
    (tmp_path / given_up.FILE).write_text(advised[1])
    assert not given_up.load(tmp_path).has(ID, 7, ONE, 2, current=3)


def test_pushes_that_the_logs_do_not_have_are_beyond() -> None:
    tips = {ID: Tip(7, ONE, ID, 100, 2)}

    def beyond(number: int, hash_: str = "", epoch: int = 2) -> bool:
        known = Known("the stream", "team/tool", ID, number, hash_, epoch)
        return bool(given_up.beyond(tips, [known], lambda *_: ONE))

    assert beyond(8)
    assert beyond(7, OTHER)
    assert beyond(5, OTHER, 1)
    assert not beyond(7, ONE)
    assert not beyond(7)
    assert not beyond(6, OTHER)
    # Its folder is not here.
    assert given_up.beyond({}, [Known("the stream", "team/tool", ID, 1, ONE)], lambda *_: "")


def test_a_push_that_the_log_has_is_not_given_up() -> None:
    """The stream is behind the log, which has gone on in the next epoch."""
    tips = {ID: Tip(11, OTHER, ID, 100, 2)}
    streamed = [Known("the stream", "team/tool", ID, 10, ONE, 1)]
    asked = []

    def hash_at(identity: str, number: int) -> str:
        asked.append((identity, number))
        return ONE

    assert given_up.beyond(tips, streamed, hash_at) == []
    assert asked == [(ID, 10)]
    assert given_up.beyond(tips, streamed, lambda *_: OTHER) == [(ID, 10, ONE)]
    unknown = [Known("the stream", "team/tool", ID, 10, "", 1)]
    for hash_ in (ONE, ""):
        assert given_up.beyond(tips, unknown, lambda *_, hash_=hash_: hash_) == [(ID, 10, "")]
