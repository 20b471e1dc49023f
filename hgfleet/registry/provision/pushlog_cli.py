"""`hgfleet pushlog`: look after the push logs of repositories."""

from __future__ import annotations

import sqlite3
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.core import paths, subcommands
from hgfleet.core.errors import HgfleetError, HostError, UsageError
from hgfleet.pushlog import index, index_step, log_file
from hgfleet.registry import owned_files
from hgfleet.registry.dynamic import user_repositories

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

_EPILOG = """\
examples:
  hgfleet pushlog index                  update the index of every repository
  hgfleet pushlog index team/project     update the index of a repository
  hgfleet pushlog verify                 compare every log with its repository
  hgfleet pushlog adopt                  begin the logs of repositories that have none
  hgfleet pushlog accept team/project    answer for changesets that are in no record

It runs as root, and works with the rights of hg. An index is made from its push log and can be
deleted at any time: this command, or the next pushes, make it again.
"""


def add_parser(subparsers: Any) -> None:
    """Add `hgfleet pushlog` and its commands."""
    parser: argparse.ArgumentParser = subparsers.add_parser(
        "pushlog",
        help="look after the push logs of repositories",
        description="Push logs: who pushed each changeset, and when.",
        epilog=_EPILOG,
    )
    commands = parser.add_subparsers(metavar="COMMAND", title="commands", required=True)
    subparser = subcommands.on_repositories(
        commands,
        "index",
        "update the index that answers questions over HTTPS",
        "hgfleet pushlog index team/project",
        _index,
    )
    _add_paths(subparser)
    for name, text in (
        ("adopt", "begin the log of repositories that have changesets and no log"),
        ("accept", "record changesets that came or went without a record, of named repositories"),
        ("verify", "compare logs with their repositories: chain, changesets, heads"),
    ):
        subparser = subcommands.on_repositories(
            commands, name, text, f"hgfleet pushlog {name} team/project", _check
        )
        subparser.set_defaults(action=name)
        _add_paths(subparser)
        help_ = f"the configuration that hg gets as HGRCPATH ({paths.HGRC})"
        subparser.add_argument("--hgrc", default=paths.HGRC, metavar="PATH", help=help_)


def _add_paths(subparser: argparse.ArgumentParser) -> None:
    for option, default, text in (
        ("--registry", paths.COMPILED, "the compiled registry"),
        ("--dynamic", paths.DYNAMIC, "the user repositories"),
        ("--root", paths.REPOSITORIES, "the folder of all repositories"),
    ):
        subparser.add_argument(option, default=default, metavar="PATH", help=f"{text} ({default})")
    subparser.add_argument("--user", default="hg", help="owner of the repositories (hg)")


def _check(options: argparse.Namespace) -> int:
    from hgfleet.registry.provision import pushlog_check

    if options.action == "accept" and not options.repositories:
        raise UsageError(
            "got no repository, expected the paths of those whose changesets you answer for; "
            "`hgfleet pushlog verify` names them"
        )
    owned_files.become(options.user)
    places = {path: Path(options.root) / path for path in _chosen(options)}
    named = bool(options.repositories)
    pushlog_check.run(places, options.action, options.hgrc, named=named)
    return 0


def _index(options: argparse.Namespace) -> int:
    owned_files.become(options.user)
    code = 0
    for path in _logged(options):
        try:
            updated = _update(Path(options.root) / path / ".hg")
        except HgfleetError as error:
            print(f"hgfleet: {path}: {error}", file=sys.stderr)
            code = error.exit_code
            continue
        if updated.is_rebuilt:
            print(f"{path}: the index is new, with {updated.pushes} pushes")
        elif updated.pushes or options.repositories:
            print(f"{path}: {updated.pushes} pushes added")
    return code


def _chosen(options: argparse.Namespace) -> Sequence[str]:
    """Return the named repositories, or all of the registry. Raises UsageError."""
    known = user_repositories.load_effective(
        options.registry, options.dynamic, lambda text: print(f"warning: {text}", file=sys.stderr)
    ).repositories
    if unknown := [path for path in options.repositories if path not in known]:
        raise UsageError(
            f"not in the registry: {', '.join(unknown)}; `hgfleet registry show --compiled` and "
            "`hgfleet repo list` show all repositories"
        )
    return options.repositories or [*known]


def _logged(options: argparse.Namespace) -> Sequence[str]:
    """Return the chosen repositories that have a push log here. Raises UsageError."""
    named = _chosen(options)
    root = Path(options.root)
    logged = [path for path in named if (root / path / ".hg/store" / log_file.NAME).exists()]
    for path in options.repositories:
        if path not in logged:
            print(f"{path}: no push log yet; its first push begins the log", file=sys.stderr)
    return logged


def _update(control: Path) -> index.Updated:
    """Update the index of a repository; raises HgfleetError."""
    file = control / "cache" / index_step.NAME
    try:
        return index.update(control / "store" / log_file.NAME, file)
    except (OSError, sqlite3.Error) as error:
        raise HostError(f"{file} cannot be written ({error}); check its disk and owner") from error
