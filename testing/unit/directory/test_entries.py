"""One enabled person with a safe name, or a reason."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.directory import entries

if TYPE_CHECKING:
    from hgfleet.directory.entries import Attributes

LOCKED = b"000001010000Z"
PERSON_ID = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"


def test_attributes_are_found_in_any_case() -> None:
    attributes = {"sshPublicKey": [b"a", b"\xff"], "UID": [b"alice"]}
    assert entries.values(attributes, "sshpublickey") == (b"a", b"\xff")
    assert entries.texts(attributes, "sshPublicKey") == ("a", "\\xff")
    assert entries.texts(attributes, "uid") == ("alice",)
    assert entries.texts(attributes, "mail") == ()


def test_a_person_has_a_name_a_dn_and_attributes() -> None:
    entry: Attributes = {"UID": [b"alice"], "pwdAccountLockedTime": [b"20261121000000Z"]}
    assert entries.person_of([("uid=alice", entry)]) == ("alice", "uid=alice", entry)


@pytest.mark.parametrize(
    ("answers", "reason"),
    [
        ([], "unknown"),
        ([{"uid": [b"a"]}, {"uid": [b"b"]}], "ambiguous"),
        ([{}], "name"),
        ([{"uid": [b"a", b"b"]}], "name"),
        ([{"uid": [b"a b"]}], "name"),
        ([{"uid": [b"\xff"]}], "name"),
        ([{"uid": [b"a"], "pwdaccountlockedtime": [LOCKED]}], "disabled"),
    ],
)
def test_other_answers_are_denied(answers: list[Attributes], reason: str) -> None:
    with pytest.raises(entries.DeniedError) as caught:
        entries.person_of([(f"uid={n}", entry) for n, entry in enumerate(answers)])
    assert caught.value.reason == reason


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"entryUUID": [b"B862B310-7CCC-103D-8A1F-1B0C5D2E3F40"]}, PERSON_ID),
        ({"entryuuid": [PERSON_ID.encode()]}, PERSON_ID),
        ({}, ""),
        ({"entryUUID": [b"--user root"]}, ""),
        ({"entryUUID": [PERSON_ID.encode(), PERSON_ID.encode()]}, ""),
    ],
)
def test_the_person_id_is_the_entry_uuid(given: Attributes, expected: str) -> None:
    assert entries.person_id_of(given) == expected


def test_groups_with_unsafe_names_are_counted_and_left_out() -> None:
    names = [[b"b"], [b"a"], [b"a"], [b"Domain Users"], [b"c", b"d"], [b"public"], []]
    groups = [(f"cn={n}", {"CN": values}) for n, values in enumerate(names)]
    assert entries.groups_of(groups) == (("a", "b"), 4)


def test_a_person_in_too_many_groups_is_denied() -> None:
    groups = [(f"cn={n}", {"cn": [b"g%d" % n]}) for n in range(entries.MAX_GROUPS + 1)]
    with pytest.raises(entries.DeniedError) as caught:
        entries.groups_of(groups)
    assert caught.value.reason == "groups"
    assert len(entries.groups_of(groups[1:])[0]) == entries.MAX_GROUPS
