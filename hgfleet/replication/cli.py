"""`hgfleet replication`: status of this host, and the comparison and repair of a mirror."""

from __future__ import annotations

import argparse
import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core import paths
from hgfleet.core.errors import ConfigurationError, HgfleetError, UsageError
from hgfleet.core.names import path_problem
from hgfleet.core.report import Report
from hgfleet.core.subcommands import add_format, on_repositories
from hgfleet.registry.owned_files import become
from hgfleet.replication import beyond_cli, document_cli, lifting_cli, promotion_cli
from hgfleet.replication.command_line import add_config
from hgfleet.replication.settings import Role, load

if TYPE_CHECKING:
    from hgfleet.replication.settings import Settings
    from hgfleet.replication.source_client import SourceClient

DIFFERENT: Final = 65
"""Exit code: a repository differs, and no push repairs it."""
LATE: Final = 75
"""Exit code: a mirror is behind, and goes on."""

_EPILOG: Final = """\
examples:
  hgfleet replication status               the state of this host, what is wrong first
  hgfleet replication lag                  the repositories in which this mirror is behind
  hgfleet replication verify               compare all repositories with the primary
  hgfleet replication resync team/tool     make a repository of this mirror anew
  hgfleet replication lift team/tool       have a fenced repository of the primary take pushes again

exit codes: 0 all is well, 65 something differs or is parked, 69 the primary does not answer,
75 this mirror is behind.
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `replication` and its commands."""
    raw = argparse.RawDescriptionHelpFormatter
    parser = subparsers.add_parser(
        "replication",
        help="show, compare and repair the copies of this host",
        description="Mirrors have every push of the primary; these commands show and compare them.",
        epilog=_EPILOG,
        formatter_class=raw,
    )
    add_config(parser)
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    status = commands.add_parser("status", help="show the state of this host")
    status.add_argument("--json", action="store_true", help="print the state file as it is")
    status.set_defaults(run=_status)
    commands.add_parser("lag", help="list the repositories that are behind").set_defaults(run=_lag)
    verify = on_repositories(
        commands,
        "verify",
        "compare repositories of this mirror with the primary",
        "hgfleet replication verify team/tool",
        _verify,
    )
    add_format(verify)
    resync = commands.add_parser(
        "resync",
        help="make repositories of this mirror anew",
        description="Make repositories of this mirror anew from the primary, beside their places, "
        "compare them, and exchange them in one step. Readers go on meanwhile.",
    )
    resync.add_argument("repositories", nargs="+", metavar="REPO")
    resync.add_argument(
        "--certificates",
        type=Path,
        default=Path(paths.CA_CERTIFICATES),
        metavar="FILE",
        help=f"certificates that bundle stores are trusted by ({paths.CA_CERTIFICATES})",
    )
    add_format(resync)
    resync.set_defaults(run=_resync)
    document_cli.add_commands(commands)
    promotion_cli.add_commands(commands)
    beyond_cli.add_commands(commands)
    lifting_cli.add_commands(commands)


def _status(options: argparse.Namespace) -> int:
    from hgfleet.replication import status

    settings = load(options.config)
    state = status.load(settings.state)
    if options.json:
        print(json.dumps(state, sort_keys=True))
    else:
        print("\n".join(status.sentences(state, time.time())))
    return 0 if status.is_well(state, time.time()) else DIFFERENT


def _lag(options: argparse.Namespace) -> int:
    from hgfleet.replication import status
    from hgfleet.replication.source_client import SourceClient

    settings = _mirror(options)
    found = list(status.lags(settings, SourceClient(settings), time.time()))
    for one in found:
        print(f"{one.path}: {one.there - one.here} records behind, for {one.seconds:.0f} s")
    if not found:
        print("this mirror has every record of the primary")
    return LATE if found else 0


def _verify(options: argparse.Namespace) -> int:
    from hgfleet.replication.source_client import SourceClient
    from hgfleet.replication.verify import Finding, Result, Verification

    settings = _mirror(options)
    source = SourceClient(settings)
    become_owner(settings, source)
    report = Report(options.format, part="replication")
    started = time.monotonic()

    def tell(result: Result) -> None:
        if result.finding is not Finding.EQUAL:
            report.step(
                "verify",
                result.path,
                f"{result.finding}: {result.text}",
                finding=result.finding,
                problem=result.text,
            )

    results = Verification(settings, source).run(options.repositories, tell)
    findings = [result.finding for result in results]
    late = findings.count(Finding.BEHIND)
    equal = findings.count(Finding.EQUAL)
    wrong = len(findings) - late - equal
    report.summary(
        f"{equal} of {len(results)} repositories are equal, {late} behind, {wrong} wrong",
        equal=equal,
        behind=late,
        wrong=wrong,
        duration_s=time.monotonic() - started,
    )
    return DIFFERENT if wrong else LATE if late else 0


def _resync(options: argparse.Namespace) -> int:
    from hgfleet.replication.registry_paths import identity_at
    from hgfleet.replication.resync import resync
    from hgfleet.replication.source_client import SourceClient

    settings = _mirror(options)
    for path in options.repositories:
        if problem := path_problem(path):
            raise UsageError(f"got {path!r}, expected {problem}")
    source = SourceClient(settings)
    become_owner(settings, source)
    report = Report(options.format, part="replication")
    code = 0
    for path in options.repositories:
        started = time.monotonic()

        def say(sentence: str, path: str = path) -> None:
            report.step("resync", path, sentence, problem=sentence)

        try:
            identity = identity_at(settings, path)
            state = resync(settings, source, identity, say=say, certificates=options.certificates)
        except HgfleetError as error:
            report.step("failed", path, f"FAILED, it stays as it was: {error}", error=error)
            code = error.exit_code
            continue
        took = time.monotonic() - started
        text = f"made anew in {took:.1f} s, at record {state.id}"
        report.step("resynced", path, text, record=state.id, duration_s=took)
    return code


def _mirror(options: argparse.Namespace) -> Settings:
    settings = load(options.config)
    if settings.role is not Role.MIRROR:
        raise ConfigurationError(
            f"this host is the {settings.role.value}, and has nothing to be compared with; run it "
            f"on a mirror: {', '.join(settings.mirrors)}"
        )
    return settings


def become_owner(settings: Settings, source: SourceClient) -> None:
    """Work with the rights of the repositories' owner from now on; root alone reads the key."""
    source.read_certificates()
    become(settings.repositories.owner())
