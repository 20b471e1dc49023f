"""The errors of hgfleet: a class tree with an exit code for each kind.

A message is a sentence with the value found, the value expected and the way out. The codes are
those of sysexits(3), so that units and scripts can tell "try again" (75) from "an operator has to
change something" (65, 77, 78).
"""

from __future__ import annotations


class HgfleetError(Exception):
    """An error that ends a command with a sentence on stderr instead of a traceback."""

    exit_code = 1


class UsageError(HgfleetError):
    """The command line is wrong (argparse exits with the same code)."""

    exit_code = 2


class RegistryError(HgfleetError):
    """The registry, as written or as compiled, cannot be used."""

    exit_code = 65


class PushlogError(HgfleetError):
    """A push log, or a record that arrived for it, is damaged or does not fit."""

    exit_code = 76


class UnavailableError(HgfleetError):
    """A server this command depends on (directory, object store) does not answer."""

    exit_code = 69


class HostError(HgfleetError):
    """A file, directory, user or program of this host is missing or wrong."""

    exit_code = 71


class TemporaryError(HgfleetError):
    """A condition that passes: the same command may succeed later."""

    exit_code = 75


class AccessDeniedError(HgfleetError):
    """The person has no right to do this; the message names those who have."""

    exit_code = 77


class ConfigurationError(HgfleetError):
    """A setting of this host is missing or wrong."""

    exit_code = 78
