"""Patterns for branches and paths, as the registry has them.

==========  ====================================================================================
`*`, `?`    any characters, a single character; in a path not a slash
`**`        in a path: any characters, slashes included
`[a-z]`     a character of the range; `[!a-z]` a character outside the range
a slash     a path pattern with a slash is compared with the whole path from the top, and a pattern
            without a slash with each segment: `*.exe` is a file anywhere, `docs/*.pdf` only in docs
==========  ====================================================================================

A pattern that fits a directory covers all that is below it. Upper and lower case differ.

`*` in the name of a branch fits a slash as well: nothing in a branch name is a directory.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from hgfleet.policies.bounded import Pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

MAX_GLOB: Final = 200
"""Characters. Patterns are written by operators; this only keeps a mistake readable."""


def branches(globs: Sequence[str]) -> Pattern:
    """Compile patterns for the names of branches; an empty list fits every branch."""
    if not globs:
        return Pattern("")
    return Pattern(rf"(?:{'|'.join(_regex(glob, is_path=False) for glob in globs)})\Z")


def paths(globs: Sequence[str]) -> Pattern:
    """Compile patterns for paths; an empty list fits every path."""
    if not globs:
        return Pattern("")
    return Pattern(rf"(?:{'|'.join(_path_regex(glob) for glob in globs)})(?:/.*)?\Z")


def glob_problem(glob: str) -> str | None:
    """Return the expected form of a pattern, or None if the pattern has that form."""
    expected = f"a pattern like 'release-*' or 'docs/**': printable, at most {MAX_GLOB} characters"
    if not glob.strip() or not glob.isprintable() or len(glob) > MAX_GLOB:
        return expected
    if glob.strip("/") != glob or "//" in glob:
        return f"{expected}, slashes only between segments"
    return None


def _path_regex(glob: str) -> str:
    anywhere = "" if "/" in glob else "(?:.*/)?"
    return anywhere + _regex(glob, is_path=True)


def _regex(glob: str, *, is_path: bool) -> str:
    character = "[^/]" if is_path else "."
    result = []
    position = 0
    while position < len(glob):
        rest = glob[position:]
        if is_path and rest.startswith("**/"):
            result.append("(?:.*/)?")
            position += 3
        elif is_path and rest.startswith("**"):
            result.append(".*")
            position += 2
        elif rest[0] == "*":
            result.append(f"{character}*")
            position += 1
        elif rest[0] == "?":
            result.append(character)
            position += 1
        elif match := re.match(r"\[(!?)(\]?[^]/]*)\]", rest):
            inside = re.sub(r"(.)-(.)|(.)", _range, match[2])
            result.append(f"[{'^/' if match[1] else ''}{inside}]" if inside else "(?!)")
            position += match.end()
        else:
            result.append(re.escape(rest[0]))
            position += 1
    return "".join(result)


def _range(match: re.Match[str]) -> str:
    """Return a range in the syntax of regular expressions, or its characters."""
    first, last, single = match.groups()
    if single is None and first <= last:
        return f"{re.escape(first)}-{re.escape(last)}"
    return "".join(f"\\{c}" if c in "\\[]^-&~|" else c for c in match[0])
