"""Paths and environment variables that lead out of the registry or to another person."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from testing.e2e.abuse.support import NO_REPOSITORY
from testing.e2e.abuse.witness import only_line, refusal

if TYPE_CHECKING:
    from testing.e2e.abuse.support import Connection, Said
    from testing.e2e.abuse.witness import Line, Witness

pytestmark = pytest.mark.alone

PATHS: Final = {
    "up": "../hgfleet",
    "up and down": "sandbox/../hgfleet",
    "far up": "hgfleet/../../../../etc",
    "inside": "hgfleet/.hg",
    "further inside": "hgfleet/.hg/store",
    "here": "./hgfleet",
    "here, between": "sandbox/./playground",
    "two slashes behind": "hgfleet//",
    "two slashes in front": "//hgfleet",
    "two slashes between": "sandbox//playground",
    "a namespace": "sandbox",
    "a namespace with a slash": "sandbox/",
    "an absolute path": "/srv/hg/repos/hgfleet",
    "another absolute path": "/etc",
    "a device": "/dev/stdin",
    "a process": "/proc/self/cwd",
    "capitals": "HGFLEET",
    "capitals of a namespace": "Sandbox/playground",
    "a coded slash": "hgfleet%2f",
    "a coded way up": "sandbox/%2e%2e/hgfleet",
    "a coded NUL": "hgfleet%00",
    "coded twice": "%252e%252e/hgfleet",
    "an overlong slash": "..\udcc0\udcaf..\udcc0\udcafetc",
    "a format": "%s%n%x",
    "a home": "~hg/repos/hgfleet",
    "a variable": "$HOME",
    "an option": "--debugger",
    "another option": "--config=alias.serve=!id",
    "a bundle": "bundle:/srv/hg/repos/hgfleet",
    "a bundle over a repository": "bundle:hgfleet+/tmp/x.hg",
    "a union": "union:hgfleet+sandbox/playground",
    "a file": "file:///srv/hg/repos/hgfleet",
    "a static file": "static-http://localhost/hgfleet",
    "another server": "ssh://localhost/hgfleet",
    "another server's option": "ssh://-oProxyCommand=id/hgfleet",
    "the web": "https://localhost/hgfleet",
    "a branch": "hgfleet#default",
    "a query": "hgfleet?cmd=heads",
    "a line": "hgfleet\nsandbox",
    "a quote": "hgfleet' serve --stdio; id; '",
    "composed": "sandbox/pl\u00e4yground",
    "decomposed": "sandbox/pla\u0308yground",
    "a Cyrillic letter": "hgfl\u0435et",
    "full width": "\uff48\uff47\uff46\uff4c\uff45\uff45\uff54",
    "a dotless i": "sandbox/play\u0131ng",
    "a sharp s": "hgflee\u00df",
    "a zero-width joiner": "hg\u200dfleet",
    "a byte order mark": "\ufeffhgfleet",
    "no text": "hgfleet\udcff",
    "a filter": "hgfleet)(uid=*",
    "colours": "\x1b[31mhgfleet",
    "a stream": "hgfleet:stream",
    "a dot behind": "hgfleet.",
    "a blank behind": "hgfleet ",
    "a private repository": "e2e/private",
    "200 folders": "a/" * 200 + "b",
    "3000 letters": "x" * 3000,
}


def test_no_path_leads_out_of_the_registry(bobs: Connection, witness: Witness) -> None:
    def send(path: str) -> None:
        plain = re.fullmatch(r"[A-Za-z0-9@%_+=:,./-]+", path)
        quoted = path if plain else "'" + path.replace("'", "'\\''") + "'"
        bobs.run(f"hg -R {quoted} serve --stdio").refused(NO_REPOSITORY)

    def check(_: None, lines: list[Line]) -> None:
        assert "reason=no-repository" in refusal(lines)

    witness.try_each(PATHS, send, check)


def test_a_link_between_the_repositories_leads_nowhere(
    planted: str, bobs: Connection, witness: Witness
) -> None:
    for path in (planted, f"{planted}/", f"{planted}/.hg", f"{planted}/../playground"):
        bobs.run(f"hg -R {path} serve --stdio").refused(NO_REPOSITORY)

    assert len(witness.lines("hgfleet-shell")) == 4


# --- the environment --------------------------------------------------------------------------

VARIABLES: Final = {
    "HGFLEET_USER": "alice",
    "HGFLEET_GROUPS": "maintainers",
    "HGRCPATH": "/tmp/rc",
    "HGPLAIN": "",
    "HGENCODING": "utf-7",
    "HGMERGE": "id",
    "HGUSER": "alice",
    "HGDEBUG": "1",
    "HGPROF": "stat",
    "EDITOR": "id",
    "PYTHONPATH": "/tmp",
    "PYTHONSTARTUP": "/tmp/x.py",
    "PYTHONINSPECT": "1",
    "PYTHONBREAKPOINT": "os.system",
    "LD_PRELOAD": "/tmp/x.so",
    "LD_LIBRARY_PATH": "/tmp",
    "LDAPCONF": "/tmp/ldap.conf",
    "PATH": "/tmp",
    "HOME": "/tmp",
    "ENV": "/tmp/x.sh",
    "BASH_ENV": "/tmp/x.sh",
    "SSH_ORIGINAL_COMMAND": "help",
    "SSH_CONNECTION": "192.0.2.1 1 192.0.2.2 2",
    "LC_ALL": "tr_TR.UTF-8",
    "LANG": "x\nHGFLEET_USER=alice",
}


def test_no_variable_of_the_client_arrives(bobs: Connection, witness: Witness) -> None:
    def send(variable: tuple[str, str]) -> Said:
        name, value = variable
        return bobs.run("whoami", "-o", f'SetEnv={name}="{value}"').clean()

    def check(said: Said, lines: list[Line]) -> None:
        assert said.code == 0, said
        # Later lines name repositories, including repositories of other people.
        assert said.stdout.splitlines()[0].split() == [b"name:", b"bob"]
        line = only_line(lines)
        assert "reason=whoami user=bob " in line
        assert "192.0.2.1" not in line

    witness.try_each({name: (name, value) for name, value in VARIABLES.items()}, send, check)
