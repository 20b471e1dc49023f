"""`hgfleet keys index`: write the fingerprint of every key of a directory next to the key.

A login is a single indexed search for a fingerprint (`sshPublicKeyId`). The older directory of a
site only has keys (`sshPublicKey`). The command writes the other attribute, and repairs it where
another tool changed the keys of a person. Each entry is changed by itself, so a run may be stopped
at any point and started again: it skips entries that are right.

The server needs the attribute in its schema and an index for it (docs/operator-handbook.md).
"""

from __future__ import annotations

import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt
from hgfleet.directory.client import LOCAL, Connection, DirectoryError
from hgfleet.directory.entries import texts, values
from hgfleet.directory.entry_changes import Change, Edit
from hgfleet.directory.people import read_key
from hgfleet.directory.people_cli import operator

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Iterator

    from hgfleet.directory.client import Directory
    from hgfleet.directory.entries import Attributes

_EPILOG: Final = """\
examples:
  hgfleet keys index --check                           this host's directory, changing nothing
  hgfleet keys index --uri ldaps://ldap.example.org --ca-file /etc/ssl/certs/ca-certificates.crt \\
      --bind-dn cn=admin,dc=example,dc=org --password-file /root/ldap-password \\
      --base ou=staff,dc=example,dc=org

Keys that cannot be used (options, several lines, weak RSA) are reported and skipped: no login
accepts them, with or without a fingerprint. A fingerprint without its key is removed.
"""

_FILTER: Final = "(|(sshPublicKey=*)(sshPublicKeyId=*))"


@dataclass(frozen=True, slots=True)
class Finding:
    """The change that an entry needs, and the problems of its keys."""

    change: Change | None
    fingerprints: tuple[str, ...]
    problems: tuple[str, ...]


def examine(dn: str, entry: Attributes) -> Finding:
    """Compare an entry's fingerprints with its keys."""
    keys = [read_key(value) for value in values(entry, "sshPublicKey")]
    wanted = tuple(dict.fromkeys(key.fingerprint for key in keys if not key.problem))
    problems = tuple(
        f"key {number} is of no use: {key.problem}"
        for number, key in enumerate(keys, 1)
        if key.problem
    )
    change = None
    if sorted(wanted) != sorted(texts(entry, "sshPublicKeyId")):
        edit = Edit("replace", "sshPublicKeyId", tuple(text.encode() for text in wanted))
        change = Change(dn, "modify", (edit,))
    return Finding(change, wanted, problems)


@dataclass(slots=True)
class Totals:
    """Numbers of a run."""

    entries: int = 0
    changed: int = 0
    failed: int = 0
    unusable: int = 0
    shared: int = 0

    def __str__(self) -> str:
        return (
            f"{self.entries} entries with keys: {self.changed} changed, {self.failed} could not be "
            f"changed, {self.unusable} unusable keys, {self.shared} keys of several people"
        )


def index(directory: Directory, base: str, check: bool) -> Iterator[str | Totals]:
    """Go through all entries; yield lines for the operator, and the totals at the end."""
    totals = Totals()
    seen: dict[str, str] = {}
    for dn, entry in directory.search(base, _FILTER, ["sshPublicKey", "sshPublicKeyId"], deep=True):
        totals.entries += 1
        finding = examine(dn, entry)
        totals.unusable += len(finding.problems)
        yield from (f"{dn}: {problem}" for problem in finding.problems)
        for fingerprint in finding.fingerprints:
            if fingerprint in seen:
                totals.shared += 1
                yield f"{dn}: {fingerprint} is a key of {seen[fingerprint]} too: neither gets in"
            seen.setdefault(fingerprint, dn)
        if finding.change is None:
            continue
        yield "\n".join(finding.change.lines())
        try:
            if not check:
                directory.apply(finding.change)
        except DirectoryError as error:
            totals.failed += 1
            yield f"{dn}: {error}"
        else:
            totals.changed += 1
    yield totals


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet keys`."""
    parser = subparsers.add_parser("keys", help="index the SSH keys of a directory")
    parser.set_defaults(run=lambda _options: parser.print_help(sys.stderr) or 2)
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")
    made = commands.add_parser(
        "index",
        help="index the fingerprint of every key in a directory",
        description="Fill and repair sshPublicKeyId, by which logins find a person.",
        epilog=_EPILOG,
    )
    made.set_defaults(run=run_index)
    made.add_argument("--check", action="store_true", help="show what would change, change nothing")
    made.add_argument(
        "--uri", default=LOCAL, help="the server (default: this host's, through its socket)"
    )
    made.add_argument(
        "--bind-dn", default="", help="who to log in as (default: root, by the socket)"
    )
    made.add_argument("--password-file", default="", help="a file with the password of --bind-dn")
    made.add_argument("--ca-file", default="", help="certificates to trust (default: the system's)")
    made.add_argument("--base", help="where to search (default: the whole directory)")


def connect(options: argparse.Namespace) -> Directory:
    """Open the connection; tests replace this function."""
    return Connection(options.uri, options.bind_dn, options.password_file, options.ca_file)


def run_index(options: argparse.Namespace) -> int:
    """Index, and print the numbers."""
    directory = connect(options)
    base = options.base or directory.suffix()
    totals = _print(index(directory, base, options.check))
    if options.check:
        print(f"--check: {totals}; nothing was changed")
        return 0
    print(totals)
    logfmt.to_syslog("hgfleet-person")(
        logfmt.line(
            "keys-index",
            base=base,
            by=operator(),
            entries=totals.entries,
            changed=totals.changed,
            failed=totals.failed,
            unusable=totals.unusable,
        )
    )
    return DirectoryError.exit_code if totals.failed else 0


def _print(said: Iterable[str | Totals]) -> Totals:
    for line in said:
        if isinstance(line, Totals):
            return line
        print(line, flush=True)
    return Totals()
