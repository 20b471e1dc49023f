"""YAML as a tree that keeps the position of every value.

An operator who made five mistakes wants five lines, each with its place. So the events of PyYAML's
parser become nodes with line and column. YAML that a registry does not need is refused: anchors and
aliases (a few lines of them can expand to gigabytes), tags (some construct Python objects), several
documents, depth.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

import yaml

from hgfleet.core.errors import RegistryError
from hgfleet.core.text import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

MAX_DEPTH: Final = 8
"""Nested lists and mappings; a registry has 6 (the patterns of a policy)."""

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is faster


@dataclass(frozen=True, slots=True)
class Problem:
    """A problem and its place (line and column count from 1)."""

    file: str
    line: int
    column: int
    got: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: got {self.got}, expected {self.expected}"


class RegistrySourceError(RegistryError):
    """A registry with problems; its message is all of them, each on a line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(slots=True)
class Node:
    """A value of the document with its place. Problems of `bad` nodes are reported already."""

    kind: Literal["text", "number", "boolean", "nothing", "list", "mapping", "bad"]
    line: int
    column: int
    text: str = ""
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)


class UnreadableError(Exception):
    """The rest of the document cannot be read; its problem is in the list already."""


class Problems:
    """The problems of a file, collected."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.found: list[Problem] = []

    def add(self, place: Node, got: str, expected: str) -> None:
        """Add a problem at the place of a node."""
        self.found.append(Problem(self.name, place.line, place.column, got, expected))


# From text to nodes.


def compose(text: str, problems: Problems) -> Node:
    """Build the tree; raise UnreadableError if a problem ends the reading.

    It works without recursion, so that depth is a matter of counting.
    """
    document: Node | None = None
    stack: list[Node] = []
    keys: list[Node | None] = []  # for each mapping on the stack, the key that waits
    for event in _events(text, problems):
        if isinstance(event, yaml.DocumentStartEvent) and document is not None:
            problems.add(_node("bad", event), "a second document", "one document")
            raise UnreadableError
        if isinstance(event, yaml.CollectionEndEvent):
            stack.pop()
            keys.pop()
            continue
        if not isinstance(event, yaml.NodeEvent):
            continue
        node = _checked(event, problems)
        if not stack:
            document = node
        elif stack[-1].kind != "mapping":
            stack[-1].items.append(node)
        elif (key := keys[-1]) is None:
            keys[-1] = node
        else:
            stack[-1].pairs.append((key, node))
            keys[-1] = None
        if isinstance(event, yaml.CollectionStartEvent):
            stack.append(node)
            keys.append(None)
            if len(stack) > MAX_DEPTH:
                problems.add(node, f"more than {MAX_DEPTH} levels", "a flat registry")
                raise UnreadableError
    if document is None:
        problems.add(Node("bad", 1, 1), "an empty file", "a registry")
        raise UnreadableError
    return document


def _events(text: str, problems: Problems) -> Iterator[yaml.Event]:
    if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
        before = text[: match.start()]
        place = Node("bad", before.count("\n") + 1, len(before) - before.rfind("\n"))
        problems.add(place, f"the character U+{ord(match.group()):04X}", "printable text")
        raise UnreadableError
    try:
        yield from yaml.parse(text, Loader=_LOADER)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        reason = " ".join(part for part in (error.problem, error.context) if part)
        problems.add(Node("bad", line, column), f"broken YAML ({reason})", "valid YAML")
        raise UnreadableError from error


def _checked(event: yaml.NodeEvent, problems: Problems) -> Node:
    if isinstance(event, yaml.AliasEvent):
        node = _node("bad", event)
        problems.add(node, f"the alias *{event.anchor}", "the value itself, written out")
        return node
    node = _node(_kind(event), event)
    if event.anchor is not None:
        problems.add(node, f"the anchor &{event.anchor}", "a value without an anchor")
    # The parser reports a plain collection as untagged, a tagged collection with the tag.
    tag = getattr(event, "tag", None)
    if tag is not None:
        problems.add(node, f"the tag {shown(tag, 60)}", "a value without a tag")
        # Its content is still walked, to keep the tree in step, but its values are not checked.
        node.kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "bad"
    if isinstance(event, yaml.ScalarEvent):
        node.text = event.value
    return node


_RESOLVER = yaml.resolver.Resolver()
_KINDS: Final[dict[str, Literal["text", "number", "boolean", "nothing"]]] = {
    "tag:yaml.org,2002:int": "number",
    "tag:yaml.org,2002:float": "number",
    "tag:yaml.org,2002:bool": "boolean",
    "tag:yaml.org,2002:null": "nothing",
}


def _kind(
    event: yaml.NodeEvent,
) -> Literal["text", "number", "boolean", "nothing", "list", "mapping"]:
    if isinstance(event, yaml.MappingStartEvent):
        return "mapping"
    if isinstance(event, yaml.SequenceStartEvent):
        return "list"
    if not isinstance(event, yaml.ScalarEvent) or not event.implicit[0]:
        return "text"
    # The kind is Ansible's, which reads this file too. Dates and the like (2026-11-20) are text
    # here: their spelling is kept.
    tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
    return _KINDS.get(tag, "text")


def _node(
    kind: Literal["text", "number", "boolean", "nothing", "list", "mapping", "bad"],
    event: yaml.Event,
) -> Node:
    mark = event.start_mark
    assert mark is not None
    return Node(kind, mark.line + 1, mark.column + 1)


def describe(node: Node) -> str:
    """Return the value of a node as an error shows it."""
    match node.kind:
        case "text":
            return f"'{shown(node.text, 60)}'"
        case "number":
            return f"the number {shown(node.text, 60)}"
        case "boolean":
            return f"the boolean {node.text}"
        case "list" | "mapping":
            return f"a {node.kind}"
    return "nothing"
