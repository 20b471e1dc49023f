"""The reader of settings: TOML files of a host, checked value by value.

A part describes its file in one function, which takes the settings out of a `Table`:

    def parse(table: Table) -> Config:
        return Config(endpoint=table.url("endpoint"), timeout=table.seconds("timeout", 2.0))

    config = read(path, parse, "the settings of steering", "the role `steering` writes them")

Each error is a ConfigurationError that names the file, the setting, the value found and the value
expected: "/etc/hgfleet/steering.toml: timeout: got 'x', expected seconds from 0.1 to 60". A setting
that `parse` does not take is refused, so a misspelt name never leaves a default in effect.

Programs that start at every login use `Table`, so this module imports nothing slow: the functions
that need tomllib, pathlib and urllib import them.
"""

from __future__ import annotations

from hgfleet.core.errors import ConfigurationError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Mapping
    from pathlib import Path
    from typing import Any, TypeVar

    Result = TypeVar("Result")


def read(
    path: Path | str,
    parse: Callable[[Table], Result],
    contents: str = "the settings",
    way_out: str = "",
    *,
    secret: bool = False,
) -> Result:
    """Read a file of settings and refuse settings that `parse` does not take.

    `contents` and `way_out` complete the error of a missing file. With `secret` no error shows a
    text of the file. Raises ConfigurationError.
    """
    import tomllib
    from pathlib import Path

    try:
        data = tomllib.loads(Path(path).read_text("utf-8"))
    except OSError as error:
        raise ConfigurationError(
            f"{path}: cannot read {contents} ({error.strerror}){way_out and f'; {way_out}'}"
        ) from error
    except ValueError as error:
        # tomllib's message may quote the line.
        raise ConfigurationError(f"{path}: not TOML{'' if secret else f': {error}'}") from (
            None if secret else error
        )
    return parse_table(path, data, parse, secret=secret)


def parse_table(
    path: Path | str,
    data: Mapping[str, Any],
    parse: Callable[[Table], Result],
    *,
    secret: bool = False,
) -> Result:
    """Check settings that are parsed already; `path` is for the errors."""
    table = Table(path, data, secret=secret)
    result = parse(table)
    table.refuse_rest()
    return result


