"""Text for people in files of several kinds: docstrings, comments, messages, stories, documents."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

_FENCE = re.compile(r"^\s*```")
_HASH_COMMENT = re.compile(r"(?:^|\s)#(?!\!)\s?(?P<text>.*)$")
_JINJA_COMMENT = re.compile(r"{#(.*?)#}", re.DOTALL)
_MESSAGE = re.compile(r"(?:[A-Za-z',;:()-]+ ){3}[A-Za-z]")


@dataclass(frozen=True)
class Passage:
    """A docstring, a comment, a message or a line of a document, and its first line's number."""

    line: int
    text: str


def passages_of_python(source: str, *, messages: bool = True) -> Iterator[Passage]:
    """Yield docstrings, strings that stand as a statement, comments, and messages if asked for.

    A message is any other string of four words and more: the text of an error, of a print, of an
    option's help. A formatted string is a single passage: its parts are short, its sentence is not.
    """
    tree = ast.parse(source)
    statements = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    inside: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            inside.update(id(part) for part in node.values)
            text = "".join(
                str(part.value) if isinstance(part, ast.Constant) else "`x`" for part in node.values
            )
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            text = node.value
        else:
            continue
        is_message = messages and id(node) not in inside and _MESSAGE.search(text)
        if id(node) in statements or is_message:
            yield Passage(node.lineno, text)
    yield from _comments_of_python(source)


def _comments_of_python(source: str) -> Iterator[Passage]:
    """Yield comments; whole lines that follow each other at the same column are a comment."""
    first, column, lines = 0, 0, list[str]()
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line, start = token.start
        is_trailing = not token.line.lstrip().startswith("#")
        if lines and (is_trailing or line != first + len(lines) or start != column):
            yield Passage(first, "\n".join(lines))
            lines = []
        if not lines:
            first, column = line, start
        lines.append(token.string.lstrip("#"))
    if lines:
        yield Passage(first, "\n".join(lines))


def passages_of_markdown(text: str) -> Iterator[Passage]:
    """Yield every line outside of fenced code."""
    fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if _FENCE.match(line):
            fenced = not fenced
        elif not fenced:
            yield Passage(number, line)


def passages_of_story(text: str) -> Iterator[Passage]:
    """Yield the prose of a `.t` file: every line that is neither a command nor its output."""
    for number, line in enumerate(text.splitlines(), 1):
        if not line.startswith("  "):
            yield Passage(number, line)


def passages_of_comments(text: str) -> Iterator[Passage]:
    """Yield the comments of YAML, shell, TOML and templates."""
    for number, line in enumerate(text.splitlines(), 1):
        if match := _HASH_COMMENT.search(line):
            yield Passage(number, match["text"])
    for match in _JINJA_COMMENT.finditer(text):
        yield Passage(text.count("\n", 0, match.start()) + 1, match.group(1))
