"""Values of a YAML tree, checked: mappings, lists of names, lines of text, booleans.

Each check adds a problem and goes on, so that a single run finds every mistake.
"""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Final

from hgfleet.core.text import shown
from hgfleet.registry.model.yaml_tree import Problems, describe

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from hgfleet.registry.model.yaml_tree import Node

MAX_DESCRIPTION: Final = 200
"""Characters; it is shown on a line in the web pages' lists."""


class Values:
    """The checks of a file."""

    def __init__(self, name: str) -> None:
        self.problems = Problems(name)

    def problem(self, place: Node, got: str, expected: str) -> None:
        """Add a problem at the place of a node."""
        self.problems.add(place, got, expected)

    def pairs(self, node: Node, expected: str) -> list[tuple[Node, Node]]:
        """Return the pairs of a mapping with text keys, each once."""
        if node.kind != "mapping":
            if node.kind != "bad":
                self.problem(node, describe(node), expected)
            return []
        seen: dict[str, Node] = {}
        result = []
        for key, value in node.pairs:
            if key.kind != "text":
                if key.kind != "bad":
                    quote = "" if key.kind in ("list", "mapping") else ", in quotes"
                    self.problem(key, f"{describe(key)} as a key", f"text{quote}")
            elif key.text in seen:
                first = seen[key.text].line
                self.problem(
                    key,
                    f"'{shown(key.text, 60)}' again (the first is in line {first})",
                    "every key once",
                )
            else:
                seen[key.text] = key
                result.append((key, value))
        return result

    def mapping(self, node: Node, title: str, known: Sequence[str]) -> dict[str, Node]:
        """Return the values of a mapping with a fixed set of keys."""
        result = {}
        for key, value in self.pairs(node, f"{title}: a mapping with {', '.join(known)}"):
            if key.text in known:
                result[key.text] = value
            else:
                guess = difflib.get_close_matches(key.text.lower()[:40], known, n=1, cutoff=0.5)
                hint = f"; did you mean '{guess[0]}'?" if guess else ""
                self.problem(
                    key, f"the unknown key '{shown(key.text, 60)}'", ", ".join(known) + hint
                )
        return result

    def missing(self, place: Node, key: str, expected: str) -> None:
        """Add the problem of a missing key."""
        self.problem(place, f"no {key}", expected)

    def boolean(self, node: Node) -> bool | None:
        """Return true or false; None for anything else."""
        # YAML 1.1 knows 22 ways to write a boolean; a registry knows two.
        if node.kind == "boolean" and node.text in ("true", "false"):
            return node.text == "true"
        if node.kind != "bad":
            self.problem(node, describe(node), "true or false")
        return None

    def description(self, node: Node) -> str:
        """Return a line of printable text."""
        text = node.text.strip()
        expected = f"one line of text, at most {MAX_DESCRIPTION} characters"
        if node.kind in ("number", "boolean"):
            self.problem(node, describe(node), "text, in quotes")
        elif node.kind != "text":
            if node.kind != "bad":
                self.problem(node, describe(node), expected)
        elif not text:
            self.problem(node, "an empty text", expected)
        # isprintable() refuses line ends, control and direction-changing characters: the text
        # goes into an hgrc, into pages and onto terminals.
        elif not text.isprintable():
            bad = next(character for character in text if not character.isprintable())
            self.problem(node, f"text with the character U+{ord(bad):04X}", expected)
        elif len(text) > MAX_DESCRIPTION:
            self.problem(node, f"text of {len(text)} characters", expected)
        return text

    def names(
        self, node: Node, expected: str, check: Callable[[str], str | None]
    ) -> tuple[str, ...] | None:
        """Return a list of distinct names; None only if it is no list."""
        if node.kind != "list":
            if node.kind != "bad":
                self.problem(node, describe(node), expected)
            return None
        result: list[str] = []
        for item in node.items:
            if item.kind != "text":
                if item.kind != "bad":
                    self.problem(item, describe(item), expected)
            elif problem := check(item.text):
                self.problem(item, f"'{shown(item.text, 60)}'", problem)
            elif item.text in result:
                self.problem(item, f"'{item.text}' again", "every name once")
            else:
                result.append(item.text)
        return tuple(result)