class Table:
    """A TOML table from which settings are taken out, each by its getter.

    A getter without a default raises ConfigurationError where the setting is missing. Errors give
    the settings of a nested table by their full name: `refresh.share`.
    """

    def __init__(
        self, path: Path | str, data: Mapping[str, Any], name: str = "", *, secret: bool = False
    ) -> None:
        self._path = path
        self._rest = dict(data)
        self._name = name
        self._secret = secret
        self._below: list[Table] = []

    def __contains__(self, name: str) -> bool:
        return name in self._rest

    def names(self) -> Iterator[str]:
        """Return the names of settings not taken yet, for tables whose keys the site chooses."""
        return iter(tuple(self._rest))

    def error(self, name: str, got: object, expected: str) -> ConfigurationError:
        """Return the error for a setting of this table; `got` is None for a missing setting."""
        actual = "got nothing, " if got is None else f"got {got!r}, "
        if self._secret and not isinstance(got, int | float | None):
            actual = ""
        where = ".".join(part for part in (self._name, name) if part)
        return ConfigurationError(f"{self._path}: {where}: {actual}expected {expected}")

    def refuse_rest(self) -> None:
        """Raise ConfigurationError for settings that nothing has taken, nested tables included."""
        if self._rest:
            prefix = f"{self._name}." if self._name else ""
            names = ", ".join(f"{prefix}{name}" for name in sorted(self._rest))
            raise ConfigurationError(f"{self._path}: got unknown settings {names}")
        for table in self._below:
            table.refuse_rest()

    def text(self, name: str, default: str | None = None, *, expected: str = "a text") -> str:
        """Take one line of printable text that is not empty."""
        value = self._rest.pop(name, default)
        if not isinstance(value, str) or not value or not value.isprintable():
            raise self.error(name, value, expected)
        return value

    def optional_text(self, name: str) -> str:
        """Take one line of printable text, empty by default."""
        value = self._rest.pop(name, "")
        if not isinstance(value, str) or not value.isprintable():
            raise self.error(name, value, "a text")
        return value

    def choice(self, name: str, choices: Collection[str], default: str | None = None) -> str:
        """Take one of several texts."""
        value = self.text(name, default, expected=(expected := f"one of {', '.join(choices)}"))
        if value not in choices:
            raise self.error(name, value, expected)
        return value

    def texts(
        self,
        name: str,
        default: tuple[str, ...] | None = None,
        *,
        expected: str = "a list of texts",
    ) -> tuple[str, ...]:
        """Take a list of texts. The list may be empty only where an empty default is given."""
        value = self._rest.pop(name, None if default is None else list(default))
        is_right = isinstance(value, list) and all(
            isinstance(text, str) and text and text.isprintable() for text in value
        )
        if not is_right or (not value and default != ()):
            raise self.error(name, value, expected)
        return tuple(value)

    def flag(self, name: str, default: bool | None = None) -> bool:
        """Take true or false."""
        value = self._rest.pop(name, default)
        if not isinstance(value, bool):
            raise self.error(name, value, "true or false")
        return value

    def number(
        self,
        name: str,
        default: float | None = None,
        *,
        least: float,
        most: float,
        unit: str = "a number",
    ) -> float:
        """Take a number, whole or not, within its bounds."""
        value = self._rest.pop(name, default)
        is_number = isinstance(value, int | float) and not isinstance(value, bool)
        if not is_number or not least <= value <= most:
            raise self.error(name, value, f"{unit} from {least} to {most}")
        return float(value)

    def seconds(
        self, name: str, default: float | None = None, *, least: float, most: float
    ) -> float:
        """Take a duration in seconds."""
        return self.number(name, default, least=least, most=most, unit="seconds")

    def integer(
        self,
        name: str,
        default: int | None = None,
        *,
        least: int,
        most: int,
        unit: str = "a whole number",
    ) -> int:
        """Take a whole number within its bounds."""
        value = self._rest.pop(name, default)
        if type(value) is not int or not least <= value <= most:
            raise self.error(name, value, f"{unit} from {least} to {most}")
        return value

    def size(self, name: str, default: int | None = None, *, least: int = 0) -> int:
        """Take a size in bytes."""
        return self.integer(name, default, least=least, most=2**50, unit="bytes")

    def file(self, name: str, default: Path | str | None = None) -> Path:
        """Take an absolute path."""
        from pathlib import Path

        return Path(self.file_name(name, default))

    def file_name(self, name: str, default: Path | str | None = None) -> str:
        """Take an absolute path as text, for programs that do without pathlib."""
        value = self._rest.pop(name, default if default is None else str(default))
        if not isinstance(value, str) or not value.startswith("/") or not value.isprintable():
            raise self.error(name, value, "an absolute path")
        return value

    def url(self, name: str, default: str | None = None) -> str:
        """Take a URL of http or https, without a query and without a slash at its end.

        Other schemes are refused, so urllib never opens a `file:` URL from the settings.
        """
        from urllib.parse import urlsplit

        expected = "a URL like https://host:port/path"
        value = self.text(name, default, expected=expected)
        try:
            parts = urlsplit(value)
            is_right = parts.scheme in ("http", "https") and parts.hostname and not parts.query
        except ValueError:
            is_right = False
        if not is_right:
            raise self.error(name, value, expected)
        return value.rstrip("/")

    def optional_url(self, name: str) -> str:
        """Take a URL as `url` does, empty by default."""
        if self._rest.get(name, "") == "":
            self._rest.pop(name, None)
            return ""
        return self.url(name)

    def table(self, name: str) -> Table:
        """Take a table [name]; a missing table counts as empty."""
        value = self._rest.pop(name, {})
        if not isinstance(value, dict):
            raise self.error(name, value, f"a table [{name}]")
        return self._table(name, value)

    def tables(self, name: str, *, least: int = 0) -> tuple[Table, ...]:
        """Take the tables [[name]], which may be missing unless `least` asks for some."""
        values = self._rest.pop(name, [] if not least else None)
        if (
            not isinstance(values, list)
            or len(values) < least
            or not all(isinstance(value, dict) for value in values)
        ):
            amount = "tables" if least == 0 else f"{least} or more tables"
            raise self.error(name, values, f"{amount} [[{name}]]")
        return tuple(self._table(name, value) for value in values)

    def _table(self, name: str, value: Mapping[str, Any]) -> Table:
        full = f"{self._name}.{name}" if self._name else name
        table = Table(self._path, value, full, secret=self._secret)
        self._below.append(table)
        return table
