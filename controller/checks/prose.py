"""Prose of docstrings, comments, messages and documentation: words that make a reader guess.

    python -m controller.checks.prose [--worst [FOLDER]] [--list] [PATH ...]

The subject of a sentence is a named thing, and each concept has a single term, listed in
docs/glossary.md. Three habits break this rule most often and can be counted: a pronoun in the place
of a noun (`what is lacking`, `the one that`, `those of`), an adverb that English has replaced
(`alone` for only, `beside`, `anew`, `meanwhile`), and a word of our own where the field has a term
(`spoilt` for `corrupt`). Text between backticks is code and does not count.

A banned word is always a finding. Every habit of `HABITS` has a bar per 1,000 words, which each
folder meets.

`--worst` prints the figures of every folder that misses a bar, and below them each place to
rewrite; `--worst FOLDER` does so for a single folder. `--list` prints each "what" with its place.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
from collections import Counter, defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.checks.passages import (
    passages_of_comments,
    passages_of_markdown,
    passages_of_python,
    passages_of_story,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from controller.checks.passages import Passage

ROOT = Path(__file__).resolve().parents[2]

MOST_WHAT_PER_1000: Final = 3.0
"""Borg, Warehouse, structlog and Mercurial have fewer than 1 in their docstrings (measured)."""


@dataclass(frozen=True)
class Habit:
    """A turn of phrase that is fine now and then, and hard to read when it is frequent."""

    pattern: re.Pattern[str]
    most_per_1000: float
    instead: str


HABITS: Final = {
    "one": Habit(re.compile(r"\bones?\b", re.IGNORECASE), 4.0, "name the thing again"),
    "that of": Habit(
        re.compile(r"\b(?:(?<!so )that|those)\s+of\b", re.IGNORECASE), 0.2, "name the thing again"
    ),
    "alone": Habit(
        re.compile(r"(?<!stand )(?<!stands )(?<!let )\balone\b", re.IGNORECASE), 0.1, "only, just"
    ),
    "beside": Habit(re.compile(r"\bbeside\b", re.IGNORECASE), 0.1, "next to, as well as"),
    "anew": Habit(re.compile(r"\banew\b", re.IGNORECASE), 0.1, "again"),
    "meanwhile": Habit(re.compile(r"\bmeanwhile\b", re.IGNORECASE), 0.1, "since then, until then"),
}
"""The bars are the rates of trio, borg, Mercurial and structlog, with room to spare (measured)."""

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

HASH_SUFFIXES: Final = frozenset({".yml", ".sh", ".j2", ".toml", ".cfg"})


@dataclass(frozen=True)
class Finding:
    """A banned word, or an instance of a habit, with its place."""

    path: str
    line: int
    word: str
    habit: str = ""

    def __str__(self) -> str:
        """Return the line that is printed."""
        instead = HABITS[self.habit].instead if self.habit in HABITS else INSTEAD.get(self.word)
        advice = f"; for example: {instead}" if instead else ""
        return f"{self.path}:{self.line}: '{self.word}'{advice}"


@dataclass(frozen=True)
class Counted:
    """Figures of a file: words of prose, each "what", each banned word, each habit's places."""

    path: str
    words: int
    what: list[Finding]
    banned: list[Finding]
    habits: list[Finding]


def passages(path: Path) -> Iterable[Passage]:
    """Return the prose of a file by its kind; nothing for kinds that have none.

    Strings of tests are mostly data and quotations, so only the product's strings are messages.
    """
    if path.suffix == ".py":
        is_test = folder_of(_name(path)).startswith("testing/")
        return passages_of_python(path.read_text(), messages=not is_test)
    if path.suffix == ".md":
        return passages_of_markdown(path.read_text())
    if path.suffix == ".t":
        return passages_of_story(path.read_text())
    if path.suffix in HASH_SUFFIXES:
        return passages_of_comments(path.read_text())
    return ()


def count(name: str, prose: Iterable[Passage]) -> Counted:
    """Count the words of some prose, and find the words that the rules name."""
    words = 0
    what: list[Finding] = []
    banned: list[Finding] = []
    habits: list[Finding] = []
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
        for habit, rule in HABITS.items():
            for match in rule.pattern.finditer(plain):
                line = passage.line + plain.count("\n", 0, match.start())
                word = " ".join(match.group().lower().split())
                habits.append(Finding(name, line, word, habit))
    return Counted(name, words, what, banned, habits)


