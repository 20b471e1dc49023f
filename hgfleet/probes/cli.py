"""`hgfleet probes`: clone and push as a client, and publish the results."""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core.subcommands import add_command
from hgfleet.probes.settings import DEFAULT_PATH, load

if TYPE_CHECKING:
    import argparse

    from hgfleet.probes.settings import Settings

_EPILOG: Final = """\
examples:
  systemctl reload hgfleet-probes     a probe now, with the user and the credentials of the unit
  hgfleet probes show                 how clones and pushes go now, in 24 hours and in 90 days
  hgfleet probes page > status.html   the current page, to look at before it is public

The unit hgfleet-probes.service runs `serve`. Its journal has each clone and push that fails.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `probes` and its commands."""
    parser = subparsers.add_parser(
        "probes",
        help="clone and push as a client each minute, and show the public how that goes",
        description="Clones and pushes of the probes, their history and the public status page.",
        epilog=_EPILOG,
    )
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_PATH,
        metavar="FILE",
        help=f"settings of the probes ({DEFAULT_PATH})",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_command(commands, "check", "check the settings", _check)
    add_command(commands, "serve", "clone and push each minute, and upload the page", _serve)
    add_command(commands, "show", "show how clones and pushes go", _show)
    add_command(commands, "page", "print the page of now", _page)


def _settings(options: argparse.Namespace) -> Settings:
    return load(options.config)


def _check(options: argparse.Namespace) -> int:
    _settings(options)
    return 0


def _serve(options: argparse.Namespace) -> int:
    from hgfleet.probes.service import serve

    serve(options.config)


def _show(options: argparse.Namespace) -> int:
    from hgfleet.probes import page
    from hgfleet.probes.run import known

    now = time.time()
    for probe, history in known(_settings(options)).items():
        print(page.headline(probe, history.results))
        if history.results:
            last = history.results[-1]
            how = "failed" if last.seconds is None else f"took {last.seconds:.1f} s"
            print(f"  last {probe}: {now - last.time:.0f} s ago, {how}")
        for name, bars in (
            ("24 hours", page.of_day(history, now)),
            ("90 days", page.of_days(history, now)),
        ):
            total = page.total(bars)
            print(f"  {name}: {page.share(total)}, {total.failed} of {total.attempts} failed")
    return 0


def _page(options: argparse.Namespace) -> int:
    from hgfleet.probes.run import known, render

    settings = _settings(options)
    sys.stdout.buffer.write(render(settings, known(settings), time.time()))
    return 0
