"""The intent of a removal: its form, and how the next writer handles it."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hgext import recovery
from hgfleet.core.errors import PushlogError
from hgfleet.pushlog import removal
from hgfleet.pushlog.log_file import Tip
from hgfleet.pushlog.record import Heads
from hgfleet.pushlog.removal import Intent, Step

OWN, ANOTHER = "5" * 32, "6" * 32
LEFT, GONE = "a" * 40, "b" * 40
INTENT = Intent(
    repository=OWN,
    last=3,
    hash="c" * 64,
    heads=(LEFT, GONE),
    bookmarks=(("caf\u00e9\udc80", GONE),),
    gone=(GONE,),
    after=Heads.digest_of([LEFT]),
    moves=(("caf\u00e9\udc80", LEFT),),
    is_recorded=True,
    user="operator:eve",
    key="",
    client="192.0.2.7",
    kept="bbbbbbbbbbbb-01234567-temp.hg",
)
TIP = Tip(3, "c" * 64, OWN, 900)
BEFORE = Heads.digest_of([LEFT, GONE])


def test_the_text_of_an_intent_is_read_as_it_was() -> None:
    assert removal.parse(INTENT.text()) == INTENT
    bare = replace(INTENT, repository="", bookmarks=(), moves=(), kept="")
    assert removal.parse(bare.text()) == bare


@pytest.mark.parametrize(
    ("identity", "tip", "digest", "step"),
    [
        (OWN, TIP, BEFORE, Step.WITHDRAW),
        (OWN, TIP, INTENT.after, Step.RECORD),
        (OWN, TIP, Heads.digest_of([]), Step.RESTORE),
        ("", TIP, INTENT.after, Step.RECORD),
        (ANOTHER, TIP, INTENT.after, Step.STALE),
        ("", TIP._replace(repository=ANOTHER), INTENT.after, Step.STALE),
        (OWN, TIP._replace(id=4), INTENT.after, Step.STALE),
        (OWN, TIP._replace(hash="d" * 64), INTENT.after, Step.STALE),
        (OWN, Tip(), INTENT.after, Step.STALE),
    ],
)
def test_an_intent_is_followed_in_the_state_that_it_began_in_alone(
    identity: str, tip: Tip, digest: str, step: Step
) -> None:
    assert removal.decide(INTENT, identity, tip, digest) is step


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("repository", "team/tool"),
        ("last", "3"),
        ("hash", ""),
        ("heads", ["a"]),
        ("bookmarks", [["name"]]),
        ("gone", []),
        ("gone", [GONE + "\n"]),
        ("after", None),
        ("moves", [["name", None]]),
        ("is_recorded", 1),
        ("user", "two\nlines"),
        ("kept", "../../hgrc"),
        ("more", "values"),
    ],
)
def test_another_form_is_no_intent(name: str, value: object) -> None:
    data = json.loads(INTENT.text()) | {name: value}
    with pytest.raises(PushlogError, match="is not an intent of a removal"):
        removal.parse(json.dumps(data).encode())


@pytest.mark.parametrize("text", [b"", b"[]", b"null", b"\xff", b"[" * 100_000])
def test_a_damaged_file_is_no_intent(text: bytes) -> None:
    with pytest.raises(PushlogError, match="is not an intent of a removal"):
        removal.parse(text)


def test_an_intent_of_a_later_release_names_the_way_out() -> None:
    data = json.loads(INTENT.text()) | {"v": 2}
    with pytest.raises(PushlogError, match="has version 2, expected 1; deploy the newer release"):
        removal.parse(json.dumps(data).encode())


def test_sessions_look_for_the_file_that_a_removal_writes() -> None:
    assert removal.NAME.encode() == recovery.REMOVAL
