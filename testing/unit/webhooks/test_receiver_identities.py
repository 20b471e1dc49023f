"""Identities of receivers: which stay, which end, and marks that tell nothing."""

from __future__ import annotations

import pytest

from hgfleet.webhooks import receiver_identities
from hgfleet.webhooks.receiver_identities import Known, assign, known, parse

URL, OTHER_URL = "https://ci.example.org/hook?token=secret", "https://chat.example.org/"
SECRET, OTHER_SECRET = b"0123456789abcdef", b"fedcba9876543210"
CI, CHAT = "c1" * 8, "c4" * 8

THERE = (known(CI, "ci", URL, SECRET), known(CHAT, "chat", OTHER_URL, OTHER_SECRET))


def assigned(**receivers: tuple[str, bytes]) -> dict[str, str]:
    return {name: receiver.identity for name, receiver in assign(receivers, THERE).items()}


@pytest.mark.parametrize(
    ("name", "url", "secret", "expected"),
    [
        ("ci", URL, SECRET, CI),
        ("ci", OTHER_URL, SECRET, CI),
        ("ci", URL, OTHER_SECRET, CI),
        ("renamed", URL, SECRET, CI),
        # Another receiver: the name, or the URL or secret under another name, is no evidence.
        ("ci", "https://new.example.org/", b"another secret", None),
        ("renamed", URL, OTHER_SECRET, None),
        ("renamed", OTHER_URL, SECRET, None),
    ],
)
def test_a_receiver_stays_through_one_change_at_a_time(
    name: str, url: str, secret: bytes, expected: str | None
) -> None:
    identity = assigned(**{name: (url, secret)})[name]
    assert identity == expected if expected else identity not in (CI, CHAT)


def test_two_receivers_exchange_their_names() -> None:
    given = assigned(ci=(OTHER_URL, OTHER_SECRET), chat=(URL, SECRET))
    assert given == {"ci": CHAT, "chat": CI}


def test_a_receiver_under_the_name_of_a_retired_one_keeps_its_own_identity() -> None:
    """Both have the same secret, so the retired receiver has the same name and secret."""
    new = known("c2" * 8, "ci-new", OTHER_URL, SECRET)
    for there in ((THERE[0], new), (new, THERE[0])):
        assert assign({"ci": (OTHER_URL, SECRET)}, there)["ci"].identity == new.identity


def test_a_receiver_with_a_new_secret_leaves_another_its_identity() -> None:
    """The renamed receiver comes later in the list, and still has its own identity."""
    given = assigned(chat=(OTHER_URL, SECRET), talk=(OTHER_URL, OTHER_SECRET))
    assert given["talk"] == CHAT
    assert given["chat"] not in (CI, CHAT)


def test_an_identity_is_that_of_one_receiver_and_a_name_comes_first() -> None:
    given = assigned(copy=(URL, SECRET), ci=(URL, SECRET), twin=(URL, SECRET))
    assert given["ci"] == CI
    assert len({*given.values(), CI, CHAT}) == 4


def test_an_identity_is_found_again_in_its_consumer() -> None:
    receiver = THERE[0]
    assert parse(receiver.consumer, receiver.description) == receiver
    assert URL not in receiver.description
    assert SECRET.decode() not in receiver.description
    assert known(CHAT, "ci", URL, SECRET).url != receiver.url
    renamed = assign({"renamed": (URL, SECRET)}, THERE)["renamed"]
    assert parse(renamed.consumer, renamed.description) == renamed


@pytest.mark.parametrize("name", ["webhooks", "hgweb1", "webhook=", "webhook=xyz", CI])
def test_consumers_of_others_are_no_receivers(name: str) -> None:
    assert parse(name, THERE[0].description) is None


@pytest.mark.parametrize("description", [None, "", "[]", "{}", "{"])
def test_a_description_that_was_changed_is_of_no_receiver(description: str | None) -> None:
    """It matches no receiver, so it is removed."""
    receiver = parse(f"{receiver_identities.PREFIX}{CI}", description)
    assert receiver == Known(CI, "", "", "")
    assert assign({"ci": (URL, SECRET)}, [receiver])["ci"].identity != CI
