"""`hgfleet acme`: the certificate of this host's public names."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.acme import issuing, renewal, settings
from hgfleet.core.errors import HostError
from hgfleet.core.report import Report
from hgfleet.core.subcommands import add_command

if TYPE_CHECKING:
    import argparse

FOLDER: Final = Path("/var/lib/hgfleet-acme")
RENEWED: Final = Path("/run/hgfleet-acme/renewed")


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Add `acme` and its command."""
    parser = subparsers.add_parser(
        "acme",
        help="renew the certificate of this host's public names",
        description="The certificate of this host's public names, from a CA that speaks ACME.",
    )
    commands = parser.add_subparsers(metavar="COMMAND", required=True)
    add_command(
        commands,
        "renew",
        "renew the certificate at the CA if it is due (for hgfleet-acme.service)",
        _renew,
    )


def _renew(_options: argparse.Namespace) -> int:
    return renew(settings.load(), FOLDER, RENEWED, Report("events", part="acme"))


def renew(
    wanted: settings.Settings, folder: Path, renewed: Path, report: Report, lego: str = issuing.LEGO
) -> int:
    """Renew the certificate if it is due. Raises HgfleetError."""
    if os.geteuid() != folder.stat().st_uid:
        raise HostError(
            f"{folder} is not this user's, and what this run wrote would be closed to its owner; "
            "expected the unit: systemctl start hgfleet-acme"
        )
    names = ",".join(wanted.names)
    if not (reason := renewal.reason(wanted, issuing.served(folder), time.time())):
        report.note("kept", f"The certificate of {names} is not due.", names=names)
        return 0
    report.note("due", f"A certificate of {names} is due: {reason}.", names=names, reason=reason)
    issuing.issue(wanted, folder, lego)
    new = issuing.install(wanted, folder, renewed, time.time())
    report.note("issued", f"{new} is in use.", names=names, folder=new)
    return 0
