"""Subcommands of `hgfleet`: their parsers, and the options they share."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from hgfleet.core.report import FORMATS

if TYPE_CHECKING:
    from collections.abc import Callable


class Parser(argparse.ArgumentParser):
    """The parser of `hgfleet`, of its parts and of their commands."""

    def __init__(self, **named: Any) -> None:
        super().__init__(**{"formatter_class": _Formatter, **named})


class _Formatter(argparse.HelpFormatter):
    """Fills a paragraph; a text of several lines, such as examples, stays as it is."""

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if "\n" in text.strip():
            return "".join(indent + line for line in text.splitlines(keepends=True))
        return super()._fill_text(text, width, indent)


def add_command(
    commands: Any, name: str, summary: str, run: Callable[[argparse.Namespace], int], **more: Any
) -> argparse.ArgumentParser:
    """Add a command that its summary describes; `more` goes to the parser."""
    parser: argparse.ArgumentParser = commands.add_parser(
        name, help=summary, description=f"{summary[0].upper()}{summary[1:]}.", **more
    )
    parser.set_defaults(run=run)
    return parser


def on_repositories(
    commands: Any, name: str, summary: str, example: str, run: Callable[..., int]
) -> argparse.ArgumentParser:
    """Add a command that takes paths of repositories, all if none is given."""
    parser = add_command(
        commands,
        name,
        summary,
        run,
        epilog=f"example:\n  {example}",
    )
    parser.add_argument(
        "repositories",
        nargs="*",
        metavar="REPO",
        help="path of a repository, as in the registry (default: all)",
    )
    return parser


def add_format(parser: argparse.ArgumentParser) -> None:
    """Add the option for the form of a report."""
    parser.add_argument(
        "--format",
        choices=FORMATS,
        default="auto",
        help="sentences or structured events (default: sentences at a terminal)",
    )
