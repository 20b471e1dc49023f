"""Repairs of the dynamic registry by operators: `registry bring-back`, `forget-deletions`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import hgrc, identity, paths
from hgfleet.core.errors import ConfigurationError, UsageError
from hgfleet.registry.dynamic import dynamic_update, missing, user_repositories
from hgfleet.registry.dynamic.entry import BAD, Entry
from hgfleet.registry.owned_files import become

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Iterable, Mapping

    from hgfleet.registry.dynamic.missing import Missing

DAY_S: Final = 86_400


def add_commands(commands: Any) -> None:
    """Add the commands to the parser of `hgfleet registry`."""
    back = commands.add_parser(
        "bring-back",
        help="register repositories again that the registry lost",
        description="Give repositories that left the registry without a deletion their entries "
        "again, with their owners and readers (on the primary, as root). Mirrors put the folders "
        "that they have set aside back in place. Without a repository, it lists missing ones.",
    )
    back.add_argument("repositories", nargs="*", metavar="REPO", help="identity or path")
    back.add_argument(
        "--from",
        dest="notes",
        metavar="FILE",
        help="notes of a mirror (`hgfleet replication missing`), - for standard input; without it, "
        "the notes of this host",
    )
    back.set_defaults(run=_bring_back)
    forget = commands.add_parser(
        "forget-deletions",
        help="forget old deletions, if no more can be recorded",
        description="Forget which repositories were deleted more than so many days ago (on the "
        "primary, as root). A mirror that was away since then sets its copies of them aside.",
    )
    forget.add_argument("--older-than", type=int, default=30, metavar="DAYS", help="30 by default")
    forget.set_defaults(run=_forget)
    for parser in (back, forget):
        for option, default in (("--dynamic", paths.DYNAMIC), ("--root", paths.REPOSITORIES)):
            parser.add_argument(option, type=Path, metavar="PATH", default=Path(default))
        parser.add_argument("--hgrc", type=Path, metavar="PATH", default=Path(paths.HGRC))
        parser.add_argument("--user", default="hg", help="owner of the repositories (hg)")


def on_primary(file: Path) -> None:
    """Raise ConfigurationError on a mirror, whose hgrc names its primary."""
    try:
        primary = hgrc.setting(file.read_text("utf-8", "replace"), "replica-of")
    except FileNotFoundError:
        return
    if primary:
        raise ConfigurationError(f"this host is a mirror; run it on its primary, {primary}")


def _bring_back(options: argparse.Namespace) -> int:
    on_primary(options.hgrc)
    become(options.user)
    if options.notes is None:
        notes = missing.load(options.dynamic)
    else:
        is_input = options.notes == "-"
        text = sys.stdin.buffer.read() if is_input else Path(options.notes).read_bytes()
        notes = missing.parse(text, "standard input" if is_input else options.notes)
    if options.repositories:
        bring_back(options.dynamic, options.root, options.repositories, print, notes)
        return 0
    for note in sorted(notes.values(), key=lambda note: note.path):
        print(f"{note.path} {note.identity} since {note.since}")
    if not notes:
        print("no repository is missing")
    return 0


def _forget(options: argparse.Namespace) -> int:
    on_primary(options.hgrc)
    if options.older_than < 1:
        raise UsageError(f"got --older-than {options.older_than}, expected 1 day or more")
    become(options.user)
    with dynamic_update.update(options.dynamic) as entries:
        count = entries.forget_purged(user_repositories.ago(options.older_than * DAY_S))
    print(f"{count} deletions forgotten")
    return 0


def bring_back(
    dynamic: Path,
    root: Path,
    wanted: Iterable[str],
    report: Callable[[str], None],
    notes: Mapping[str, Missing],
) -> None:
    """Give repositories their entries again, by identity or by path (I/O).

    `notes` belong to this primary, or to a mirror. Raises UsageError, before anything changes, for
    a repository that is not noted, was deleted, exists already, or has no folder on this host.
    """
    with dynamic_update.update(dynamic) as entries:
        for name in wanted:
            note = _noted(name, notes)
            if note.identity in entries.dynamic.purged:
                raise UsageError(f"{name}: its owner deleted it; a backup may have it")
            if note.entry is None:
                raise UsageError(
                    f"{name}: the inventory declared it; declare it in registry.yml again"
                )
            if note.path in entries.dynamic.raw:
                raise UsageError(f"{note.path}: another repository has this path; rename it first")
            if identity.of(root / note.path) != note.identity:
                raise UsageError(
                    f"{note.path}: its folder is not there; copy "
                    f".replication/aside-{note.identity} of the mirror to it first "
                    "(runbook hgfleet-applier)"
                )
            entries[note.path] = _entry(note)
            report(f"{note.path}: in the registry again, of {note.entry['owner']}")


def _noted(name: str, notes: Mapping[str, Missing]) -> Missing:
    matching = [note for note in notes.values() if name in (note.identity, note.path)]
    if len(matching) != 1:
        known = ", ".join(sorted(note.path for note in notes.values())) or "none"
        count = len(matching)
        raise UsageError(f"{name}: got {count} missing repositories, expected one of: {known}")
    return matching[0]


def _entry(note: Missing) -> Entry:
    try:
        return Entry.from_json(note.entry or {})
    except BAD as error:
        raise UsageError(
            f"{note.path}: its entry is noted with a wrong value ({error}); create it again, and "
            "push the changesets of a mirror"
        ) from error
