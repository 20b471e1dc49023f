"""`hgfleet repo`: administer the repositories that people created."""

from __future__ import annotations

import fnmatch
import re
import shutil
import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.auth.token_sweep import ask_about
from hgfleet.backup.restores import repo_restore
from hgfleet.core import logfmt
from hgfleet.core.errors import UsageError
from hgfleet.core.names import is_person
from hgfleet.core.paths import COMPILED, DYNAMIC, HGRC, MANIFESTS, REPOSITORIES
from hgfleet.core.principal import Principal, operator
from hgfleet.directory import person_state
from hgfleet.registry.dynamic import dynamic_update, user_repositories
from hgfleet.selfservice import change_refusals, deletion, owner_binding, repositories, rules
from hgfleet.selfservice.context import Context

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from hgfleet.directory.person_state import PersonState
    from hgfleet.registry.dynamic.entry import Entry
    from hgfleet.registry.dynamic.user_repositories import Dynamic

MOST_ASKED: Final = 200
"""Names that a list compares with the directory: each takes a question of some milliseconds."""

_DAYS: Final = re.compile(r"([0-9]{1,4})d?")

_EPILOG = """\
examples:
  hgfleet repo list                          all of them: owner, since when, who may read
  hgfleet repo list --archived 'people/*'    those that are out of service
  hgfleet repo info people/bob/x             all about a repository
  hgfleet repo archive people/bob/x          take it out of service; nothing is deleted
  hgfleet repo restore people/bob/x          bring it back
  hgfleet repo restore team/tool --at 2026-11-24T14:30
                                             its state after the last push up to then, next to it
  hgfleet repo restore team/tool --at 2026-11-24T14:30 --in-place
                                             and give that state to the repository itself
  hgfleet repo give people/bob/x carol       make carol its owner
  hgfleet repo give people/bob/x bob         give it to today's bob, if bob was another person
  hgfleet repo purge --check                 list repositories archived for 30 days and more
  hgfleet repo purge                         delete those for good
  hgfleet repo purge --now PATH PATH         delete an archived repository at once

It runs on an SSH host, as root, and works with the rights of hg. For repositories that registry.yml
declares, it only restores earlier states; `hgfleet registry` does the rest.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `repo` and its commands."""
    parser = subparsers.add_parser(
        "repo",
        help="list, archive, restore, give and purge the repositories that people created",
        description="Look after the repositories that people created over SSH.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)

    def command(
        name: str, summary: str, run: Callable[[argparse.Namespace], int]
    ) -> argparse.ArgumentParser:
        sub = commands.add_parser(
            name,
            help=summary,
            description=f"{summary[0].upper()}{summary[1:]}.",
        )
        for option, default, text in (
            ("--registry", COMPILED, "the compiled registry"),
            ("--dynamic", DYNAMIC, "the repositories that people created"),
            ("--root", REPOSITORIES, "where repositories are"),
            ("--hgrc", HGRC, "the hgrc of hg, for HGRCPATH"),
            ("--manifests", MANIFESTS, "where the clone bundle manifests are"),
        ):
            sub.add_argument(option, default=default, metavar="PATH", help=f"{text} ({default})")
        sub.add_argument("--user", default="hg", help="owner of the repositories (hg)")
        sub.set_defaults(run=run)
        return sub

    list_ = command("list", "list the repositories that people created", _list)
    list_.add_argument("--archived", action="store_true", help="only archived repositories")
    list_.add_argument("pattern", nargs="?", default="*", metavar="PATTERN")
    info = command("info", "show an entry", _info)
    info.add_argument("path", metavar="PATH")
    command("archive", "take a repository out of service", _archive).add_argument(
        "path", metavar="PATH"
    )
    restore = command("restore", "bring a repository or its earlier state back", _restore)
    restore.add_argument("path", metavar="PATH")
    repo_restore.add_options(restore)
    give = command("give", "give a repository to another owner", _give)
    give.add_argument("path", metavar="PATH")
    give.add_argument("person", metavar="PERSON")
    for asking in (list_, info, give):
        asking.add_argument("--people", default=person_state.SOCKET, metavar="SOCKET")
    purge = command("purge", "delete archived repositories for good", _purge)
    purge.add_argument("path", nargs="?", metavar="PATH", help="only this repository")
    purge.add_argument(
        "--older-than",
        metavar="DAYS",
        default=f"{deletion.PURGE_AFTER_DAYS}d",
        help="how long it must have been archived (%(default)s, and that is the least)",
    )
    purge.add_argument("--now", metavar="PATH", help="PATH once more: without waiting")
    purge.add_argument("--check", action="store_true", help="show what would be deleted")


# --- the commands ---------------------------------------------------------------------------


def _context(options: argparse.Namespace) -> Context:
    from hgfleet.registry import owned_files

    owned_files.become(options.user)
    return Context(
        Principal("operator"),
        options.registry,
        options.dynamic,
        options.root,
        options.hgrc,
        manifests=options.manifests,
    )


def _changing(options: argparse.Namespace) -> Context:
    """Return the context of a command that changes something. Raises TemporaryError on a mirror."""
    context = _context(options)
    change_refusals.check(context.configuration)
    return context


def _log(action: str, path: str, entry: Entry, **more: object) -> None:
    log = logfmt.to_syslog("hgfleet-repo")
    fields = {"repository": path, "owner": entry.owner, "by": operator()}
    log(logfmt.line("repo", action=action, **fields, **more))


def _list(options: argparse.Namespace) -> int:
    context = _context(options)
    shown = {
        path: entry
        for path, entry in context.entries.repositories.items()
        if (entry.archived is not None or not options.archived)
        and fnmatch.fnmatchcase(path, options.pattern)
    }
    people, warning = _todays(shown.values(), options)
    rows = [("REPOSITORY", "OWNER", "CREATED", "STATE", "READ", "DESCRIPTION")]
    shadowed = user_repositories.shadowed(context.static, context.entries)
    for path, entry in shown.items():
        state = "served" if entry.archived is None else f"archived {entry.archived[:10]}"
        state = "not served: declared" if path in shadowed else state
        read = user_repositories.effective(path, entry, context.static).read
        readers = "public" if read == "public" else ",".join(read) or "owner"
        owner = _owner_text(entry, people)
        rows.append((path, owner, entry.created[:10], state, readers, entry.description))
    widths = [max(len(row[column]) for row in rows) for column in range(5)]
    for row in rows:
        cells = [cell.ljust(width) for cell, width in zip(row, widths, strict=False)]
        print("  ".join([*cells, row[5]]).rstrip())
    for problem in (*context.entries.problems(), *([warning] if warning else [])):
        print(f"warning: {problem}", file=sys.stderr)
    return 0


def _info(options: argparse.Namespace) -> int:
    context = _context(options)
    entry = _entry(context.entries, options.path)
    repository = user_repositories.effective(options.path, entry, context.static)
    place = context.place(options.path)
    people, warning = _todays([entry], options)
    lines = {
        "path": options.path,
        "description": entry.description or "none",
        "owner": _owner_text(entry, people),
        "created": entry.created,
        "archived": entry.archived or "no",
        "forked from": entry.forked_from or "nothing",
        "may read": rules.readers_text(repository.read, entry.owner),
        "may push": rules.writers_text(repository),
        "on disk": f"{place}, {repositories.size(place) / 1e6:,.1f} MB"
        if (place / ".hg").is_dir()
        else "no",
    }
    print("\n".join(f"{name + ':':14}{value}" for name, value in lines.items()))
    if warning:
        print(f"warning: {warning}", file=sys.stderr)
    return 0


def _todays(
    entries: Iterable[Entry], options: argparse.Namespace
) -> tuple[dict[str, PersonState], str]:
    """Return the people with the names of these owners today, and a warning or ""."""
    names = {entry.owner for entry in entries if entry.owner_id}
    if len(names) > MOST_ASKED:
        return {}, (
            f"{len(names)} owners are not compared with today's people; expected a PATTERN with "
            f"{MOST_ASKED} at most, or `hgfleet owners`"
        )
    return ask_about(names, lambda name: person_state.ask(name, options.people))


def _owner_text(entry: Entry, people: Mapping[str, PersonState]) -> str:
    """Return the owner of an entry, marked where another person has the name today."""
    state = owner_binding.state_of(entry.owner_id, people.get(entry.owner))
    if entry.owner_id and state in (owner_binding.ANOTHER, owner_binding.ABSENT):
        is_other = state == owner_binding.ANOTHER
        return f"{entry.owner} ({f'{state} {entry.owner}' if is_other else state})"
    return entry.owner


def _archive(options: argparse.Namespace) -> int:
    context, path = _changing(options), options.path
    with dynamic_update.update(context.dynamic) as entries:
        entry = _entry(entries.dynamic, path)
        if entry.archived is not None:
            raise UsageError(f"{path} is archived since {entry.archived}")
        if path in user_repositories.shadowed(context.static, entries.dynamic):
            raise UsageError(f"{path}: registry.yml declares it; take it out there")
        entries[path] = replace(entry, archived=user_repositories.now())
    _log("archive", path, entry)
    print(f"{path}: archived; nothing is deleted, `hgfleet repo restore {path}` brings it back")
    return 0


def _restore(options: argparse.Namespace) -> int:
    if options.at is None:
        if options.in_place:
            raise UsageError("--in-place: expected --at TIME with it, the time of a backup")
        return _unarchive(options)
    if options.in_place:
        change_refusals.check(Path(options.hgrc).read_text("utf-8"))
    return repo_restore.run(options.path, options.at, options)


def _unarchive(options: argparse.Namespace) -> int:
    context, path = _changing(options), options.path
    with dynamic_update.update(context.dynamic) as entries:
        entry = _entry(entries.dynamic, path)
        repositories.bring_back(context, path, entries)
    _log("restore", path, entry)
    print(f"{path}: restored")
    return 0


def _give(options: argparse.Namespace) -> int:
    context, path, person = _changing(options), options.path, options.person
    if not is_person(person):
        raise UsageError(f"{person!r} is not the name of a person")
    holder = person_state.ask(person, options.people)
    if holder.state not in (person_state.ENABLED, person_state.DISABLED):
        raise UsageError(
            f"{person}: got {holder.state!r} from the directory, expected a person; nothing changed"
        )
    with dynamic_update.update(context.dynamic) as entries:
        entry = _entry(entries.dynamic, path)
        entries[path] = given = replace(entry, owner=person, owner_id=holder.person_id)
        for old, note in entries.dynamic.renamed.items():
            # A former path of the same name leads to the person's own repository now.
            if note.to == path and note.owner == person:
                entries.note_owner(old, holder.person_id)
        repositories.configure(context, path, given)
    _log("give", path, entry, to=person, person_id=holder.person_id or None)
    is_namesake = entry.owner == person and entry.owner_id not in ("", holder.person_id)
    before = f"another person of the name {person}" if is_namesake else entry.owner
    print(f"{path}: belongs to {person} (before: {before})")
    return 0


def _purge(options: argparse.Namespace) -> int:
    days = _DAYS.fullmatch(options.older_than)
    if days is None or int(days[1]) < deletion.PURGE_AFTER_DAYS:
        raise UsageError(
            f"--older-than: got {options.older_than!r}, expected {deletion.PURGE_AFTER_DAYS}d or "
            "more; to delete a repository without waiting: --now PATH PATH"
        )
    if options.now is not None and options.now != options.path:
        raise UsageError("--now: name the repository twice, as in --now people/bob/x people/bob/x")
    context = _changing(options)
    wait = timedelta(0) if options.now else timedelta(days=int(days[1]))
    if options.path is not None:
        entry = _entry(context.entries, options.path)
        if entry.archived is None:
            raise UsageError(f"{options.path} is in service; archive it first")
        if not is_due(entry, wait, datetime.now(UTC)):
            raise UsageError(
                f"{options.path} is archived since {entry.archived}, for less than {wait.days} "
                f"days; without waiting: --now {options.path} {options.path}"
            )
    due = [
        path
        for path, entry in context.entries.repositories.items()
        if options.path in (None, path) and is_due(entry, wait, datetime.now(UTC))
    ]
    if options.check:
        for path in due:
            print(f"{path}: would be deleted ({_text(context, path)})")
    else:
        deletion.clear(context)
        for path in due:
            _delete(context, path, wait)
    print(f"{'would delete' if options.check else 'deleted'}={len(due)}")
    return 0


def is_due(entry: Entry, wait: timedelta, now: datetime) -> bool:
    """Whether an entry has been archived for at least this long."""
    if entry.archived is None:
        return False
    archived = datetime.strptime(entry.archived, "%Y-%m-%dT%H:%M:%SZ").replace(tzinfo=UTC)
    return now - archived >= wait


def _text(context: Context, path: str) -> str:
    entry = context.entries.repositories[path]
    size = repositories.size(context.place(path)) / 1e6
    return f"{entry.owner}'s, archived {entry.archived}, {size:,.1f} MB"


def _delete(context: Context, path: str, wait: timedelta) -> None:
    """Delete a repository, unless its owner has restored it since the list was made."""

    def check(entry: Entry | None) -> None:
        if entry is None or not is_due(entry, wait, datetime.now(UTC)):
            raise UsageError(f"{path}: no longer archived; kept")

    try:
        entry, away = deletion.withdraw(context, path, check)
    except UsageError as kept:
        print(kept)
        return
    size = repositories.size(away) if away.exists() else 0
    _log("purge", path, entry, archived=entry.archived, bytes=size)
    shutil.rmtree(away, ignore_errors=True)
    print(f"{path}: deleted ({entry.owner}'s, archived {entry.archived}, {size / 1e6:,.1f} MB)")


def _entry(entries: Dynamic, path: str) -> Entry:
    entry = entries.repositories.get(path)
    if entry is None:
        raise UsageError(
            f"{path}: no user created it over SSH; `hgfleet repo list` shows what users created, "
            "`hgfleet registry show --compiled` what the inventory declares"
        )
    return entry
