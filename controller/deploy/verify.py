"""The last step of a deploy: the deployed site passes its tests (./run-tests site:INVENTORY)."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING

from controller.bootstrap import ROOT
from controller.deploy.decide import DeployError

if TYPE_CHECKING:
    import argparse

    from controller.deploy.run import Site


def add_option(parser: argparse.ArgumentParser) -> None:
    """Add the option that asks for this step."""
    parser.add_argument(
        "--verify",
        action="store_true",
        help="afterwards run ./run-tests site:INVENTORY, which changes no host",
    )


def after(site: Site, options: argparse.Namespace) -> int:
    """Verify the site if that was asked for, else tell the command; DeployError if it fails."""
    if options.check:
        return 0
    if not options.verify:
        print(f"To verify the site: ./run-tests site:{site.said}")
        return 0
    if subprocess.call([sys.executable, str(ROOT / "run-tests"), f"site:{site.said}"]):
        raise DeployError(
            "The site did not pass its tests; the first failure is above.",
            f"What was deployed stays. To go back: ./deploy {site.said} --rollback",
        )
    return 0
