"""`hgfleet`: a single command, with a subcommand for each part.

Each module of a part has a function `add_parser(subparsers)`, which adds the parsers of its parts
and sets `run` on them: a function from the parsed arguments to an exit code
(`parser.set_defaults(run=...)`). Only the module of the part in the command line is imported:
`hgfleet registry` starts without boto3.
"""

from __future__ import annotations

import importlib
import os
import sys
from typing import TYPE_CHECKING, Final

from hgfleet import __version__
from hgfleet.core.errors import HgfleetError
from hgfleet.core.subcommands import Parser

if TYPE_CHECKING:
    from collections.abc import Sequence

# name -> (module with add_parser, summary for the overview)
PARTS: Final[dict[str, tuple[str, str]]] = {
    "registry": ("hgfleet.registry.cli", "check, show and apply the registry of repositories"),
    "replica": (
        "hgfleet.directory.sync_cli",
        "compare this host's copy of the directory with the provider",
    ),
    "directory": ("hgfleet.directory.acl_check", "check the access rules of the directory"),
    "pushlog": (
        "hgfleet.registry.provision.pushlog_cli",
        "look after the push logs of repositories",
    ),
    "repo": ("hgfleet.selfservice.repo_cli", "look after the repositories that people created"),
    "owners": (
        "hgfleet.selfservice.owners_cli",
        "show repositories and tokens of former owners, and bind them to current users",
    ),
    "tokens": ("hgfleet.selfservice.tokens_cli", "restore or sweep access tokens"),
    "bundles": ("hgfleet.bundles.cli", "make, publish and prune clone bundles"),
    "storage": ("hgfleet.storage.cli", "move repositories to the current storage format"),
    "person": (
        "hgfleet.directory.people_cli",
        "add, change and show people, on the directory's host",
    ),
    "keys": ("hgfleet.directory.fingerprints", "index the SSH keys of a directory"),
    "applier": (
        "hgfleet.replication.cli",
        "bring the pushes of the primary to this mirror",
    ),
    "steering": (
        "hgfleet.steering.cli",
        "probe the places of bundles, and steer clients to places that answer",
    ),
    "replication": (
        "hgfleet.replication.cli",
        "show, compare and repair the copies of this host",
    ),
    "source": (
        "hgfleet.replication.cli",
        "serve mirrors the data that messages of pushes do not carry",
    ),
    "relay": ("hgfleet.replication.cli", "publish the pushes of this primary to mirrors"),
    "events": ("hgfleet.replication.cli", "serve push events to clients of this web host"),
    "backup": ("hgfleet.backup.cli", "back up this host, restore, and show the possible loss"),
    "metrics": ("hgfleet.monitoring.cli", "show the metrics of this host"),
    "integrity": (
        "hgfleet.integrity.cli",
        "verify the repositories of this host on schedule, and repair corrupt repositories",
    ),
    "probes": (
        "hgfleet.probes.cli",
        "clone and push as a client, and show the results on the status page",
    ),
    "acme": ("hgfleet.acme.cli", "renew the certificate of this host's public names"),
    "log": ("hgfleet.logs.cli", "follow a push or a clone through the logs of this host"),
    "webhooks": ("hgfleet.webhooks.cli", "post push events to receivers, and list dead events"),
}

_EPILOG = """\
examples:
  hgfleet registry check registry.yml    list the problems of a registry
  hgfleet registry apply --check --diff  show the changes that applying it makes on this host
  hgfleet registry apply --help          every option of a command

exit codes are those of sysexits(3): 65 bad data, 69 a server is unavailable, 71 a file or program
of this host is wrong, 75 try again later, 77 not allowed, 78 bad configuration.
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run a subcommand; an error ends as a sentence on stderr, with its exit code."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    try:
        parser = _parser(arguments)
        options = parser.parse_args(arguments)
        if not hasattr(options, "run"):
            parser.print_help(sys.stderr)
            return 2
        code = options.run(options)
        sys.stdout.flush()
    except HgfleetError as error:
        sys.stdout.flush()
        print(f"hgfleet: {error}", file=sys.stderr)
        return error.exit_code
    except BrokenPipeError:
        # The reader (head, less) has seen enough. stdout is replaced, or the interpreter would
        # complain again when it closes it.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("hgfleet: interrupted", file=sys.stderr)
        return 130
    return int(code or 0)


def _parser(arguments: Sequence[str]) -> Parser:
    # Parsers of parts and commands are of the same class.
    parser = Parser(
        prog="hgfleet",
        description="Commands of a hosted Mercurial service.",
        epilog=_EPILOG,
    )
    parser.add_argument("--version", action="version", version=f"hgfleet {__version__}")
    subparsers = parser.add_subparsers(metavar="PART", title="parts")
    wanted, _ = PARTS.get(
        next((word for word in arguments if not word.startswith("-")), ""), ("", "")
    )
    if wanted:
        importlib.import_module(wanted).add_parser(subparsers)
    for name, (module, summary) in PARTS.items():
        if module != wanted:
            subparsers.add_parser(name, help=summary, add_help=False)
    return parser
