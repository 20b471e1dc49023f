from __future__ import annotations

import argparse
import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.auth import token_file, tokens
from hgfleet.auth.tokens import Token
from hgfleet.backup.restic.restic import Restic, Snapshot
from hgfleet.core import logfmt
from hgfleet.core.daemons import periodic
from hgfleet.core.errors import UsageError
from hgfleet.core.principal import Principal
from hgfleet.directory import person_state
from hgfleet.directory.person_state import PersonState
from hgfleet.selfservice import tokens_cli
from hgfleet.selfservice.tokens_cli import chosen, lost

if TYPE_CHECKING:
    from pathlib import Path

FORMER = "b862b310-7ccc-103d-8a1f-1b0c5d2e3f40"
TODAY = "b862b310-7ccc-103e-8a1f-1b0c5d2e3f40"
ALICE = Principal("alice")
NOW = datetime(2026, 11, 25, tzinfo=UTC)


def token(owner: str, expires: str = "2099-01-01") -> Token:
    return Token(owner, "ab" * 32, "CI", "2026-01-01T00:00:00Z", f"{expires}T00:00:00Z")


THEN = {
    "aaaaaaaa": token("alice"),
    "bbbbbbbb": token("alice"),
    "cccccccc": token("alice", "2026-02-01"),
    "dddddddd": token("bob"),
}


def test_lost_tokens_are_the_valid_ones_of_the_person() -> None:
    assert sorted(lost(THEN, {}, ALICE, NOW)) == ["aaaaaaaa", "bbbbbbbb"]
    assert sorted(lost(THEN, {"aaaaaaaa": THEN["aaaaaaaa"]}, ALICE, NOW)) == ["bbbbbbbb"]


def test_an_unknown_token_and_too_many_are_refused() -> None:
    lost_tokens = lost(THEN, {}, ALICE, NOW)
    assert list(chosen(lost_tokens, ["bbbbbbbb"], {}, ALICE)) == ["bbbbbbbb"]
    with pytest.raises(UsageError, match="alice lost no such token: dddddddd"):
        chosen(lost_tokens, ["dddddddd"], {}, ALICE)
    many = {f"{n}": token("alice") for n in range(tokens.MOST_TOKENS)}
    with pytest.raises(UsageError, match="would have 51 tokens"):
        chosen(lost_tokens, ["aaaaaaaa"], many, ALICE)


def test_a_token_comes_back_from_the_backup_of_a_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said: list[str] = []
    monkeypatch.setattr(logfmt, "to_syslog", lambda _: said.append)
    monkeypatch.setattr("hgfleet.registry.owned_files.become", lambda _user: None)
    snapshots = [
        Snapshot("new", "2026-11-24T15:00:00+00:00", (), ("all",)),
        Snapshot("old", "2026-11-24T14:00:00+00:00", (), ("all",)),
    ]
    monkeypatch.setattr(Restic, "snapshots", lambda _self: snapshots)
    texts = {"new": token_file.dump({}), "old": token_file.dump(THEN)}
    monkeypatch.setattr(Restic, "dump", lambda _self, name, _path: texts[name])
    config, hgrc, file = (tmp_path / name for name in ("backup.toml", "hgrc", "tokens.json"))
    config.write_text('host = "hg1"\nrepository = "s3:https://s3/b/hg1"\nparts = ["ssh"]\n')
    hgrc.write_text("")
    file.write_text(token_file.dump({"dddddddd": THEN["dddddddd"]}))
    words = ["tokens", "restore", "alice", "--at", "2026-11-24T14:30+00:00"]
    words += ["--config", str(config), "--hgrc", str(hgrc), "--tokens", str(file)]

    assert cli.main(words) == 0
    assert "2 tokens of alice that are missing now" in capsys.readouterr().out
    assert list(json.loads(file.read_text())["tokens"]) == ["dddddddd"]

    assert cli.main([*words, "--id", "aaaaaaaa"]) == 0
    assert list(token_file.load(str(file))) == ["aaaaaaaa", "dddddddd"]
    assert "action=restore owner=alice token=aaaaaaaa" in said[0]
    assert cli.main([*words, "--id", "aaaaaaaa"]) == 2
    hgrc.write_text("[hgfleet]\nreplica-of = hg1\nssh-url = ssh://hg@hg\n")
    assert cli.main([*words, "--id", "bbbbbbbb"]) == 75


def test_tokens_of_a_former_person_of_the_name_are_told_and_stay_away(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def ask(person: str, socket: str) -> PersonState:
        assert (person, socket) == ("alice", "/run/people")
        return PersonState("enabled", person_id=TODAY)

    monkeypatch.setattr(person_state, "ask", ask)
    then = {
        "aaaaaaaa": replace(THEN["aaaaaaaa"], owner_id=FORMER),
        "bbbbbbbb": replace(THEN["bbbbbbbb"], owner_id=TODAY),
    }
    options = argparse.Namespace(person="alice", people="/run/people")
    person = tokens_cli.today(options, then)
    assert list(lost(then, {}, person, NOW)) == ["bbbbbbbb"]
    assert capsys.readouterr().out == (
        "1 tokens of the backup are of another person than today's alice: left out\n"
    )
    monkeypatch.undo()
    # Tokens of a release before need no directory.
    assert tokens_cli.today(options, THEN) == ALICE


@pytest.mark.parametrize(
    ("hgrc", "left"),
    [
        ("[hgfleet]\nsession-max = 60\n", ["aaaaaaaa", "bbbbbbbb", "cccccccc"]),
        ("[hgfleet]\nreplica-of = hg1\n", sorted(THEN)),
        (None, sorted(THEN)),
    ],
    ids=["primary", "mirror", "without hgrc"],
)
def test_a_sweep_changes_tokens_on_the_primary_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, hgrc: str | None, left: list[str]
) -> None:
    def ask(person: str, socket: str) -> PersonState:
        assert socket == "/run/people"
        return PersonState("disabled" if person == "bob" else "enabled")

    monkeypatch.setattr(person_state, "ask", ask)
    monkeypatch.setattr(periodic, "repeat", lambda work, _every: work())
    if hgrc is not None:
        (tmp_path / "hgrc").write_text(hgrc)
    file = str(tmp_path / "tokens.json")
    with token_file.update(file) as kept:
        kept.update(THEN)

    words = ["--tokens", file, "--hgrc", str(tmp_path / "hgrc"), "--people", "/run/people"]
    cli.main(["tokens", "sweep", *words])

    assert sorted(token_file.load(file)) == left
