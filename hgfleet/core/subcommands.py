"""Subcommands of `hgfleet` on repositories: their parser, and options that they share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hgfleet.core.report import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable


def on_repositories(
    commands: Any, name: str, summary: str, example: str, run: Callable[..., int]
) -> argparse.ArgumentParser:
    """Add a command that takes paths of repositories, all if none is given."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name,
        help=summary,
        description=f"{summary[0].upper()}{summary[1:]}.",
        epilog=f"example:\n  {example}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "repositories",
        nargs="*",
        metavar="REPO",
        help="path of a repository, as in the registry (default: all)",
    )
    parser.set_defaults(run=run)
    return parser


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option for the form of a report."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="auto",
        help="sentences or structured events (default: sentences at a terminal)",
    )
