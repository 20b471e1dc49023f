"""Parts that the commands of replication share: the option for the settings, and the role."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from hgfleet.core.errors import ConfigurationError
from hgfleet.replication.settings import DEFAULT_PATH, load

if TYPE_CHECKING:
    import argparse

    from hgfleet.replication.settings import Role, Settings


def add_config(parser: argparse.ArgumentParser) -> None:
    """Add the option that names the file of settings."""
    parser.add_argument(
        "--config",
        type=Path,
        default=DEFAULT_PATH,
        metavar="FILE",
        help="settings (default: %(default)s)",
    )


def settings_of(options: argparse.Namespace, role: Role, reason: str) -> Settings:
    """Read the settings of a host of this role; `reason` ends the sentence for another one.

    Raises ConfigurationError.
    """
    found = load(options.config)
    if found.role is not role:
        raise ConfigurationError(
            f"{options.config}: role: got '{found.role}', expected '{role}': {reason}"
        )
    return found
