"""`hgfleet directory access`: check the access rules of slapd against a suite.

The suite is JSON, a list of checks. Each check names a client, an entry, and the rights that the
rules must allow and must deny there (entries need not exist):

    [{"who": "cn=keys,ou=services,dc=example,dc=org",
      "entry": "uid=example,ou=people,dc=example,dc=org",
      "allowed": ["sshPublicKey/read"], "denied": ["mail/read", "uid/write"]}]

`who` is a DN or `anonymous`, `from` the address of the client, if rules depend on it. slapacl(8)
answers, in a process for each pair of who and entry, from the configuration that the running server
uses; a few processes run at a time.
"""

from __future__ import annotations

import concurrent.futures
import json
import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import HgfleetError, HostError, UsageError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping, Sequence

CONFIGURATION: Final = "/etc/ldap/slapd.d"
SERVER_USER: Final = "openldap"
SECONDS: Final = 30
"""For a single process, which takes 30 ms."""

_QUESTION: Final = re.compile(r"[A-Za-z][A-Za-z0-9;-]*/[a-z]+")
_ANSWER: Final = re.compile(r"(\S+) access to (\S+): (ALLOWED|DENIED)")


class AccessRulesError(HgfleetError):
    """The rules of the directory grant or refuse rights against the suite, each on its own line."""

    exit_code = 1


@dataclass(frozen=True, slots=True)
class Check:
    """Rights that a client must and must not have in an entry."""

    who: str
    entry: str
    allowed: tuple[str, ...]
    denied: tuple[str, ...]
    address: str = ""

    @property
    def questions(self) -> tuple[str, ...]:
        """All rights of the check, such as `uid/read`."""
        return (*self.allowed, *self.denied)


def parse_suite(text: str) -> list[Check]:
    """Read a suite; raise UsageError that names the problem."""
    try:
        data = json.loads(text)
    except ValueError as error:
        raise UsageError(f"The suite is not JSON: {error}") from error
    if not isinstance(data, list) or not data:
        raise UsageError("The suite is not a list with at least one check.")
    return [_check(item) for item in data]


def _check(item: Any) -> Check:
    names = {"who", "from", "entry", "allowed", "denied"}
    if not isinstance(item, dict) or not {"who", "entry"} <= set(item) <= names:
        raise UsageError(
            f"Got {item!r}, expected a check with who, from, entry, allowed and denied."
        )
    check = Check(
        str(item["who"]),
        str(item["entry"]),
        tuple(map(str, item.get("allowed", ()))),
        tuple(map(str, item.get("denied", ()))),
        str(item.get("from", "")),
    )
    wrong = [question for question in check.questions if not _QUESTION.fullmatch(question)]
    if wrong or not check.questions:
        raise UsageError(f"{check.who} on {check.entry}: expected ATTRIBUTE/RIGHT, got {wrong}.")
    return check


def command(check: Check) -> list[str]:
    """Return slapacl's command line: -u because the entries are examples."""
    who = [] if check.who == "anonymous" else ["-D", check.who]
    if check.address:
        who += ["-o", f"peername=IP={check.address}:1024"]
    return ["slapacl", "-F", CONFIGURATION, "-u", "-b", check.entry, *who, *check.questions]


def answers(output: str) -> dict[str, bool]:
    """Read the output of slapacl (on stderr): each question, and whether it is allowed."""
    return {
        f"{attribute}/{right}": answer == "ALLOWED"
        for right, attribute, answer in _ANSWER.findall(output)
    }


def problems(check: Check, told: Mapping[str, bool]) -> list[str]:
    """Return a line for every answer that differs from the suite."""
    result = []
    for questions, right in ((check.allowed, True), (check.denied, False)):
        for question in questions:
            told_so = told.get(question)
            if told_so is right:
                continue
            verb = {True: "may", False: "may not", None: "got no answer about"}[told_so]
            wish = "may" if right else "may not"
            result.append(f"{check.who} {verb} {question} of {check.entry}; expected: {wish}")
    return result


def ask(check: Check) -> list[str]:
    """Ask slapacl as the server's user; raise HostError if it does not run."""
    try:
        done = subprocess.run(
            ["/usr/sbin/runuser", "-u", SERVER_USER, "--", *command(check)],
            capture_output=True,
            text=True,
            timeout=SECONDS,
            check=False,
            env={**os.environ, "PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise HostError(f"slapacl does not run: {error}") from error
    if done.returncode != 0:
        raise HostError(f"slapacl, for {check.who} on {check.entry}: {done.stderr.strip()}")
    return problems(check, answers(done.stderr))


def ask_all(checks: Sequence[Check]) -> Iterable[str]:
    """Ask all of a suite, a few at a time; yield the problems in the order of the suite."""
    with concurrent.futures.ThreadPoolExecutor(max_workers=os.cpu_count() or 1) as pool:
        for answers in pool.map(ask, checks):
            yield from answers


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `directory` and its command."""
    parser = subparsers.add_parser("directory", help="check the access rules of the directory")
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    access = commands.add_parser(
        "access",
        help="check the rights that slapd's rules grant",
        description="Read a suite of checks (JSON) from the standard input and ask slapd's rules,"
        " as root on the directory's host. The role directory does it at the end of each run.",
        epilog=__doc__.partition("\n\n")[2],
    )
    access.set_defaults(run=_access)


def _access(_options: argparse.Namespace) -> int:
    checks = parse_suite(sys.stdin.read())
    wrong = list(ask_all(checks))
    if wrong:
        raise AccessRulesError("\n  ".join(["The directory's access rules are wrong:", *wrong]))
    print(f"{sum(len(check.questions) for check in checks)} answers as expected")
    return 0
