"""Connections to the directory: the options that keep them safe, for every program.

The functions work with the Python module `ldap` and with its C part `_ldap`, which have the same
constants. Nothing slow is imported here: the key lookup runs twice at every login.
"""

from __future__ import annotations

import posix

from hgfleet.core.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

SCHEMES: Final = ("ldaps://", "ldapi://")
"""ldapi is a socket of this host; plain ldap would send passwords in clear."""

TLS_1_2: Final = 0x303


def isolate() -> None:
    """Ignore all settings but those of this package; called before python-ldap is imported."""
    # ldap.conf and ~/.ldaprc must not be able to weaken the options below.
    posix.putenv("LDAPNOINIT", "1")
    # libldap's timeouts do not cover the resolver, which waits 10 s for a dead name server.
    posix.putenv("RES_OPTIONS", "timeout:1 attempts:1")


def connect(module: Any, uri: str, *, ca_file: str, timeout: float) -> Any:
    """Return a connection that has not been bound yet; libldap opens it with the first request.

    `timeout` (seconds) bounds each step. Referrals to other servers are not followed. Raises
    ConfigurationError if `ca_file` has no certificate, or `uri` is neither encrypted nor local.
    """
    if not uri.startswith(SCHEMES):
        raise ConfigurationError(f"got {uri}, expected ldapi://PATH or ldaps://HOST")
    connection = module.initialize(uri)
    option = connection.set_option
    option(module.OPT_PROTOCOL_VERSION, module.VERSION3)
    option(module.OPT_REFERRALS, 0)
    option(module.OPT_NETWORK_TIMEOUT, timeout)
    option(module.OPT_TIMEOUT, timeout)
    if uri.startswith("ldaps:"):
        option(module.OPT_X_TLS_CACERTFILE, ca_file)
        option(module.OPT_X_TLS_REQUIRE_CERT, module.OPT_X_TLS_DEMAND)
        option(module.OPT_X_TLS_PROTOCOL_MIN, TLS_1_2)
        try:
            # Without this, libldap goes on with the options of its global context.
            option(module.OPT_X_TLS_NEWCTX, 0)
        except ValueError as error:
            raise ConfigurationError(f"{ca_file} has no certificate to trust") from error
    return connection


def read_password(path: str) -> str:
    """Read the password of a bind account; raise ConfigurationError."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            password = file.read().rstrip("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not UTF-8"
        raise ConfigurationError(f"{path}: {reason}") from error
    if not password:
        # A bind with a name and an empty password is anonymous and succeeds (RFC 4513 5.1.2).
        raise ConfigurationError(f"{path} is empty")
    return password


def reason_of(error: Exception) -> str:
    """Return the reason that an exception of python-ldap gives."""
    told = error.args[0] if error.args and isinstance(error.args[0], dict) else {}
    return str(told.get("info") or told.get("desc") or type(error).__name__)
