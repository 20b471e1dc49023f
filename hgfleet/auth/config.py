"""auth.toml: which directory the daemon asks, and as whom."""

from __future__ import annotations

import tomllib
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hgfleet.auth import token_file
from hgfleet.core.errors import ConfigurationError
from hgfleet.directory import connection

if TYPE_CHECKING:
    from collections.abc import Mapping

CONFIG: Final = Path("/etc/hgfleet/auth.toml")


@dataclass(frozen=True, slots=True)
class Config:
    """The contents of auth.toml; `timeout` in seconds, for each step of a conversation."""

    uris: tuple[str, ...]
    people_base: str
    groups_base: str
    bind_dn: str
    ca_file: str
    timeout: float = 2.0
    tokens: str = token_file.PATH


def load(path: Path = CONFIG) -> Config:
    """Read the file; raise ConfigurationError with what is wrong and what was expected."""
    try:
        return parse(tomllib.loads(path.read_text(encoding="utf-8")))
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def parse(data: Mapping[str, Any]) -> Config:
    """Check the values; raise ValueError."""
    unknown = sorted(set(data) - {field.name for field in fields(Config)})
    if unknown:
        raise ValueError(f"got unknown settings {', '.join(unknown)}")
    uris = data.get("uris")
    if not isinstance(uris, list) or not uris:
        raise ValueError(f"uris: got {uris!r}, expected a list of texts")
    for uri in uris:
        # ldapi is a socket of this host; plain ldap would send passwords in clear.
        if not isinstance(uri, str) or not uri.startswith(connection.SCHEMES):
            raise ValueError(f"uris: got {uri!r}, expected ldaps://HOST or ldapi://PATH")
    texts = {}
    for name in ("people_base", "groups_base", "bind_dn", "ca_file", "tokens"):
        value = data.get(name, _DEFAULTS.get(name))
        if not isinstance(value, str) or not value or not value.isprintable():
            raise ValueError(f"{name}: got {value!r}, expected a text")
        texts[name] = value
    timeout = data.get("timeout", _DEFAULTS["timeout"])
    if isinstance(timeout, bool) or not isinstance(timeout, int | float) or not 0 < timeout <= 10:
        raise ValueError(f"timeout: got {timeout!r}, expected seconds, more than 0 and at most 10")
    return Config(uris=tuple(uris), timeout=float(timeout), **texts)


_DEFAULTS: Final = {
    field.name: field.default for field in fields(Config) if field.default is not MISSING
}
