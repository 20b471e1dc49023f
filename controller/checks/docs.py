"""Documentation: links lead somewhere, and claims of docs/audit.md have their goldens and tests.

    python -m controller.checks.docs

A relative link names a file of the repository, and its anchor a heading there. In a row of
docs/audit.md, a link to a golden or to the effective configuration has the text PART of INVENTORY
HOST; words in backquotes after it are in what that page has for the host. `FILE::FUNCTION` is a
test.
"""

from __future__ import annotations

import re
import sys
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.checks.goldens import once

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT: Final = Path(__file__).resolve().parents[2]

PLACES: Final = ("*.md", "docs/**/*.md", "ansible/roles/*/README.md")

FENCE: Final = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
CODE: Final = re.compile(r"`([^`]+)`")
LINK: Final = re.compile(r"(?<!!)\[[^\]]*\]\(<?([^()\s>]+)>?\)")
HEADING: Final = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
GOLDEN: Final = re.compile(r"\[([^\]]*)\]\((\.\./testing/(?:goldens|effective)/[^)]+)\)")
HOST: Final = re.compile(r" of ([\w-]+) ([\w-]+)$")
TEST: Final = re.compile(r"(testing/[\w/]+\.py)::(\w+)")

COLUMNS: Final = 3
"""Of a table in docs/audit.md: the claim, its goldens, its tests."""


def without_fences(text: str) -> str:
    """Return the text with blank lines in place of blocks of code."""
    return FENCE.sub(lambda match: "\n" * match.group().count("\n"), text)


def anchor(heading: str) -> str:
    """Return the anchor of a heading, as forges make it: words, with hyphens for blanks."""
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


@cache
def anchors(path: Path) -> frozenset[str]:
    """Return the anchors of a file; the second heading of a name gets the suffix -1."""
    counts: dict[str, int] = {}
    names = set()
    for heading in HEADING.findall(without_fences(path.read_text("utf-8"))):
        name = anchor(heading)
        count = counts.get(name, 0)
        names.add(f"{name}-{count}" if count else name)
        counts[name] = count + 1
    return frozenset(names)


def link_problems(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the links of a file that lead nowhere, with their lines."""
    text = CODE.sub("", without_fences(path.read_text("utf-8")))
    for number, line in enumerate(text.splitlines(), 1):
        for target in LINK.findall(line):
            if re.match(r"[a-z][a-z0-9+.-]*:", target):
                continue
            name, _, wanted = target.partition("#")
            there = (path.parent / name).resolve() if name else path
            if not there.exists():
                yield number, f"{target}: there is no such file"
            elif wanted and (there.suffix != ".md" or wanted not in anchors(there)):
                yield number, f"{target}: {there.name} has no such heading"


def audit_problems(path: Path) -> Iterator[tuple[int, str]]:
    """Yield the claims whose golden or test is missing, with their lines."""
    claims = 0
    for number, line in enumerate(path.read_text("utf-8").splitlines(), 1):
        if not line.startswith("|"):
            continue
        cells = [
            cell.strip() for cell in line.strip().removeprefix("|").removesuffix("|").split("|")
        ]
        if len(cells) != COLUMNS:
            yield number, f"got {len(cells)} columns, expected {COLUMNS}: claim, golden, test"
            continue
        if cells[1] in ("golden", "---"):
            continue
        claims += 1
        yield from ((number, problem) for problem in _golden_problems(path, cells[1]))
        tests = TEST.findall(cells[2])
        if not tests:
            yield number, "a claim without a test"
        for file, function in tests:
            if not _has_test(file, function):
                yield number, f"{file}::{function}: there is no such test"
    if not claims:
        yield 1, "no claim was found"


def _golden_problems(path: Path, cell: str) -> Iterator[str]:
    """Yield the words that a cell quotes and its golden does not have."""
    _, *rest = GOLDEN.split(cell)
    for label, target, words in zip(rest[::3], rest[1::3], rest[2::3], strict=True):
        golden = (path.parent / target).resolve()
        if not golden.is_file():
            # The check of links names it.
            continue
        host = HOST.search(label)
        if host is None:
            yield f"{target}: got the text {label!r}, expected PART of INVENTORY HOST"
            continue
        text = once.of_host(golden.read_text("utf-8"), host[1], host[2])
        quoted = CODE.findall(words)
        if not quoted:
            yield f"{target}: no words of it are quoted"
        place = f"{target} for {host[2]} of {host[1]}"
        yield from (f"{place} no longer has `{quote}`" for quote in quoted if quote not in text)


def _has_test(file: str, function: str) -> bool:
    path = ROOT / file
    return path.is_file() and f"def {function}(" in path.read_text("utf-8")


def main() -> int:
    """Print every problem; the exit code is 1 if there is any."""
    files = sorted({path for place in PLACES for path in ROOT.glob(place)})
    problems = [
        f"{path.relative_to(ROOT)}:{number}: {text}"
        for path in files
        for number, text in link_problems(path)
    ]
    audit = ROOT / "docs/audit.md"
    problems += [f"docs/audit.md:{number}: {text}" for number, text in audit_problems(audit)]
    for problem in problems:
        print(problem)
    print(f"docs: {len(files)} files, {len(problems)} problems")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
