"""Commands of replication, in two tables: the daemons, and `hgfleet replication` for operators."""

from __future__ import annotations

import argparse
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core import paths
from hgfleet.core.subcommands import add_format
from hgfleet.replication import commands, daemons
from hgfleet.replication.protocol.settings import DEFAULT_PATH, SOURCE_PORT

if TYPE_CHECKING:
    from collections.abc import Callable

    Option = Callable[[argparse.ArgumentParser], object]


@dataclass(frozen=True, slots=True)
class Command:
    """A command: its help, its options, and the function from its options to an exit code."""

    name: str
    run: Callable[[argparse.Namespace], int]
    help: str
    description: str | None = None
    options: tuple[Option, ...] = ()
    epilog: str | None = None

    def add(self, parsers: Any, *more: Option) -> argparse.ArgumentParser:
        """Add the parser of the command, with more options, and return it."""
        raw = argparse.RawDescriptionHelpFormatter
        parser: argparse.ArgumentParser = parsers.add_parser(
            self.name,
            help=self.help,
            description=self.description,
            epilog=self.epilog,
            formatter_class=raw if self.epilog else argparse.HelpFormatter,
        )
        for add in (*more, *self.options):
            add(parser)
        parser.set_defaults(run=self.run)
        return parser


def _option(*names: str, **more: Any) -> Option:
    def add(parser: argparse.ArgumentParser) -> object:
        return parser.add_argument(*names, **more)

    return add


def add_parser(subparsers: Any) -> None:
    """Add the daemons, and `replication` with its commands."""
    for daemon in DAEMONS:
        daemon.add(subparsers, _CONFIG)
    parser = _REPLICATION.add(subparsers, _CONFIG)
    of_operators = parser.add_subparsers(metavar="COMMAND", required=True)
    for command in COMMANDS:
        command.add(of_operators)


_CONFIG: Final = _option(
    "--config",
    type=Path,
    default=DEFAULT_PATH,
    metavar="FILE",
    help="settings (default: %(default)s)",
)

DAEMONS: Final = (
    Command(
        "applier",
        daemons.applier,
        "bring the pushes of the primary to this mirror",
        "Apply every push of the primary to the repositories of this mirror, until stopped. The "
        "unit hgfleet-applier runs this.",
    ),
    Command(
        "relay",
        daemons.relay,
        "publish the pushes of this primary until stopped",
        "Publishes the pushes of this primary to the broker, until stopped.",
        epilog="""\
examples:
  systemctl status hgfleet-relay           the relay, and its last events
  cat /run/hgfleet-replication/state.json  the broker, the mirrors, unpublished pushes with reasons
""",
    ),
    Command(
        "source",
        daemons.source,
        "serve mirrors the data that messages of pushes do not carry",
        "Serve mirrors the data that messages of pushes do not carry, over mutual TLS.",
        (
            _option(
                "--address", default="::", help="address to listen at (default: all addresses)"
            ),
            _option("--port", type=int, default=SOURCE_PORT, help=f"port ({SOURCE_PORT})"),
        ),
        """\
Mirrors of this primary fetch changesets, push logs, the registry of user repositories, tokens (as
hashes) and bundles here. A mirror shows the certificate of its host; other hosts are refused. The
unit hgfleet-source.service runs this as the user hg.

example:
  hgfleet source --port 7460
""",
    ),
    Command(
        "events",
        daemons.events,
        "serve push events until stopped",
        "Serves push events of public repositories to nginx, until stopped.",
        (
            _option(
                "--socket",
                type=Path,
                default=Path("/run/hgfleet-events/socket"),
                metavar="FILE",
                help="Unix socket (%(default)s)",
            ),
        ),
        """\
examples:
  systemctl status hgfleet-events
  curl -N https://HOST/api/events?repository=team/tool     the events, as a client reads them
""",
    ),
)

# -- operators -------------------------------------------------------------------------------------

_REPLICATION: Final = Command(
    "replication",
    commands.status,
    "show, compare and repair the copies of this host",
    "Mirrors have every push of the primary; these commands show and compare them.",
    epilog="""\
examples:
  hgfleet replication status               the state of this host, problems first
  hgfleet replication lag                  the repositories in which this mirror is behind
  hgfleet replication verify               compare all repositories with the primary
  hgfleet replication resync team/tool     replace a repository of this mirror by a fresh copy
  hgfleet replication lift team/tool       let a fenced repository of the primary take pushes again

exit codes: 0 all is well, 65 something differs, is parked, or does not go out from the primary,
69 the primary does not answer, 75 this mirror is behind.
""",
)

_DRY_RUN: Final = _option("--dry-run", action="store_true", help="check, and change nothing")
_POSITIONS: Final = _option(
    "--positions",
    action="append",
    default=[],
    type=Path,
    metavar="FILE",
    help="output of `hgfleet replication positions` on other hosts, - for standard input; may "
    "be repeated",
)


