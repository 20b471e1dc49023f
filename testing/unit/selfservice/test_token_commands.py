"""Access tokens: the commands that make them, and the file that keeps them."""

from __future__ import annotations

import json
import os
import re
import stat
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hgfleet.auth import token_file, tokens
from hgfleet.auth.token_file import Watched
from hgfleet.core.errors import AccessDeniedError, UsageError
from hgfleet.core.principal import Principal
from hgfleet.selfservice import commands, token_commands
from hgfleet.selfservice.command import understand
from hgfleet.selfservice.context import Context

NOW = datetime(2026, 11, 21, 12, 0, 0, tzinfo=UTC)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return str(tmp_path / "tokens.json")


def command(argv: list[str], person: str, path: str, now: datetime = NOW) -> str:
    """Send `token ARGV...` as a person."""
    call = understand(" ".join(["token", *argv]), commands.COMMANDS)
    assert call is not None
    context = Context(Principal(person), "", "", "", "", tokens=path)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(token_commands, "_now", lambda: now)
        return call.command.run(context, call)


def made(path: str, *argv: str, person: str = "bob", now: datetime = NOW) -> tuple[str, str]:
    """Create a token; return its id and its secret."""
    said = command(["create", *argv], person, path, now)
    match = re.match(r"(\S+)\n\nThis is token (\S+)\.", said)
    assert match, said
    return match[2], match[1]


def test_a_token_is_shown_once_and_kept_as_a_hash(path: str) -> None:
    identity, secret = made(path, "--days", "30", "nightly", "build")

    assert re.fullmatch(r"hgt_[a-z2-7]{40}", secret)
    text = Path(path).read_text()
    assert secret not in text
    assert secret.removeprefix("hgt_") not in text
    entry = json.loads(text)["tokens"][identity]
    assert entry == {
        "owner": "bob",
        "sha256": tokens.digest(secret),
        "description": "nightly build",
        "created": "2026-11-21T12:00:00Z",
        "expires": "2026-12-21T12:00:00Z",
        "scope": "read",
    }


def test_secrets_differ() -> None:
    assert len({tokens.new_secret() for _ in range(100)}) == 100


def test_the_file_is_for_owner_and_group_under_any_umask(path: str) -> None:
    for mask in (0o000, 0o077):
        before = os.umask(mask)
        try:
            made(path)
        finally:
            os.umask(before)
        assert stat.S_IMODE(Path(path).stat().st_mode) == 0o640


def test_a_list_shows_the_persons_own_without_secrets(path: str) -> None:
    said = command(["list"], "bob", path, NOW)
    assert said == 'You have no tokens; "token create" makes a token.\n'
    identity, secret = made(path, "CI")
    other, _ = made(path, person="alice")

    said = command(["list"], "bob", path, NOW)

    assert f"{identity}  2026-11-21  2027-02-19  CI\n" in said
    assert other not in said
    assert secret not in said
    assert tokens.digest(secret) not in said


def test_revoking_ends_one_and_only_the_owner_can(path: str) -> None:
    identity, secret = made(path)
    kept, _ = made(path)

    with pytest.raises(UsageError) as others:
        command(["revoke", identity], "alice", path, NOW)
    with pytest.raises(UsageError) as missing:
        command(["revoke", "aaaaaaaa"], "bob", path, NOW)
    assert str(others.value) == str(missing.value)
    assert Watched(path).find(secret) is not None

    assert command(["revoke", identity], "bob", path, NOW) == f"Token {identity} is revoked.\n"
    assert Watched(path).find(secret) is None
    assert kept in token_file.load(path)


def test_a_token_ends_at_its_time_and_is_removed_later(path: str) -> None:
    identity, _ = made(path, "--days", "1")
    token = token_file.load(path)[identity]

    assert token.is_valid(NOW + timedelta(hours=23))
    assert not token.is_valid(NOW + timedelta(days=1))
    made(path, now=NOW + timedelta(days=2))
    assert identity not in token_file.load(path)


def test_a_scope_of_a_later_release_is_not_valid_here(path: str) -> None:
    identity, _ = made(path)
    text = Path(path).read_text().replace('"read"', '"push"')
    assert not token_file.parse(text)[identity].is_valid(NOW)


