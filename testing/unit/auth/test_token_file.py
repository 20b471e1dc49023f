"""The file of access tokens, as this release and releases before read it."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import token_file, tokens
from hgfleet.auth.tokens import Token
from hgfleet.core import generation
from hgfleet.core.errors import UsageError
from hgfleet.core.generation import Generation
from hgfleet.core.principal import Principal

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.auth.tokens import Tokens

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
TOKEN = Token("bob", "ab" * 32, "CI", "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z")
NOW = tokens.moment("2026-11-21T12:00:00Z")


def test_a_token_has_the_person_id_of_its_owner() -> None:
    kept = {"aaaaaaaa": replace(TOKEN, owner_id=FORMER), "bbbbbbbb": TOKEN}
    assert token_file.parse(token_file.dump(kept)) == kept


def test_a_release_before_finds_tokens_as_it_knows_them() -> None:
    data = json.loads(token_file.dump({"aaaaaaaa": replace(TOKEN, owner_id=FORMER)}))
    known = {name for name in asdict(TOKEN) if name != "owner_id"}
    assert data["format"] == 1
    assert set(data["tokens"]["aaaaaaaa"]) == known
    del data["owner_ids"]
    assert token_file.parse(json.dumps(data)) == {"aaaaaaaa": TOKEN}


@pytest.mark.parametrize("ids", [7, {"aaaaaaaa": "bob"}, {"aaaaaaaa": 7}])
def test_an_id_that_is_none_makes_no_file_of_tokens(ids: object) -> None:
    data = json.loads(token_file.dump({"aaaaaaaa": TOKEN})) | {"owner_ids": ids}
    with pytest.raises(token_file.TokensError):
        token_file.parse(json.dumps(data))


def test_a_later_person_of_the_name_has_no_tokens_of_the_former_one() -> None:
    former, today = (Principal("bob", person_id=person_id) for person_id in (FORMER, TODAY))
    kept: Tokens = {}
    for _ in range(tokens.MOST_TOKENS):
        kept, identity, _ = tokens.create(kept, former, "CI", 1, NOW)
    assert kept[identity].owner_id == FORMER
    assert tokens.of_owner(kept, today, NOW) == {}
    assert len(tokens.of_owner(kept, former, NOW)) == tokens.MOST_TOKENS
    with pytest.raises(UsageError, match="no such token"):
        tokens.revoke(kept, today, identity)
    # The former person's tokens do not count for the limit either.
    kept, identity, _ = tokens.create(kept, today, "CI", 1, NOW)
    assert list(tokens.of_owner(kept, today, NOW)) == [identity]


def test_a_token_that_was_made_in_the_future_is_not_valid_and_stays() -> None:
    """The clock ran ahead when it was made: its end is too late as well."""
    ahead = replace(TOKEN, created="2027-01-01T00:00:00Z")
    assert TOKEN.is_valid(NOW)
    assert not ahead.is_valid(NOW)
    # A mirror whose clock is a little behind.
    assert replace(TOKEN, created="2026-11-21T12:30:00Z").is_valid(NOW)
    # A clock that is behind for a while removes no token of others.
    kept, _, _ = tokens.create({"aaaaaaaa": ahead}, Principal("bob"), "CI", 1, NOW)
    assert kept["aaaaaaaa"] == ahead


def test_tokens_have_a_generation_and_do_not_go_back(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    texts = []
    for name in ("aaaaaaaa", "bbbbbbbb", "cccccccc"):
        with token_file.update(str(file)) as kept:
            kept[name] = TOKEN
        texts.append(file.read_bytes())
    versions = [generation.version(text).generation for text in texts]
    assert versions == [(1, 1), (1, 2), (1, 3)]
    file.write_bytes(texts[0])
    for change in (token_file.update(str(file)), token_file.update(str(file), renews=True)):
        with (
            pytest.raises(token_file.TokensError, match=r"got generation 1.1, expected 1.3"),
            change,
        ):
            pass
    token_file.begin_term(str(file))
    current = generation.version(file.read_bytes()).generation
    assert current is not None
    assert current > (2, 3)
    assert list(token_file.load(str(file))) == ["aaaaaaaa"]


def test_tokens_that_are_put_back_by_one_version_are_refused(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with token_file.update(str(file)) as kept:
        kept.update(aaaaaaaa=TOKEN, bbbbbbbb=TOKEN)
    older = file.read_bytes()
    with token_file.update(str(file)) as kept:
        del kept["bbbbbbbb"]
    file.write_bytes(older)
    with pytest.raises(token_file.TokensError, match=r"got generation 1.1, expected 1.2"):
        token_file.renew(str(file))
    assert file.read_bytes() == older


@pytest.mark.parametrize("is_bare", [True, False])
def test_a_token_that_was_revoked_does_not_come_back_with_an_older_file(
    tmp_path: Path, is_bare: bool
) -> None:
    """A file from before the upgrade has no generation; another copy has the same number."""
    file = tmp_path / "tokens.json"
    file.write_text(token_file.dump({"aaaaaaaa": TOKEN, "bbbbbbbb": TOKEN}))
    token_file.renew(str(file))
    with token_file.update(str(file)) as kept:
        del kept["bbbbbbbb"]
    version = Generation(1, 2).to_json()
    older = token_file.dump({"bbbbbbbb": TOKEN}, {} if is_bare else version)
    file.write_text(older)
    for change in (token_file.update(str(file)), token_file.update(str(file), renews=True)):
        with (
            pytest.raises(token_file.TokensError, match=r"token bbbbbbbb .* expected 1\.2"),
            change,
        ):
            pass
    assert file.read_text() == older
    token_file.begin_term(str(file))
    assert list(token_file.load(str(file))) == ["bbbbbbbb"]
    # From then on it counts.
    token_file.renew(str(file))
    with token_file.update(str(file)) as kept:
        del kept["bbbbbbbb"]


def test_a_token_that_a_release_before_made_is_not_an_older_one(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    with token_file.update(str(file)) as kept:
        kept["aaaaaaaa"] = TOKEN
    made = replace(TOKEN, created=tokens.stamp_of(datetime.now(UTC)))
    file.write_text(token_file.dump({"aaaaaaaa": TOKEN, "bbbbbbbb": made}))
    token_file.renew(str(file))
    assert generation.version(file.read_bytes()).generation == (1, 2)
    # A file of another host with a newer generation is not an older file.
    (tmp_path / ".tokens-last.json").write_text('{"tokens": [], "written": "2099-01-01T00:00:00Z"}')
    file.write_text(token_file.dump({"cccccccc": TOKEN}, Generation(2, 9).to_json()))
    token_file.renew(str(file))
    assert list(token_file.load(str(file))) == ["cccccccc"]


@pytest.mark.parametrize("text", ["", "[]", "{", '{"tokens": 7}', '{"tokens": [], "written": "x"}'])
def test_a_damaged_note_of_the_last_tokens_is_none(tmp_path: Path, text: str) -> None:
    file = tmp_path / "tokens.json"
    with token_file.update(str(file)) as kept:
        kept["aaaaaaaa"] = TOKEN
    (tmp_path / ".tokens-last.json").write_text(text)
    file.write_text(token_file.dump({"bbbbbbbb": TOKEN}))
    token_file.renew(str(file))
    assert list(token_file.load(str(file))) == ["bbbbbbbb"]


def test_tokens_of_a_release_before_get_a_generation_later_than_all(tmp_path: Path) -> None:
    file = tmp_path / "tokens.json"
    token_file.renew(str(file))
    assert not file.exists()
    with token_file.update(str(file)) as kept:
        kept["aaaaaaaa"] = TOKEN
    with token_file.update(str(file)) as kept:
        kept["bbbbbbbb"] = TOKEN
    file.write_text(token_file.dump({"bbbbbbbb": TOKEN}))
    for _ in range(2):
        token_file.renew(str(file))
        assert generation.version(file.read_bytes()).generation == (1, 3)
    assert list(token_file.load(str(file))) == ["bbbbbbbb"]