def _accept_loss(what: str) -> Option:
    return _option(
        "--accept-loss",
        action="append",
        default=[],
        metavar="PATH@ID",
        help=f"{what} these pushes: PATH@ID or PATH@FIRST-LAST; may be repeated",
    )


_TERM: Final = (_DRY_RUN, _accept_loss("give up"), _POSITIONS)

COMMANDS: Final = (
    Command(
        "status",
        commands.status,
        "show the state of this host",
        options=(_option("--json", action="store_true", help="print the state file as it is"),),
    ),
    Command("lag", commands.lag, "list the repositories that are behind"),
    Command(
        "verify",
        commands.verify,
        "compare repositories of this mirror with the primary",
        "Compare repositories of this mirror with the primary.",
        (
            _option(
                "repositories",
                nargs="*",
                metavar="REPO",
                help="path of a repository, as in the registry (default: all)",
            ),
            add_format,
        ),
        "example:\n  hgfleet replication verify team/tool",
    ),
    Command(
        "resync",
        commands.resync,
        "replace repositories of this mirror by fresh copies",
        "Copy repositories from the primary next to their places, compare the copies with the "
        "primary, and exchange them in a single step. Readers are not interrupted.",
        (
            _option("repositories", nargs="+", metavar="REPO"),
            _option(
                "--certificates",
                type=Path,
                default=Path(paths.CA_CERTIFICATES),
                metavar="FILE",
                help=f"CA certificates for the bundle stores ({paths.CA_CERTIFICATES})",
            ),
            add_format,
        ),
    ),
    Command(
        "begin-term",
        commands.begin_term,
        "make mirrors take the registry and the tokens of this primary as they are",
        "Begin a new term of the registry and the tokens of this primary (as root). Then they "
        "count as newer than any version that mirrors have, even if they come from a backup. From "
        "then on mirrors have the same readers and tokens as this host. If the file of tokens was "
        "removed, mirrors have no tokens.",
        (
            *(
                _option(name, type=Path, metavar="PATH", default=Path(default))
                for name, default in (
                    ("--dynamic", paths.DYNAMIC),
                    ("--hgrc", paths.HGRC),
                    ("--epoch", paths.EPOCH),
                )
            ),
            _option("--user", default="hg", help="owner of the repositories (hg)"),
        ),
    ),
    Command(
        "missing",
        commands.missing,
        "print the repositories that the primary's registry lost, with their entries",
        "Print, as JSON, the repositories that left the registry without a deletion while this "
        "mirror followed it; `hgfleet registry bring-back --from -` on the primary reads them.",
    ),
    Command(
        "promote",
        commands.promote,
        "begin the next term, with this mirror as the primary",
        "Refuses while another place has an acknowledged push that this mirror does not have. "
        "playbooks/promote.yml runs this command, and changes the roles of the hosts.",
        _TERM,
    ),
    Command(
        "new-term",
        commands.new_term,
        "begin the next term of this primary, after it was restored from a backup",
        "The next term tells new records apart from pushes that are missing in the backup. "
        "Refuses while another place has an acknowledged push that this primary does not have. Run "
        "it with the relay stopped.",
        _TERM,
    ),
    Command(
        "fence",
        commands.fence,
        "make this host refuse all pushes",
        options=(_option("--lift", action="store_true", help="let it take pushes again"),),
    ),
    Command("positions", commands.positions, "print the last record of each repository, as JSON"),
    Command(
        "beyond",
        commands.beyond,
        "list the pushes that this mirror has beyond a backup of the primary",
        "Compare this mirror with a backup, as `hgfleet backup points` prints it on the primary. "
        "Prints a sentence for each repository of which this mirror has more, and nothing if the "
        "backup has everything. Repositories that were renamed or deleted since the backup are "
        "printed to standard error, and prevent nothing. playbooks/restore.yml runs this on every "
        "mirror.",
        (
            _option("points", type=Path, metavar="FILE", help="points of the backup; - for input"),
            _accept_loss("leave out"),
        ),
    ),
    Command(
        "fences",
        commands.fences,
        "list the repositories of this primary that take no pushes, and why",
        "Exit code 65 if there is any.",
        (_option("--json", action="store_true", help="print a JSON line for each"),),
    ),
    Command(
        "lift",
        commands.lift,
        "let a fenced repository take pushes again",
        "Lifts the fence if the push log has the missing push again, and bookmarks are where its "
        "records moved them. If the push log does not have the push, the missing pushes have to be "
        "given up by name. That begins a new term of this primary, and mirrors park the repository "
        "until `hgfleet replication resync` there.",
        (
            _option("repository", metavar="REPO", help="its path, or its identity"),
            _accept_loss("give up"),
        ),
    ),
)
