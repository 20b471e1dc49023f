"""The suite of access checks: how it is read, asked and judged, without slapd."""

from __future__ import annotations

import io
import json
import subprocess
from typing import TYPE_CHECKING

import pytest

from hgfleet import cli
from hgfleet.core.errors import HostError, UsageError
from hgfleet.directory import acl_check
from hgfleet.directory.acl_check import Check

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = "cn=keys,ou=services,dc=example,dc=org"
ANYBODY = "uid=anybody,ou=people,dc=example,dc=org"
CHECK = Check(KEYS, ANYBODY, ("uid/read",), ("mail/read", "uid/write"))
SUITE = [
    {"who": KEYS, "entry": ANYBODY, "allowed": ["uid/read"], "denied": ["mail/read", "uid/write"]}
]

# As slapacl 2.6 says it, on stderr.
RIGHT = f"""\
authcDN: "{KEYS}"
read access to uid: ALLOWED
read access to mail: DENIED
write access to uid: DENIED
"""


def test_a_suite_is_read() -> None:
    assert acl_check.parse_suite(json.dumps(SUITE)) == [CHECK]


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        '{"who": "x"}',
        '[{"who": "x", "entry": "y"}]',
        '[{"who": "x", "entry": "y", "denied": ["uid"]}]',
        '[{"who": "x", "entry": "y", "allowed": ["-F/read"]}]',
        '[{"who": "x", "entry": "y", "denied": ["uid/read"], "deny": []}]',
    ],
)
def test_a_suite_that_checks_nothing_or_something_else_is_refused(text: str) -> None:
    with pytest.raises(UsageError):
        acl_check.parse_suite(text)


def test_a_client_has_an_address_where_rules_depend_on_it() -> None:
    check = {"who": "anonymous", "from": "192.0.2.7", "entry": ANYBODY, "denied": ["uid/read"]}
    (read,) = acl_check.parse_suite(json.dumps([check]))
    assert acl_check.command(read)[-3:] == ["-o", "peername=IP=192.0.2.7:1024", "uid/read"]


def test_anonymous_is_somebody_without_a_name() -> None:
    asked = acl_check.command(Check("anonymous", ANYBODY, (), ("uid/read",)))
    assert "-D" not in asked
    assert asked[-3:] == ["-b", ANYBODY, "uid/read"]


def test_right_answers_are_no_problem() -> None:
    assert acl_check.problems(CHECK, acl_check.answers(RIGHT)) == []


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("read access to uid: DENIED", f"{KEYS} may not uid/read of {ANYBODY}; expected: may"),
        ("read access to mail: ALLOWED", f"{KEYS} may mail/read of {ANYBODY}; expected: may not"),
        ("write access to uid: ALLOWED", "may uid/write"),
    ],
)
def test_each_wrong_answer_is_a_line(line: str, words: str) -> None:
    beginning = line.rpartition(":")[0]
    lines = [line if old.startswith(beginning) else old for old in RIGHT.splitlines()]
    (problem,) = acl_check.problems(CHECK, acl_check.answers("\n".join(lines)))
    assert words in problem


def test_a_missing_answer_is_a_problem_too() -> None:
    problems = acl_check.problems(CHECK, {"uid/read": True, "mail/read": False})
    assert problems == [f"{KEYS} got no answer about uid/write of {ANYBODY}; expected: may not"]


@pytest.fixture
def slapacl(monkeypatch: pytest.MonkeyPatch) -> Callable[[str, int], None]:
    """Stand in for slapacl, which says this and exits with that."""

    def says(text: str, code: int) -> None:
        def run(words: list[str], **_: object) -> subprocess.CompletedProcess[str]:
            assert words[:4] == ["/usr/sbin/runuser", "-u", "openldap", "--"]
            return subprocess.CompletedProcess(words, code, "", text)

        monkeypatch.setattr(subprocess, "run", run)
        monkeypatch.setattr("sys.stdin", io.StringIO(json.dumps(SUITE)))

    return says


def test_the_command_counts_or_fails(
    slapacl: Callable[[str, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    slapacl(RIGHT, 0)
    assert cli.main(["directory", "access"]) == 0
    assert capsys.readouterr().out == "3 answers as expected\n"
    slapacl(RIGHT.replace("mail: DENIED", "mail: ALLOWED"), 0)
    assert cli.main(["directory", "access"]) == 1
    assert "may mail/read" in capsys.readouterr().err


def test_a_slapacl_that_does_not_run_is_no_good_answer(
    slapacl: Callable[[str, int], None], capsys: pytest.CaptureFixture[str]
) -> None:
    slapacl("slapacl: bad configuration", 1)
    assert cli.main(["directory", "access"]) == HostError.exit_code
    assert "bad configuration" in capsys.readouterr().err
