"""Options of policies in the registry: their kinds, and the parsing of their values."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal

Kind = Literal["text", "pattern", "globs", "groups", "size", "count"]

MAX_PATTERN: Final = 500
"""Characters of a regular expression; a longer expression is a program and belongs elsewhere."""

MAX_SIZE: Final = 2**40
MAX_COUNT: Final = 10_000

EXPECTED: Final[dict[Kind, str]] = {
    "text": "one line of text",
    "pattern": f"a regular expression, at most {MAX_PATTERN} characters",
    "globs": "a list of patterns",
    "groups": "a list of groups",
    "size": "a size like 10MiB (units: KiB, MiB, GiB; a plain number is bytes)",
    "count": f"a whole number from 1 to {MAX_COUNT}",
}

_SIZE: Final = re.compile(r"([0-9]{1,13}) ?(KiB|MiB|GiB)?")
_UNITS: Final = {"": 1, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


@dataclass(frozen=True, slots=True)
class Option:
    """An option of a policy."""

    kind: Kind
    what: str
    """For the handbook."""
    required: bool = False


def size(text: str) -> int | None:
    """Return the bytes that a size like 10MiB means, None if it is not a size."""
    match = _SIZE.fullmatch(text)
    if not match:
        return None
    value = int(match[1]) * _UNITS[match[2] or ""]
    return value if 0 < value <= MAX_SIZE else None


def count(text: str) -> int | None:
    """Return a positive whole number, None if it is not one."""
    value = int(text) if re.fullmatch(r"[0-9]{1,9}", text) else 0
    return value if 0 < value <= MAX_COUNT else None


def pattern_problem(expression: str) -> str | None:
    """Return the problem of a regular expression, or None."""
    if not expression or len(expression) > MAX_PATTERN or not expression.isprintable():
        return EXPECTED["pattern"]
    try:
        re.compile(expression, re.DOTALL)
    except (re.error, OverflowError, RecursionError) as error:
        return f"{EXPECTED['pattern']} ({error})"
    return None
