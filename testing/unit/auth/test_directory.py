from __future__ import annotations

import pytest

from hgfleet.auth.authenticator import Entry
from hgfleet.auth.directory import bound_as, order, person_of


def test_servers_that_failed_are_asked_last() -> None:
    uris = ("ldapi:///", "ldaps://one", "ldaps://two")
    assert order(uris, set()) == list(uris)
    assert order(uris, {"ldapi:///", "ldaps://one"}) == ["ldaps://two", "ldapi:///", "ldaps://one"]
    assert order(uris, set(uris)) == list(uris)


BOB = "uid=bob,ou=people,dc=example,dc=org"


def test_a_name_without_an_entry_is_in_no_bind() -> None:
    """The provider logs binds, and the name may be a password in the wrong field."""
    base = "ou=people,dc=example,dc=org"
    assert bound_as(Entry("bob", BOB, frozenset()), base) == BOB
    assert bound_as(None, base) == f"uid=nobody-has-this-name,{base}"


@pytest.mark.parametrize(
    ("entries", "dn"),
    [
        ([(BOB, {"uid": [b"bob"]})], BOB),
        ([(BOB, {"uid": [b"bob"], "pwdAccountLockedTime": [b"20261121000000Z"]})], BOB),
        ([(BOB, {"uid": [b"bob"], "pwdaccountlockedtime": [b"000001010000Z"]})], None),
        ([(BOB, {"uid": [b"Bob"]})], None),
        ([(BOB, {"uid": [b"bob", b"alice"]})], None),
        ([(BOB, {})], None),
        ([(BOB, {"uid": [b"bob"]}), ("uid=bob2", {"uid": [b"bob"]})], None),
        ([], None),
    ],
)
def test_a_person_is_one_enabled_entry_of_that_name(
    entries: list[tuple[str, dict[str, list[bytes]]]], dn: str | None
) -> None:
    assert person_of(entries, "bob") == (dn and (dn, ""))


def test_a_person_has_the_uuid_of_the_entry() -> None:
    person_id = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
    entries = [(BOB, {"uid": [b"bob"], "entryUUID": [person_id.encode()]})]
    assert person_of(entries, "bob") == (BOB, person_id)
