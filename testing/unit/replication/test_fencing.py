from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from hgfleet.pushlog import term as term_file
from hgfleet.pushlog.record import FIRST, Heads, Record, hash_of
from hgfleet.replication.protocol.messages import PushMessage, decode_push
from hgfleet.replication.protocol.settings import Role, Settings
from hgfleet.replication.terms import host_terms
from hgfleet.replication.terms.host_terms import Standing, Term, standing

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.parametrize(
    ("last", "own", "expected"),
    [
        (None, (1, ""), Standing.CLAIM),
        (None, (3, "hg1"), Standing.CLAIM),
        (None, (3, "hgweb1"), Standing.FENCED),
        ((1, "hg1"), (1, ""), Standing.CONFIRMED),
        ((4, "hg1"), (1, "hg1"), Standing.CONFIRMED),
        ((4, "hg1"), (3, "hgweb1"), Standing.CONFIRMED),
        ((2, "hgweb1"), (1, ""), Standing.FENCED),
        ((2, "hgweb1"), (1, "hg1"), Standing.FENCED),
        ((2, "hgweb1"), (2, "hgweb1"), Standing.FENCED),
        ((2, "hgweb1"), (2, "hg1"), Standing.FENCED),
        # A broker that was restored from an old backup.
        ((2, "hgweb1"), (3, "hg1"), Standing.CLAIM),
        ((2, "hg1"), (3, "hg1"), Standing.CLAIM),
        ((2, "hg1"), (3, "hgweb1"), Standing.FENCED),
    ],
)
def test_the_last_term_and_the_own_file_decide(
    last: tuple[int, str] | None, own: tuple[int, str], expected: Standing
) -> None:
    assert standing(Term(*last) if last else None, own, "hg1") is expected


def test_a_term_survives_its_message() -> None:
    term = Term(2, "hgweb1.example.org", "ssh://hg@hg.example.org", 1795440000123)
    assert host_terms.decode(term.body()) == term


@pytest.mark.parametrize(
    "body",
    [
        *(b"", b"[]", b"[" * 4000, b'{"epoch":0,"primary":"a"}', b'{"epoch":2,"primary":"a b"}'),
        *(b'{"epoch":2,"primary":"a","time":"x"}', b'{"epoch":2,"primary":"a","address":7}'),
    ],
)
def test_a_malformed_term_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match=r"."):
        host_terms.decode(body)


def test_a_fence_names_the_primary_and_its_address() -> None:
    said = host_terms.sentence(Term(2, "hgweb1", "ssh://hg@hg.example.org"))
    assert said.startswith("hgweb1 has been the primary of this site since epoch 2")
    assert said.endswith("push to ssh://hg@hg.example.org")
    assert host_terms.sentence(Term(2, "hgweb1")).endswith("push to hgweb1")


def test_files_of_a_term_are_written_and_lifted(tmp_path: Path) -> None:
    for name in ("terms", "fence"):
        (tmp_path / name).mkdir()
    settings = Settings(
        *(Role.PRIMARY, "hg1", "hg1", "https://hg1:7460", (), ()),
        terms=tmp_path / "terms",
        fence=tmp_path / "fence",
    )
    unconfirmed = tmp_path / "fence/unconfirmed"
    unconfirmed.write_text("wait\n")
    fenced = tmp_path / "terms/fenced"
    assert host_terms.own(settings) == (1, "")
    host_terms.confirm(settings, Term(2, "hg1"))
    assert host_terms.own(settings) == (2, "hg1")
    assert not unconfirmed.exists()
    host_terms.fence(settings, "hgweb1 is the primary")
    assert term_file.refusal([str(fenced)]) == "hgweb1 is the primary"
    host_terms.lift(settings)
    host_terms.lift(settings)
    assert not fenced.exists()


def test_a_message_after_a_promotion_has_another_id() -> None:
    heads = Heads(digest=FIRST)
    first = Record(1, "ab" * 16, "push", "alice", 1, FIRST, heads=heads)
    second = Record(1, "ab" * 16, "push", "bob", 1, FIRST, heads=heads, epoch=2)
    ids = [PushMessage("a", record.line(), record).id for record in (first, second)]
    hashes = [hash_of(record.line())[:16] for record in (first, second)]
    assert ids == [f"{'ab' * 16}.1.1.{hashes[0]}", f"{'ab' * 16}.1.2.{hashes[1]}"]
    message = PushMessage("a", second.line(), second)
    assert decode_push(message.headers(), message.body()) == message


def test_the_address_for_pushes_is_that_of_the_hgrc(tmp_path: Path) -> None:
    hgrc = tmp_path / "hgrc"
    assert host_terms.address_of(hgrc) == ""
    hgrc.write_text("[hgfleet]\npushlog = yes\n")
    assert host_terms.address_of(hgrc) == ""
    hgrc.write_text("[hgfleet]\nssh-url = ssh://hg@hg.example.org:2222/\n")
    assert host_terms.address_of(hgrc) == "ssh://hg@hg.example.org:2222"
