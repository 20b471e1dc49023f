"""`hgfleet person`: the daily work with people, on the directory's host as root.

Changes go through the server's socket, count from the next login on, and are a line each in the
system log, with the operator's name:

    event=person action=disable person=mallory by=alice changed=yes

`--check` shows the changes of a command and makes none.
"""

from __future__ import annotations

import getpass
import json
import os
import pwd
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import logfmt
from hgfleet.core.errors import ConfigurationError
from hgfleet.directory import people
from hgfleet.directory.client import LOCAL, Connection
from hgfleet.directory.entries import texts
from hgfleet.directory.filters import DISABLED, escape, group_filter
from hgfleet.directory.people import PersonError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Sequence

    from hgfleet.directory.client import Directory
    from hgfleet.directory.entry_changes import Change
    from hgfleet.directory.people import Person, StoredKey

_EPILOG: Final = """\
examples:
  hgfleet person add alice --full-name 'Alice Example' --key alice.pub --group maintainers
  hgfleet person disable mallory --check         show the change, and make none
  hgfleet person key add alice - < new.pub       a key is a file, a text, or - for standard input
  hgfleet person key remove alice SHA256:...     by fingerprint, or by its comment
  hgfleet person list --disabled --json

Run it as root on the directory's host; replicas take no changes. It counts from the next login.

People in the inventory: the role `directory` sets what the inventory says about its people (keys,
full name, mail; `disabled` only where it is given), and with directory_exact: true, the default,
it removes all other people. So declare your changes in the inventory, or set directory_exact: false
and leave people to this command. `disable` is safe either way: a play enables no person unless the
inventory says `disabled: false`.
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet person`."""
    parser = subparsers.add_parser(
        "person",
        help="add, change and show people, on the directory's host",
        description="People: add, disable, enable; their keys, groups and passwords.",
        epilog=_EPILOG,
    )
    # Without a command, print the help.
    parser.set_defaults(run=lambda _options: parser.print_help(sys.stderr) or 2)
    parser.add_argument(
        "--uri", default=LOCAL, help="the server (default: this host's, through its socket)"
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands")

    def command(
        where: Any, name: str, run: Callable[..., int], summary: str, *, writes: bool = True
    ) -> Any:
        made = where.add_parser(name, help=summary, description=summary[0].upper() + summary[1:])
        made.set_defaults(run=run)
        if name != "list":
            made.add_argument("name", metavar="NAME", help="the person's short name")
        if writes:
            made.add_argument(
                "--check", action="store_true", help="show the changes, and make none"
            )
        return made

    add = command(commands, "add", run_add, "add a person, or change a person's name and mail")
    add.add_argument("--full-name", metavar="TEXT")
    add.add_argument("--mail", metavar="ADDRESS")
    add.add_argument(
        "--key", action="append", default=[], metavar="KEY", help="a file, a text, or -"
    )
    add.add_argument("--group", action="append", default=[], metavar="GROUP")
    command(commands, "disable", run_disable, "refuse every login of a person; keys stay known")
    command(commands, "enable", run_enable, "let a disabled person in again")
    command(
        commands, "password", run_password, "set a password (for HTTPS), read from standard input"
    )
    show = command(commands, "show", run_show, "show keys, groups and state", writes=False)
    show.add_argument("--json", action="store_true")
    listed = command(commands, "list", run_list, "list people", writes=False)
    listed.add_argument("--disabled", action="store_true", help="only disabled people")
    listed.add_argument("--enabled", action="store_true", help="only enabled people")
    listed.add_argument("--group", metavar="GROUP", help="only members of this group")
    listed.add_argument("--no-keys", action="store_true", help="only people without a usable key")
    listed.add_argument("--json", action="store_true")

    key_commands = _nested(commands, "key", "add or remove a key")
    key_add = command(key_commands, "add", run_key_add, "add a public key")
    key_add.add_argument("key", metavar="KEY", help="a file, a text, or - for standard input")
    key_remove = command(key_commands, "remove", run_key_remove, "remove a key")
    key_remove.add_argument("key", metavar="KEY", help="its fingerprint (SHA256:...) or comment")
    group_commands = _nested(commands, "group", "put a person into a group, or take a person out")
    for name, run in (("add", run_group_add), ("remove", run_group_remove)):
        where = "to" if name == "add" else "from"
        made = command(group_commands, name, run, f"{name} a person {where} a group")
        made.add_argument("group", metavar="GROUP")


def _nested(commands: Any, name: str, summary: str) -> Any:
    parser = commands.add_parser(name, help=summary, description=summary[0].upper() + summary[1:])
    parser.set_defaults(run=lambda _options: parser.print_help(sys.stderr) or 2)
    return parser.add_subparsers(metavar="COMMAND", title="commands")


# --- reading --------------------------------------------------------------------------------


def connect(options: argparse.Namespace) -> Directory:
    """Open the connection; tests replace this function."""
    return Connection(options.uri)


def find(directory: Directory, name: str, suffix: str) -> Person | None:
    """Return a person with groups, or None."""
    dn = people.person_dn(name, suffix)
    entry = directory.get(dn, people.ATTRIBUTES)
    if entry is None:
        return None
    groups = directory.search(f"ou=groups,{suffix}", group_filter(dn), ["cn"])
    return people.read(dn, entry, [cn for _, group in groups for cn in texts(group, "cn")[:1]])


def existing(directory: Directory, name: str, suffix: str) -> Person:
    """Return a person who must exist."""
    person = find(directory, name, suffix)
    if person is None:
        raise PersonError(f"there is no person {name}; `hgfleet person list` shows all people")
    return person


def owners(directory: Directory, fingerprint: str, suffix: str) -> list[str]:
    """Return the names of all people who have a key."""
    search = f"(sshPublicKeyId={escape(fingerprint)})"
    holders = directory.search(f"ou=people,{suffix}", search, ["uid"])
    return sorted(name for _, entry in holders for name in texts(entry, "uid")[:1])


def members(directory: Directory, group: str, suffix: str) -> tuple[str, ...] | None:
    """Return the DNs of a group's members, or None if there is no such group."""
    entry = directory.get(people.group_dn(group, suffix), ["member"])
    return None if entry is None else texts(entry, "member")


def key_from(argument: str) -> StoredKey:
    """Read a key: from `-`, from a file, or the argument itself."""
    if argument == "-":
        return people.check_key(sys.stdin.read())
    if " " in argument.strip():
        return people.check_key(argument)
    try:
        return people.check_key(Path(argument).read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError) as error:
        why = error.strerror if isinstance(error, OSError) else "this is not text"
        raise PersonError(f"{argument}: {why}; expected a file with a public key") from error


# --- writing --------------------------------------------------------------------------------


def operator() -> str:
    """Return the name of the operator: with sudo, the user who called it."""
    return os.environ.get("SUDO_USER") or pwd.getpwuid(os.getuid()).pw_name


def carry_out(
    options: argparse.Namespace,
    directory: Directory,
    changes: Iterable[Change],
    action: str,
    **fields: object,
) -> int:
    """Show the changes, make them unless --check, and log."""
    changes = list(changes)
    for change in changes:
        print("\n".join(change.lines()))
    if not changes:
        print(f"{options.name}: nothing to change")
    elif options.check:
        print(f"{options.name}: would be changed as above; --check changes nothing")
    if options.check:
        return 0
    log = logfmt.to_syslog("hgfleet-person")
    done = 0
    try:
        for change in changes:
            directory.apply(change)
            done += 1
    finally:
        changed = "yes" if changes and done == len(changes) else "in part" if done else "no"
        log(
            logfmt.line(
                "person",
                action=action,
                person=options.name,
                **fields,
                by=operator(),
                changed=changed if done == len(changes) else f"{changed}, failed",
            )
        )
    if changes:
        print(f"{options.name}: changed")
    return 0


def run_add(options: argparse.Namespace) -> int:
    """Ensure that a person exists and has at least these keys and groups."""
    directory = connect(options)
    suffix = directory.suffix()
    keys = [key_from(argument) for argument in options.key]
    person = find(directory, options.name, suffix)
    changes = people.plan_add(person, options.name, suffix, options.full_name, options.mail)
    if person is None:
        dn = people.person_dn(options.name, suffix)
        classes = {"uid": [options.name.encode()], "objectClass": [b"ldapPublicKey"]}
        person = people.read(dn, classes)
        left = directory.search(f"ou=groups,{suffix}", group_filter(dn), ["cn", "member"])
        changes = people.plan_leave(person, suffix, left, options.group) + changes
    for key in {key.fingerprint: key for key in keys}.values():
        changes += people.plan_key_add(person, key, owners(directory, key.fingerprint, suffix))
    for group in dict.fromkeys(options.group):
        changes += people.plan_group_add(person, group, suffix, members(directory, group, suffix))
    fingerprints = ",".join(key.fingerprint for key in keys) or None
    groups = ",".join(options.group) or None
    return carry_out(options, directory, changes, "add", keys=fingerprints, groups=groups)


def run_disable(options: argparse.Namespace) -> int:
    """Refuse every login of this person."""
    directory = connect(options)
    person = existing(directory, options.name, directory.suffix())
    return carry_out(options, directory, people.plan_disable(person), "disable")


def run_enable(options: argparse.Namespace) -> int:
    """Let a person in again."""
    directory = connect(options)
    person = existing(directory, options.name, directory.suffix())
    return carry_out(options, directory, people.plan_enable(person), "enable")


def run_password(options: argparse.Namespace) -> int:
    """Set a password."""
    directory = connect(options)
    person = existing(directory, options.name, directory.suffix())
    if sys.stdin.isatty():
        password = getpass.getpass(f"New password of {options.name}: ")
        if password != getpass.getpass("The same again: "):
            raise PersonError("the two passwords differ; nothing was changed")
    else:
        password = sys.stdin.readline().rstrip("\n")
    changes = people.plan_password(person, people.check_password(password, options.name))
    code = carry_out(options, directory, changes, "password")
    if not options.check:
        stored = directory.get(person.dn, ["userPassword"]) or {}
        if not all(value.startswith("{") for value in texts(stored, "userPassword")):
            directory.apply(people.no_password(person))
            raise ConfigurationError(
                "the server stores passwords in clear (ppolicy_hash_cleartext is off), so this "
                "password was removed again"
            )
    return code


def run_key_add(options: argparse.Namespace) -> int:
    """Add a key."""
    directory = connect(options)
    suffix = directory.suffix()
    key = key_from(options.key)
    person = existing(directory, options.name, suffix)
    changes = people.plan_key_add(person, key, owners(directory, key.fingerprint, suffix))
    return carry_out(options, directory, changes, "key-add", fingerprint=key.fingerprint)


def run_key_remove(options: argparse.Namespace) -> int:
    """Remove a key."""
    directory = connect(options)
    person = existing(directory, options.name, directory.suffix())
    changes = people.plan_key_remove(person, options.key)
    return carry_out(options, directory, changes, "key-remove", key=options.key)


def run_group_add(options: argparse.Namespace) -> int:
    """Put a person into a group."""
    return _group(options, people.plan_group_add, "group-add")


def run_group_remove(options: argparse.Namespace) -> int:
    """Take a person out of a group."""
    return _group(options, people.plan_group_remove, "group-remove")


def _group(
    options: argparse.Namespace,
    plan: Callable[[Person, str, str, Sequence[str] | None], list[Change]],
    action: str,
) -> int:
    directory = connect(options)
    suffix = directory.suffix()
    person = existing(directory, options.name, suffix)
    changes = plan(person, options.group, suffix, members(directory, options.group, suffix))
    return carry_out(options, directory, changes, action, group=options.group)


# --- showing --------------------------------------------------------------------------------


def run_show(options: argparse.Namespace) -> int:
    """Show a person."""
    directory = connect(options)
    person = existing(directory, options.name, directory.suffix())
    print(json.dumps(person.data(), indent=2) if options.json else "\n".join(described(person)))
    return 0


def described(person: Person) -> list[str]:
    """Return a person as lines of text."""
    lines = [
        f"name:      {person.name}",
        f"full name: {person.full_name}",
        f"mail:      {', '.join(person.mail) or '-'}",
        f"state:     {person.state}",
        f"password:  {'set' if person.has_password else 'none'}",
        f"groups:    {', '.join(person.groups) or '-'}",
    ]
    for key in person.keys:
        if key.problem:
            lines.append(f"key:       unusable: {key.problem}")
        else:
            missing = (
                "" if key.fingerprint in person.key_ids else " (not indexed: hgfleet keys index)"
            )
            lines.append(f"key:       {key.fingerprint} {key.type} {key.comment}{missing}".rstrip())
    return lines if person.keys else [*lines, "key:       none"]


def run_list(options: argparse.Namespace) -> int:
    """List people."""
    directory = connect(options)
    suffix = directory.suffix()
    wanted = "(objectClass=inetOrgPerson)"
    locked = f"(pwdAccountLockedTime={DISABLED})"
    if options.disabled:
        wanted += locked
    if options.enabled:
        wanted += f"(!{locked})"
    groups: dict[str, list[str]] = {}
    for _, group in directory.search(
        f"ou=groups,{suffix}", "(objectClass=groupOfNames)", ["cn", "member"]
    ):
        for member in texts(group, "member"):
            groups.setdefault(member.lower(), []).extend(texts(group, "cn")[:1])
    listed = [
        people.read(dn, entry, groups.get(dn.lower(), ()))
        for dn, entry in directory.search(f"ou=people,{suffix}", f"(&{wanted})", people.ATTRIBUTES)
    ]
    listed = [
        person
        for person in sorted(listed, key=lambda person: person.name)
        if (options.group is None or options.group in person.groups)
        and not (options.no_keys and any(not key.problem for key in person.keys))
    ]
    if options.json:
        print(json.dumps([person.data() for person in listed], indent=2))
        return 0
    for person in listed:
        usable = sum(not key.problem for key in person.keys)
        keys = f"{usable} key{'' if usable == 1 else 's'}"
        print(f"{person.name:<20} {person.state:<9} {keys:<8} {','.join(person.groups) or '-'}")
    return 0
