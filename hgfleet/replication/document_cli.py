"""`hgfleet replication begin-term` and `missing`: generations of documents, for operators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from hgfleet.core import paths
from hgfleet.replication.settings import load

if TYPE_CHECKING:
    import argparse


def add_commands(commands: Any) -> None:
    """Add the commands to those of `hgfleet replication`."""
    begin = commands.add_parser(
        "begin-term",
        help="have mirrors take the registry and the tokens of this primary as they are",
        description="Begin a new term of the registry and the tokens of this primary (as root), "
        "which are then newer than any that mirrors have, also where they are those of a backup. "
        "Readers and tokens are from then on what they are here; a file of tokens that was removed "
        "is one without tokens.",
    )
    for option, default in (
        ("--dynamic", paths.DYNAMIC),
        ("--hgrc", paths.HGRC),
        ("--epoch", paths.EPOCH),
    ):
        begin.add_argument(option, type=Path, metavar="PATH", default=Path(default))
    begin.add_argument("--user", default="hg", help="owner of the repositories (hg)")
    begin.set_defaults(run=_begin_term)
    lost = commands.add_parser(
        "missing",
        help="print the repositories that the primary's registry lost, with their entries",
        description="Print, as JSON, which repositories left the registry without a deletion while "
        "this mirror followed it; `hgfleet registry bring-back --from -` on the primary reads it.",
    )
    lost.set_defaults(run=_missing)


def _begin_term(options: argparse.Namespace) -> int:
    from hgfleet.auth import token_file
    from hgfleet.core import generation
    from hgfleet.registry import dynamic_update, repair
    from hgfleet.registry.owned_files import become
    from hgfleet.replication.document_files import TOKENS_FILE, TOKENS_FOLDER

    repair.on_primary(options.hgrc)
    become(options.user)
    tokens = options.dynamic.parent / TOKENS_FOLDER / TOKENS_FILE
    dynamic_update.begin_term(options.dynamic, options.epoch)
    token_file.begin_term(str(tokens), options.epoch)
    for name, file, none in (
        ("registry", options.dynamic, "there is none"),
        ("tokens", tokens, "there are none"),
    ):
        newest = generation.read_beside(file).generation if file.exists() else None
        print(f"{name}: {f'generation {newest}' if newest else f'{none}, and no term begins'}")
    return 0


def _missing(options: argparse.Namespace) -> int:
    from hgfleet.registry import missing

    found = missing.load(load(options.config).dynamic)
    print(missing.text(found.values()), end="")
    return 0
