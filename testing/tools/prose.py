"""Prose of docstrings, comments and documentation: banned words, and the rate of "what".

    python -m testing.tools.prose [--list] [PATH ...]

The subject of a sentence is a named thing, and each concept has one term, that of docs/glossary.md.
Two habits break this rule most often and can be counted: a pronoun in the place of a noun (`what is
lacking`, `whoever may read`), and a word of our own where the field has a term (`spoilt` for
`corrupt`). Text between backticks is code and does not count.

`--list` shows each "what" with its place, for a rewrite.
"""

from __future__ import annotations

import argparse
import ast
import io
import re
import subprocess
import sys
import tokenize
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

ROOT = Path(__file__).resolve().parents[2]

MOST_WHAT_PER_1000: Final = 3.0
"""Borg, Warehouse, structlog and Mercurial have fewer than 1 in their docstrings (measured)."""

INSTEAD: Final = {
    "anybody": "the user, the client, anonymous users",
    "everybody": "all users, every client",
    "giant": "large repository",
    "giants": "large repositories",
    "lack": "is missing",
    "lacking": "missing",
    "lacks": "is missing",
    "mend": "repair",
    "mended": "repaired",
    "mending": "repairing",
    "mends": "repairs",
    "nobody": "no user, no process",
    "somebody": "a user, a process",
    "someone": "a user, a process",
    "spoil": "corrupt",
    "spoils": "corrupts",
    "spoilt": "corrupt",
    "whatever": "any",
    "whoever": "the user who, the client that",
}
"""Word that has no place in prose here: the terms to choose from."""

_CODE = re.compile(r"``.+?``|`[^`]*`", re.DOTALL)
_WORD = re.compile(r"[A-Za-z][A-Za-z'-]*")
_FENCE = re.compile(r"^\s*```")
_HASH_COMMENT = re.compile(r"(?:^|\s)#(?!\!)\s?(?P<text>.*)$")
_JINJA_COMMENT = re.compile(r"{#(.*?)#}", re.DOTALL)

HASH_SUFFIXES: Final = frozenset({".yml", ".sh", ".j2", ".toml", ".cfg"})


@dataclass(frozen=True)
class Passage:
    """A docstring, a comment or a line of documentation, with the number of its first line."""

    line: int
    text: str


@dataclass(frozen=True)
class Finding:
    """A banned word, or a "what", with its place."""

    path: str
    line: int
    word: str

    def __str__(self) -> str:
        """Return the line that is printed."""
        instead = INSTEAD.get(self.word)
        advice = f"; for example: {instead}" if instead else ""
        return f"{self.path}:{self.line}: '{self.word}'{advice}"


@dataclass(frozen=True)
class Counted:
    """Figures of one file: words of prose, each "what", each banned word."""

    words: int
    what: list[Finding]
    banned: list[Finding]


def passages_of_python(source: str) -> Iterator[Passage]:
    """Yield every docstring, every string that stands as a statement, and every comment."""
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.Expr)
            and isinstance(node.value, ast.Constant)
            and isinstance(node.value.value, str)
        ):
            yield Passage(node.lineno, node.value.value)
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield Passage(token.start[0], token.string.lstrip("#"))


def passages_of_markdown(text: str) -> Iterator[Passage]:
    """Yield every line outside of fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield Passage(number, line)


def passages_of_comments(text: str) -> Iterator[Passage]:
    """Yield the comments of YAML, shell, TOML and templates."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HASH_COMMENT.search(line):
            yield Passage(number, match["text"])
    for match in _JINJA_COMMENT.finditer(text):
        yield Passage(text.count("\n", 0, match.start()) + 1, match.group(1))


def passages(path: Path) -> Iterable[Passage]:
    """Return the prose of a file by its kind; nothing for kinds that have none."""
    if path.suffix == ".py":
        return passages_of_python(path.read_text())
    if path.suffix == ".md":
        return passages_of_markdown(path.read_text())
    if path.suffix in HASH_SUFFIXES:
        return passages_of_comments(path.read_text())
    return ()


def count(name: str, prose: Iterable[Passage]) -> Counted:
    """Count the words of some prose, and find those that the rules name."""
    words = 0
    what: list[Finding] = []
    banned: list[Finding] = []
    for passage in prose:
        plain = _CODE.sub(lambda match: "\n" * match.group().count("\n"), passage.text)
        for match in _WORD.finditer(plain):
            words += 1
            word = match.group().lower()
            line = passage.line + plain.count("\n", 0, match.start())
            if word == "what":
                what.append(Finding(name, line, word))
            elif word in INSTEAD:
                banned.append(Finding(name, line, word))
    return Counted(words, what, banned)


def rate(counted: Sequence[Counted]) -> float:
    """Return how often "what" stands in 1,000 words."""
    words = sum(one.words for one in counted)
    return 1000 * sum(len(one.what) for one in counted) / words if words else 0.0


def tracked(top: Path) -> list[Path]:
    """Return the files of a checkout that git has."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=top, capture_output=True, check=True)
    names = listed.stdout.decode().split("\0")
    return [top / name for name in names if name and (top / name).is_file()]


def problems(counted: Sequence[Counted]) -> list[str]:
    """Say what breaks the rules: each banned word, and a rate of "what" above the bar."""
    found = [str(finding) for one in counted for finding in one.banned]
    if (seen := rate(counted)) > MOST_WHAT_PER_1000:
        worst = sorted(counted, key=lambda one: -len(one.what))[:5]
        places = ", ".join(f"{one.what[0].path} ({len(one.what)})" for one in worst if one.what)
        found.append(
            f"'what' stands {seen:.1f} times in 1,000 words, "
            f"expected at most {MOST_WHAT_PER_1000:g}; "
            f"name the thing instead. Most are in {places}"
        )
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every problem; the exit code is 1 if there is one."""
    parser = argparse.ArgumentParser(prog="prose", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help='show every "what" too')
    parser.add_argument("paths", nargs="*", type=Path, help="files; else all that git has")
    options = parser.parse_args(arguments)
    files = [path.resolve() for path in options.paths] or tracked(ROOT)
    counted = []
    for path in files:
        name = str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
        counted.append(count(name, passages(path)))
    if not sum(one.words for one in counted):
        print("prose: no prose found, so nothing was checked", file=sys.stderr)
        return 1
    if options.list:
        for one in counted:
            for finding in one.what:
                print(finding)
    found = problems(counted)
    for line in found:
        print(line, file=sys.stderr)
    print(f"prose: {sum(one.words for one in counted)} words, {rate(counted):.1f} 'what' per 1,000")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
