"""keys.toml: the directory servers, the accepted types of keys and the forced command.

Key lookup reads it twice at each login, so this module imports nothing slow.
"""

from __future__ import annotations

from hgfleet.core import settings_file
from hgfleet.directory import connection, publickey

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any, Final

PATH: Final = "/etc/hgfleet/keys.toml"
STALE_FILE: Final = "/run/hgfleet/directory-stale"

_LOWER: Final = frozenset("abcdefghijklmnopqrstuvwxyz")
_DIGITS: Final = frozenset("0123456789")
_PATH: Final = _LOWER | _DIGITS | frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZ._-/")


class Config:
    """The contents of keys.toml; `timeout` in seconds, for all steps with a single server."""

    uris: tuple[str, ...]
    people_base: str
    groups_base: str
    bind_dn: str
    bind_password_file: str
    ca_file: str
    shell: str
    timeout: float
    key_types: frozenset[str]
    stale_file: str

    def __init__(self, **settings: Any) -> None:
        self.__dict__.update(settings)


def load(path: str = PATH) -> Config:
    """Read keys.toml; raise ConfigurationError with the value found and the value expected."""
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            data = read_simple(file.read())
    except (OSError, ValueError):
        data = None
    if data is None:
        # Slower, and with an error for a file that is missing or not TOML.
        return settings_file.read(path, parse)
    return settings_file.parse_table(path, data, parse)


def parse(table: settings_file.Table) -> Config:
    """Take the settings out of keys.toml; raise ConfigurationError."""
    uris = table.texts("uris")
    for uri in uris:
        if not uri.startswith(connection.SCHEMES):
            raise table.error("uris", uri, "ldaps://HOST or ldapi://PATH")
    key_types = frozenset(table.texts("key_types"))
    for key_type in sorted(key_types - set(publickey.KEY_TYPES)):
        raise table.error("key_types", key_type, f"some of {', '.join(publickey.KEY_TYPES)}")
    return Config(
        uris=uris,
        people_base=table.text("people_base"),
        groups_base=table.text("groups_base"),
        bind_dn=table.text("bind_dn"),
        bind_password_file=table.text("bind_password_file"),
        ca_file=table.text("ca_file"),
        shell=_path(table, "shell", None),
        timeout=table.seconds("timeout", least=0.1, most=30),
        key_types=key_types,
        stale_file=_path(table, "stale_file", STALE_FILE),
    )


def _path(table: settings_file.Table, name: str, default: str | None) -> str:
    expected = "an absolute path without blanks or quotes"
    path = table.text(name, default, expected=expected)
    if not path.startswith("/") or not _PATH.issuperset(path):
        raise table.error(name, path, expected)
    return path


def read_simple(text: str) -> dict[str, Any] | None:
    """Read the simple TOML that the role writes, or return None for TOML that needs tomllib.

    Each line is a name with a text without quotes or backslashes, a number, or a list of such
    texts. (tomllib imports `re`, which takes as long as the whole lookup.)
    """
    data: dict[str, Any] = {}
    for line in text.split("\n"):
        stripped = line.strip(" ")
        if not stripped or (stripped.startswith("#") and stripped.isprintable()):
            continue
        name, _, right = stripped.partition("=")
        name = name.strip(" ")
        value = _simple_value(right.strip(" "))
        if (
            value is None
            or name in data
            or not name
            or not _LOWER.issuperset(name.replace("_", ""))
        ):
            return None
        data[name] = value
    return data


def _simple_value(text: str) -> str | float | list[str] | None:
    if text.startswith("[") and text.endswith("]"):
        values = [_simple_text(part.strip(" ")) for part in text[1:-1].split(",")]
        return [value for value in values if value is not None] if None not in values else None
    whole, dot, fraction = text.partition(".")
    if whole and _DIGITS.issuperset(whole + fraction) and (whole == "0" or whole[0] != "0"):
        if not dot:
            return int(whole)
        return float(text) if fraction else None
    return _simple_text(text)


def _simple_text(text: str) -> str | None:
    inner = text[1:-1]
    if len(text) < 2 or text[0] + text[-1] != '""' or '"' in inner or "\\" in inner:
        return None
    return inner if inner.isprintable() else None
