"""A restored host gets the registry and the tokens of the newest generation."""

from __future__ import annotations

import base64
import json

from testing.support import loading

restore = loading.module("ansible/plugins/filter/restore.py")


def document(text: str, term: int = 0, number: int = 0) -> str:
    data: dict[str, object] = {"format": 1, "tokens": {text: {}}}
    if term:
        data["generation"] = {"term": term, "number": number}
    return base64.b64encode(json.dumps(data).encode()).decode()


def newest(**documents: str) -> dict[str, str]:
    chosen: dict[str, str] = restore.newest_document(documents, "hg1")
    return chosen


def test_the_newest_generation_is_taken_by_term_and_then_by_number() -> None:
    assert newest(hg1=document("revoked", 3, 7), web1=document("", 3, 8))["host"] == "web1"
    assert newest(hg1=document("revoked", 3, 9), web1=document("", 4, 8))["host"] == "web1"
    assert newest(hg1=document("", 3, 10), web1=document("", 3, 9))["host"] == "hg1"
    two = newest(hg1=document("", 1, 1), web1=document("", 2, 2), web2=document("", 2, 3))
    assert two == {"host": "web2", "problem": ""}


def test_a_host_keeps_its_own_where_it_is_the_newest() -> None:
    same = document("x", 2, 2)
    assert newest(hg1=same, web1=same, web2=document("x", 2, 1)) == {"host": "hg1", "problem": ""}


def test_what_a_backup_of_a_release_before_has_is_older_than_a_mirrors() -> None:
    assert newest(hg1=document("revoked"), web1=document(""))["host"] == "web1"
    assert newest(hg1=document("revoked"), web1=document("", 1, 1))["host"] == "web1"
    assert newest(hg1=document("only"))["host"] == "hg1"


def test_versions_of_one_generation_that_differ_are_for_a_person_to_judge() -> None:
    told = newest(web1=document("a", 2, 2), web2=document("b", 2, 2))["problem"]
    assert told == "web1, web2 have different versions of it with generation 2.2"
    told = newest(hg1=document("r"), web1=document("a"), web2=document("b"))["problem"]
    assert told == "web1, web2 have different versions of it with no generation"


def test_a_document_that_cannot_be_read_is_none() -> None:
    for damaged in ("", "%", base64.b64encode(b"{").decode(), base64.b64encode(b"[]").decode()):
        assert newest(hg1=document("x", 1, 1), web1=damaged) == {"host": "hg1", "problem": ""}
    assert newest(web1="") == {"host": "hg1", "problem": ""}
    wrong = base64.b64encode(b'{"generation": {"term": "9", "number": 1}}').decode()
    assert newest(hg1=document("x", 1, 1), web1=wrong)["host"] == "hg1"