def rate(counted: Sequence[Counted]) -> float:
    """Return how often "what" stands in 1,000 words."""
    words = sum(file.words for file in counted)
    return 1000 * sum(len(file.what) for file in counted) / words if words else 0.0


def folder_of(path: str) -> str:
    """Return the folder that answers for a file: a package, a kind of test, or the top."""
    *folders, _name = path.split("/")
    if not folders:
        return "."
    has_parts = folders[0] in {"ansible", "controller", "docs", "hgfleet", "testing"}
    return "/".join(folders[: 2 if has_parts else 1])


def by_folder(counted: Iterable[Counted]) -> dict[str, list[Counted]]:
    """Return the figures of each folder that has prose."""
    folders: dict[str, list[Counted]] = defaultdict(list)
    for file in counted:
        if file.words:
            folders[folder_of(file.path)].append(file)
    return dict(sorted(folders.items()))


def excess(files: Sequence[Counted]) -> dict[str, float]:
    """Return the rate of each habit that is above its bar.

    A single instance is no habit: it is allowed however small the folder is.
    """
    words = sum(file.words for file in files)
    times = Counter(finding.habit for file in files for finding in file.habits)
    return {
        habit: 1000 * times[habit] / words
        for habit, rule in HABITS.items()
        if times[habit] > max(1, rule.most_per_1000 * words / 1000)
    }


def tracked(top: Path) -> list[Path]:
    """Return the files of a checkout that git has."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=top, capture_output=True, check=True)
    names = listed.stdout.decode().split("\0")
    return [top / name for name in names if name and (top / name).is_file()]


def problems(counted: Sequence[Counted]) -> list[str]:
    """Return the findings: each banned word, and a rate of "what" above the bar."""
    lines = [str(finding) for file in counted for finding in file.banned]
    if (seen := rate(counted)) > MOST_WHAT_PER_1000:
        worst = sorted(counted, key=lambda file: -len(file.what))[:5]
        places = ", ".join(f"{file.path} ({len(file.what)})" for file in worst if file.what)
        lines.append(
            f"'what' stands {seen:.1f} times in 1,000 words, "
            f"expected at most {MOST_WHAT_PER_1000:g}; "
            f"name the thing instead. Most are in {places}"
        )
    return lines


def folder_problems(counted: Sequence[Counted]) -> list[str]:
    """Return the findings about whole folders: a habit above its bar."""
    return [
        f"{folder}: '{habit}' stands {seen:.2f} times in 1,000 words, expected at most "
        f"{HABITS[habit].most_per_1000:g}; see the places with --worst {folder}"
        for folder, files in by_folder(counted).items()
        for habit, seen in excess(files).items()
    ]


def worst(counted: Sequence[Counted], only: str) -> Iterator[str]:
    """Yield the figures of the folders that miss a bar, each followed by its places."""
    for folder, files in by_folder(counted).items():
        over = excess(files)
        if over and only in {"", folder}:
            figures = ", ".join(f"{habit} {seen:.1f}" for habit, seen in over.items())
            yield f"{folder}: {figures}"
            for file in sorted(files, key=lambda file: -len(file.habits)):
                for finding in sorted(file.habits, key=lambda finding: finding.line):
                    if finding.habit in over:
                        yield f"    {finding}"


def _name(path: Path) -> str:
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every problem; the exit code is 1 if there is any."""
    parser = argparse.ArgumentParser(prog="prose", description=__doc__.partition("\n")[0])
    parser.add_argument("--list", action="store_true", help='show every "what" too')
    parser.add_argument(
        "--worst", nargs="?", const="", metavar="FOLDER", help="show the places of each habit"
    )
    parser.add_argument("paths", nargs="*", type=Path, help="files; else all that git has")
    options = parser.parse_args(arguments)
    files = [path.resolve() for path in options.paths] or tracked(ROOT)
    counted = [count(_name(path), passages(path)) for path in files]
    if not (words := sum(file.words for file in counted)):
        print("prose: no prose found, so nothing was checked", file=sys.stderr)
        return 1
    if options.list:
        for file in counted:
            for finding in file.what:
                print(finding)
    if options.worst is not None:
        for line in worst(counted, options.worst):
            print(line)
    lines = problems(counted)
    if not options.paths:
        lines += folder_problems(counted)
    for line in lines:
        print(line, file=sys.stderr)
    times = Counter(finding.habit for file in counted for finding in file.habits)
    rates = ", ".join(f"{1000 * times[habit] / words:.2f} '{habit}'" for habit in HABITS)
    print(f"prose: {words} words; in 1,000 of them {rate(counted):.1f} 'what', {rates}")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
