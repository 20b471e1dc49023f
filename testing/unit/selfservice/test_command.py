"""Which call a line makes, and the form that a wrong line is answered with."""

from __future__ import annotations

import pytest

from hgfleet.core.errors import UsageError
from hgfleet.selfservice import commands
from hgfleet.selfservice.command import Call, understand


def call(line: str) -> Call:
    understood = understand(line, commands.COMMANDS)
    assert understood is not None
    return understood


def test_options_may_be_anywhere_and_joined() -> None:
    for line in (
        "repo create people/bob/x --read private --description 'a b'",
        "repo create --read=private --description='a b' people/bob/x",
        'repo create --description "a b" people/bob/x --read private',
    ):
        understood = call(line)
        assert understood.arguments == ("people/bob/x",)
        assert understood.options == {"--read": "private", "--description": "a b"}


def test_a_text_at_the_end_takes_all_words() -> None:
    assert call("repo describe people/bob/x A tool -v").arguments == ("people/bob/x", "A tool -v")
    assert call("help repo create").arguments == ("repo create",)
    assert call("help").arguments == ()
    assert call("token create --days 7 for the CI").arguments == ("for the CI",)


WRONG = {
    "an unknown option": "repo create people/bob/x --force",
    "a short option": "repo list -a",
    "an option of another command": "repo list --read public",
    "an option twice": "repo create people/bob/x --read public --read private",
    "an option without its value": "repo create people/bob/x --read",
    "a value for an option without one": "repo list --mine=yes",
    "no path": "repo create",
    "one path of two": "repo fork hgfleet",
    "a word too much": "repo archive people/bob/x people/bob/y",
    "a shell's separator": "repo archive people/bob/x; id",
    "a description that lost its quotes": "repo create people/bob/x --description Two words",
    "no such command of repo": "repo purge people/bob/x",
    "repo alone": "repo",
    "whoami of another": "whoami alice",
    "half a quote": "repo describe people/bob/x it's",
}


@pytest.mark.parametrize("line", WRONG.values(), ids=WRONG)
def test_a_wrong_call_is_refused_with_the_right_form(line: str) -> None:
    with pytest.raises(UsageError) as refused:
        understand(line, commands.COMMANDS)
    message = str(refused.value)
    assert message.isascii()
    assert message.isprintable()
    assert "ssh hg@HOST" in message or "quote" in message


def test_quotes_that_the_persons_own_shell_took_away_are_explained() -> None:
    with pytest.raises(UsageError, match="quotes that your own shell leaves in place"):
        understand("repo create people/bob/x --description Two words", commands.COMMANDS)


@pytest.mark.parametrize("line", ["sh", "id", "repolist", "it's", "Repo list", "repos list"])
def test_a_line_without_a_command_is_none(line: str) -> None:
    assert understand(line, commands.COMMANDS) is None
