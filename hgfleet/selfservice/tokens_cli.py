"""`hgfleet tokens`: restore lost tokens of a person; remove the tokens of disabled people."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, NoReturn

from hgfleet.auth import token_file, token_sweep, tokens
from hgfleet.backup.restic.settings import DEFAULT_PATH
from hgfleet.core import logfmt
from hgfleet.core.daemons import periodic
from hgfleet.core.errors import HostError, TemporaryError, UsageError
from hgfleet.core.paths import DYNAMIC, HGRC
from hgfleet.core.principal import Principal, operator
from hgfleet.directory import person_state
from hgfleet.selfservice import owner_binding

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterable, Mapping

    from hgfleet.auth.tokens import Token, Tokens
    from hgfleet.directory.person_state import PersonState

_EPILOG: Final = """\
examples:
  hgfleet tokens restore alice --at 2026-11-24T14:30
                                             tokens of then that alice does not have now
  hgfleet tokens restore alice --at 2026-11-24T14:30 --id k3v9x2ab
                                             bring only this token back
  hgfleet tokens restore alice --at now --all

A token that its owner revoked works again once it is restored: ask the owner first. It runs on an
SSH host, as root. Backups have hashes of tokens, no secrets.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `tokens` and its command."""
    parser = subparsers.add_parser(
        "tokens",
        help="restore access tokens of a person from a backup; sweep the tokens of disabled people",
        description="Access tokens that people made over SSH.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    restore = commands.add_parser(
        "restore", help="show lost tokens of a person, or bring them back"
    )
    restore.add_argument("person", metavar="PERSON")
    restore.add_argument(
        "--id",
        dest="ids",
        action="append",
        default=[],
        metavar="ID",
        help="bring this token back; may be repeated (default: list)",
    )
    restore.add_argument("--all", action="store_true", help="bring all listed tokens back")
    restore.add_argument(
        "--at", required=True, metavar="TIME", help="the newest backup up to then, or `now`"
    )
    restore.add_argument("--config", type=Path, default=DEFAULT_PATH, metavar="FILE")
    restore.add_argument("--tokens", default=token_file.PATH, metavar="FILE")
    restore.add_argument("--hgrc", default=HGRC, metavar="FILE")
    restore.add_argument("--people", default=person_state.SOCKET, metavar="SOCKET")
    restore.set_defaults(run=_restore)
    sweep = commands.add_parser(
        "sweep",
        help="remove tokens of disabled, deleted and former people, and bind things that have no "
        "person id yet, again and again (a unit runs this)",
    )
    sweep.add_argument("--tokens", default=token_file.PATH, metavar="FILE")
    sweep.add_argument("--hgrc", default=HGRC, metavar="FILE")
    sweep.add_argument("--people", default=person_state.SOCKET, metavar="SOCKET")
    sweep.add_argument("--dynamic", default=DYNAMIC, metavar="FILE")
    sweep.set_defaults(run=_sweep)


def _sweep(options: argparse.Namespace) -> NoReturn:
    from hgfleet.selfservice import change_refusals

    def may_change() -> None:
        try:
            change_refusals.check(Path(options.hgrc).read_text("utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise TemporaryError(f"{options.hgrc}: {error}") from error

    def ask(person: str) -> PersonState:
        return person_state.ask(person, options.people)

    log = logfmt.to_journal
    sweeper = token_sweep.Sweeper(options.tokens, ask, may_change, log)
    binder = owner_binding.Binder(options.dynamic, ask, may_change, log)

    def poll() -> None:
        sweeper.poll()
        binder.poll()

    periodic.repeat(poll, token_sweep.EVERY_S)


def lost(
    then: Mapping[str, Token], now: Mapping[str, Token], person: Principal, when: datetime
) -> Tokens:
    """Return the tokens of a person that a backup has, that are valid, and missing now. Pure."""
    return {
        name: token
        for name, token in tokens.of_owner(then, person, when).items()
        if name not in now
    }


def chosen(
    restorable: Tokens, ids: Iterable[str], kept: Mapping[str, Token], person: Principal
) -> Tokens:
    """Return the tokens to bring back. Pure. Raises UsageError."""
    if unknown := [name for name in ids if name not in restorable]:
        raise UsageError(
            f"{person.name} lost no such token: {', '.join(unknown)}; expected some of "
            f"{', '.join(sorted(restorable)) or 'none'}"
        )
    wanted = {name: restorable[name] for name in ids}
    count = len(wanted) + sum(person.owns(token) for token in kept.values())
    if count > tokens.MOST_TOKENS:
        raise UsageError(
            f"{person.name} would have {count} tokens, expected at most {tokens.MOST_TOKENS}; "
            "name fewer"
        )
    return wanted


def _restore(options: argparse.Namespace) -> int:
    from hgfleet.registry import owned_files
    from hgfleet.selfservice import change_refusals

    if options.ids or options.all:
        change_refusals.check(Path(options.hgrc).read_text("utf-8"))
    text, made = _of_backup(options)
    owned_files.become("hg")
    person = today(options, token_file.parse(text))
    when = datetime.now(UTC)
    missing = lost(token_file.parse(text), token_file.load(options.tokens), person, when)
    ids = sorted(missing) if options.all else options.ids
    if not ids:
        print(
            f"of the backup of {made}: {len(missing)} tokens of {person.name} that are missing now"
        )
        for name, token in sorted(missing.items()):
            print(f"{name}  {token.created[:10]}  {token.expires[:10]}  {token.description}")
        return 0
    with token_file.update(options.tokens) as kept:
        wanted = chosen(lost(token_file.parse(text), kept, person, when), ids, kept, person)
        kept.update(wanted)
    log = logfmt.to_syslog("hgfleet-tokens")
    for name in sorted(wanted):
        log(logfmt.line("token", action="restore", owner=person.name, token=name, by=operator()))
        print(f"token {name} of {person.name} works again, from the backup of {made}")
    return 0


def today(options: argparse.Namespace, then: Tokens) -> Principal:
    """Return the person of today, looked up only if tokens of the backup have a person id.

    Tokens of a former person of the name are reported, and do not come back.
    """
    name = options.person
    if not any(token.owner == name and token.owner_id for token in then.values()):
        return Principal(name)
    person = Principal(name, person_id=person_state.ask(name, options.people).person_id)
    others = sum(token.owner == name and not person.owns(token) for token in then.values())
    if others:
        print(f"{others} tokens of the backup are of another person than today's {name}: left out")
    return person


def _of_backup(options: argparse.Namespace) -> tuple[str, str]:
    """Return the file of tokens in the newest backup up to a time, and the time of that backup."""
    from hgfleet.backup.restic.restic import Restic
    from hgfleet.backup.restic.settings import load
    from hgfleet.backup.restores import restore
    from hgfleet.backup.run import ALL

    restic = Restic(load(options.config))
    at = None if options.at == "now" else restore.moment(options.at)
    for snapshot in restore.candidates(restic.snapshots(), "", at):
        if ALL in snapshot.tags and (text := restic.dump(snapshot.id, options.tokens)) is not None:
            return text, snapshot.time[:19]
    raise HostError(
        f"no backup up to that time has {options.tokens}; `hgfleet backup list` shows the backups"
    )
