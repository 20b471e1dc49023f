"""`hgfleet replication begin-term` and `missing`."""

from __future__ import annotations

import argparse
import json
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from hgfleet.auth import token_file
from hgfleet.auth.tokens import Token
from hgfleet.core import generation
from hgfleet.core.errors import ConfigurationError
from hgfleet.registry.dynamic import missing
from hgfleet.replication import cli, commands
from testing.support.user_repository_file import BOB, written

if TYPE_CHECKING:
    from pathlib import Path

TOKEN = Token("bob", "ab" * 32, "CI", "2026-01-01T00:00:00Z", "2099-01-01T00:00:00Z")


@pytest.fixture
def dynamic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(commands, "become", lambda _user: None)
    (tmp_path / "dynamic/tokens").mkdir(parents=True)
    (tmp_path / "hgrc").write_text("")
    return tmp_path / "dynamic/registry.json"


def run(*line: str) -> int:
    parser = argparse.ArgumentParser()
    cli.add_parser(parser.add_subparsers())
    options = parser.parse_args(["replication", *line])
    code: int = options.run(options)
    return code


def begin(dynamic: Path) -> int:
    top = dynamic.parents[1]
    places = ("--dynamic", dynamic, "--hgrc", top / "hgrc", "--epoch", top / "epoch.json")
    return run("begin-term", *map(str, places))


def test_registry_and_tokens_of_a_backup_are_the_newest_ones(
    dynamic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert begin(dynamic) == 0
    assert capsys.readouterr().out == (
        "registry: there is none, and no term begins\ntokens: there are none, and no term begins\n"
    )
    tokens = dynamic.parent / "tokens/tokens.json"
    before = []
    for number in range(3):
        written(dynamic, **{f"people__bob__r{number}": BOB})
        with token_file.update(str(tokens)) as kept:
            kept[f"aaaaaaa{'abc'[number]}"] = TOKEN
        before.append((dynamic.read_bytes(), tokens.read_bytes()))
    dynamic.write_bytes(before[0][0])
    tokens.write_bytes(before[0][1])
    begin(dynamic)
    versions = [generation.version(file.read_bytes()).generation for file in (dynamic, tokens)]
    assert versions == [(2, 5), (2, 5)]
    assert capsys.readouterr().out == "registry: generation 2.5\ntokens: generation 2.5\n"
    written(dynamic, people__bob__x=BOB)


def test_tokens_that_were_all_removed_by_hand_are_none_from_then_on(
    dynamic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tokens = dynamic.parent / "tokens/tokens.json"
    with token_file.update(str(tokens)) as kept:
        kept["aaaaaaaa"] = TOKEN
    mirror = generation.read_beside(tokens)
    tokens.unlink()
    begin(dynamic)
    version = generation.version(tokens.read_bytes())
    assert not generation.decide(mirror, version).refused
    assert token_file.load(str(tokens)) == {}
    assert f"tokens: generation {version.generation}\n" in capsys.readouterr().out


def test_a_registry_that_is_lost_begins_no_term(
    dynamic: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(dynamic, people__bob__x=BOB)
    dynamic.unlink()
    begin(dynamic)
    assert "registry: there is none, and no term begins\n" in capsys.readouterr().out


def test_a_mirror_begins_no_term(dynamic: Path) -> None:
    (dynamic.parents[1] / "hgrc").write_text("[hgfleet]\nreplica-of = hg1\n")
    with pytest.raises(ConfigurationError, match="run it on its primary, hg1"):
        begin(dynamic)


def test_a_mirror_prints_what_is_missing_for_its_primary(
    dynamic: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands, "load", lambda _file: SimpleNamespace(dynamic=dynamic))
    assert run("missing") == 0
    assert json.loads(capsys.readouterr().out) == {"missing": []}
    note = missing.Missing("1" * 32, "people/bob/x", "2026-11-21T00:00:00Z", BOB.to_json())
    dynamic.with_name(missing.NAME).write_text(missing.text([note]))
    run("missing")
    out = capsys.readouterr().out.encode()
    assert missing.parse(out, "output") == {note.identity: note}