def test_a_person_has_so_many_at_most(path: str) -> None:
    for _ in range(tokens.MOST_TOKENS):
        made(path)
    with pytest.raises(AccessDeniedError, match="50 tokens"):
        made(path)
    made(path, person="alice")


@pytest.mark.parametrize(
    "argv",
    [
        [],
        ["nonsense"],
        ["list", "more"],
        ["revoke"],
        ["create", "--days"],
        ["create", "--days", "0"],
        ["create", "--days", "367"],
        ["create", "--days", "-1"],
        ["create", "--days", "9" * 5000],
        ["create", "--days", "\u0663"],
        ["create", "--scope", "push"],
        ["create", "x" * 101],
        ["create", "two\nlines"],
        ["create", "\x1b[31mred"],
        ["create", "\udcff"],
        ["revoke", "../../etc/passwd"],
    ],
)
def test_wrong_arguments_are_refused_and_change_nothing(path: str, argv: list[str]) -> None:
    made(path)
    before = Path(path).read_bytes()
    with pytest.raises(UsageError):
        command(argv, "bob", path, NOW)
    assert Path(path).read_bytes() == before


def test_changes_are_seen_at_once(path: str) -> None:
    watched = Watched(path)
    assert watched.find(tokens.new_secret()) is None
    identity, secret = made(path)
    token = watched.find(secret)
    assert token is not None
    assert token[0] == identity
    assert token[1].owner == "bob"
    command(["revoke", identity], "bob", path, NOW)
    assert watched.find(secret) is None


@pytest.mark.parametrize(
    "secret", ["", "hgt_", "hgt_" + "a" * 39, "hgt_" + "A" * 40, "hgt_" + "a" * 41, "\udcff"]
)
def test_a_secret_of_another_form_is_not_looked_up(path: str, secret: str) -> None:
    made(path)
    assert Watched(path).find(secret) is None


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"format": 2, "tokens": {}}',
        '{"format": 1, "tokens": []}',
        '{"format": 1, "tokens": {"aaaaaaaa": {}}}',
        '{"format": 1, "tokens": {"aaaaaaaa": {"owner": 1, "sha256": "", "description": ""}}}',
        "[" * 100_000,
    ],
)
def test_a_damaged_file_is_an_error_and_never_overwritten(path: str, text: str) -> None:
    Path(path).write_text(text)
    with pytest.raises(token_file.TokensError):
        Watched(path).find(tokens.new_secret())
    with pytest.raises(token_file.TokensError):
        command(["create"], "bob", path, NOW)
    assert Path(path).read_text() == text


def test_without_its_folder_nothing_can_be_made(tmp_path: Path) -> None:
    with pytest.raises(token_file.TokensError, match="No such file"):
        command(["create"], "bob", str(tmp_path / "missing/tokens.json"), NOW)


def test_sessions_at_the_same_time_lose_nothing(path: str) -> None:
    people = [f"person{number}" for number in range(8)]

    def several(person: str) -> None:
        for _ in range(5):
            command(["create"], person, path, NOW)

    threads = [threading.Thread(target=several, args=(person,)) for person in people]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert sorted(token.owner for token in token_file.load(path).values()) == sorted(people * 5)


def test_remains_of_a_killed_process_are_replaced(path: str) -> None:
    Path(f"{path}.new").write_text("half")
    identity, _ = made(path)
    assert list(token_file.load(path)) == [identity]
    assert not Path(f"{path}.new").exists()


@pytest.mark.parametrize(
    "argv",
    [
        ["CI", "--days", "7", "--day", "7"],
        ["CI", "--days"],
        ["for", "CI", "--help"],
        ["nightly", "-d", "7"],
        ["help"],
        ["list"],
        ["revoke", "abcdefgh"],
        ["token", "list"],
        ["30"],
        ["days", "30"],
        ["30d"],
    ],
)
def test_a_mistyped_command_makes_no_token(path: str, argv: list[str]) -> None:
    with pytest.raises(UsageError, match="token create"):
        command(["create", *argv], "bob", path)
    assert not Path(path).exists()


def test_options_of_a_token_may_be_anywhere(path: str) -> None:
    identity, _ = made(path, "nightly", "--days", "7", "build")
    token = token_file.load(path)[identity]
    assert (token.description, token.expires) == ("nightly build", "2026-11-28T12:00:00Z")
