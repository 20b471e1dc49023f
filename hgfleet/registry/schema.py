"""Reads `registry.yml`: YAML in, checked registry or a list of problems out.

The events of PyYAML's parser are turned into a small tree that keeps the position of every value,
because a person who made five mistakes wants five lines, each with a place to look at. Nothing of
YAML that a registry does not need gets through: no anchors and aliases (a few lines of them can
expand to gigabytes), no tags (some construct Python objects), one document, little depth.
"""

from __future__ import annotations

import difflib
import os
import stat
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

import yaml

from hgfleet.core.errors import RegistryError
from hgfleet.core.names import group_problem, parents, path_problem
from hgfleet.policies.catalog import POLICIES
from hgfleet.policies.globs import glob_problem
from hgfleet.policies.options import EXPECTED, Kind, count, pattern_problem, size
from hgfleet.policies.rule import Rule
from hgfleet.registry.model import BUNDLE_KINDS, QUOTA, Namespace, Read, Registry, Settings, build

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

MAX_BYTES: Final = 4 * 1024 * 1024
"""Size of a registry; 10,000 repositories with long descriptions are under 2 MiB."""

MAX_DEPTH: Final = 8
"""Nested lists and mappings; a registry has 6 (the patterns of a policy)."""

MAX_DESCRIPTION: Final = 200
"""Characters; it is one line in the web pages' lists."""

VERSION: Final = 1

_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is faster

MAX_RULES: Final = 100
"""Rules of one entry: each is compared with every changeset of a push."""

_TOP_FIELDS = ("version", "read-only", "defaults", "namespaces", "repositories")
_SETTING_FIELDS = ("read", "push", "publishing", "bundles", "policies", "rules")
_ENTRY_FIELDS = ("description", *_SETTING_FIELDS, "read-only")
_NAMESPACE_FIELDS = (*_ENTRY_FIELDS, "create", "personal", "quota")
_RULE_FIELDS = ("branches", "paths", "push")


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, and where (line and column count from 1)."""

    file: str
    line: int
    column: int
    got: str
    expected: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}:{self.column}: got {self.got}, expected {self.expected}"


class RegistrySourceError(RegistryError):
    """A registry with problems; its message is all of them, one a line."""

    def __init__(self, problems: Sequence[Problem]) -> None:
        self.problems = sorted(problems, key=lambda problem: (problem.line, problem.column))
        super().__init__("\n".join(str(problem) for problem in self.problems))


@dataclass(slots=True)
class Node:
    """A value of the document with its place. `bad` ones were already complained about."""

    kind: Literal["text", "number", "boolean", "nothing", "list", "mapping", "bad"]
    line: int
    column: int
    text: str = ""
    items: list[Node] = field(default_factory=list)
    pairs: list[tuple[Node, Node]] = field(default_factory=list)


class _Stop(Exception):  # noqa: N818
    """Nothing after this point of the document can be made sense of."""


def load(path: Path | str) -> Registry:
    """Read and check a registry in YAML.

    Raises RegistryError with every problem found, one a line: "file:line:column: got ..., expected
    ...". Whatever the file contains, nothing but the registry comes of it.
    """
    name = str(path)
    return parse(_decode(_read(name), name), name)


def parse(text: str, name: str = "registry.yml") -> Registry:
    """Check the text of a registry; raises RegistrySourceError with all its problems."""
    return _Checker(name).check(text)


def _read(name: str) -> bytes:
    # O_NONBLOCK: opening a named pipe must not wait for a writer.
    try:
        descriptor = os.open(name, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        raise RegistryError(f"{name}: cannot read the registry ({error.strerror})") from error
    mode = os.fstat(descriptor).st_mode
    if not stat.S_ISREG(mode):
        os.close(descriptor)
        kind = "a directory" if stat.S_ISDIR(mode) else "something else than a file"
        raise RegistrySourceError([Problem(name, 1, 1, kind, "a file with a registry")])
    with os.fdopen(descriptor, "rb") as file:
        data = file.read(MAX_BYTES + 1)
    if len(data) > MAX_BYTES:
        got = f"more than {MAX_BYTES} bytes"
        raise RegistrySourceError([Problem(name, 1, 1, got, "a registry smaller than that")])
    return data


def _decode(data: bytes, name: str) -> str:
    try:
        return data.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line = before.count(b"\n") + 1
        column = len(before) - (before.rfind(b"\n") + 1) + 1
        got = f"the byte 0x{data[error.start]:02x}"
        raise RegistrySourceError([Problem(name, line, column, got, "text in UTF-8")]) from error


class _Checker:
    def __init__(self, name: str) -> None:
        self.name = name
        self.problems: list[Problem] = []

    def check(self, text: str) -> Registry:
        try:
            registry = self.top(self.compose(text))
        except _Stop:
            registry = None
        if self.problems or registry is None:
            raise RegistrySourceError(self.problems)
        return registry

    def problem(self, place: Node, got: str, expected: str) -> None:
        self.problems.append(Problem(self.name, place.line, place.column, got, expected))

    # From text to nodes.

    def compose(self, text: str) -> Node:
        """Build the tree without recursion, so that depth is a matter of counting."""
        document: Node | None = None
        stack: list[Node] = []
        keys: list[Node | None] = []  # for each mapping on the stack, the key that waits
        for event in self.events(text):
            if isinstance(event, yaml.DocumentStartEvent) and document is not None:
                self.problem(_node("bad", event), "a second document", "one document")
                raise _Stop
            if isinstance(event, yaml.CollectionEndEvent):
                stack.pop()
                keys.pop()
                continue
            if not isinstance(event, yaml.NodeEvent):
                continue
            node = self.node(event)
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
                    self.problem(node, f"more than {MAX_DEPTH} levels", "a flat registry")
                    raise _Stop
        if document is None:
            self.problem(Node("bad", 1, 1), "an empty file", "a registry")
            raise _Stop
        return document

    def events(self, text: str) -> Iterator[yaml.Event]:
        if match := yaml.reader.Reader.NON_PRINTABLE.search(text):
            before = text[: match.start()]
            place = Node("bad", before.count("\n") + 1, len(before) - before.rfind("\n"))
            self.problem(place, f"the character U+{ord(match.group()):04X}", "printable text")
            raise _Stop
        try:
            yield from yaml.parse(text, Loader=_LOADER)
        except yaml.MarkedYAMLError as error:
            mark = error.problem_mark or error.context_mark
            line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
            what = " ".join(part for part in (error.problem, error.context) if part)
            self.problem(Node("bad", line, column), f"broken YAML ({what})", "valid YAML")
            raise _Stop from error

    def node(self, event: yaml.NodeEvent) -> Node:
        if isinstance(event, yaml.AliasEvent):
            node = _node("bad", event)
            self.problem(node, f"the alias *{event.anchor}", "the value itself, written out")
            return node
        node = _node(_kind(event), event)
        if event.anchor is not None:
            self.problem(node, f"the anchor &{event.anchor}", "a value without an anchor")
        # The parser reports a plain collection as untagged, a tagged one with the tag.
        tag = getattr(event, "tag", None)
        if tag is not None:
            self.problem(node, f"the tag {_short(tag)}", "a value without a tag")
            # Its content is still walked, to keep the tree in step, and then not looked at.
            node.kind = "mapping" if isinstance(event, yaml.MappingStartEvent) else "bad"
        if isinstance(event, yaml.ScalarEvent):
            node.text = event.value
        return node

    # From nodes to the registry.

    def top(self, document: Node) -> Registry:
        fields = self.mapping(document, "the registry", _TOP_FIELDS)
        if document.kind != "mapping":
            raise _Stop
        version = fields.get("version")
        if version is None:
            self.missing(document, "version", f"version: {VERSION}")
        elif version.kind != "bad" and (version.kind, version.text) != ("number", str(VERSION)):
            self.problem(version, _describe(version), f"the number {VERSION}")
        read_only = self.reason(fields["read-only"]) if "read-only" in fields else None
        defaults = Settings()
        if "defaults" in fields:
            own = self.mapping(fields["defaults"], "the defaults", _SETTING_FIELDS)
            defaults = self.settings(own)
        namespaces: dict[str, Namespace] = {}
        places: dict[str, Node] = {}
        for key, value in self.entries(fields.get("namespaces"), "namespaces"):
            own = self.mapping(value, "a namespace", _NAMESPACE_FIELDS)
            namespaces[key.text] = self.namespace(key.text, own)
            places[key.text] = key
        repositories: dict[str, tuple[str, Settings]] = {}
        if "repositories" not in fields:
            self.missing(document, "repositories", "repositories: a mapping of paths")
        for key, value in self.entries(fields.get("repositories"), "repositories"):
            own = self.mapping(value, "a repository with at least a description", _ENTRY_FIELDS)
            text = ""
            if "description" in own:
                text = self.description(own["description"])
            elif value.kind == "mapping":
                self.missing(key, "description", "one line that says what the repository is for")
            settings = self.settings(own)
            repositories[key.text] = (text, settings)
            places["repository " + key.text] = key
        self.overlaps(repositories, namespaces, places)
        return build(repositories, namespaces, defaults, read_only)

    def namespace(self, path: str, fields: dict[str, Node]) -> Namespace:
        text = self.description(fields["description"]) if "description" in fields else ""
        create: tuple[str, ...] | None = ()
        if (node := fields.get("create")) is not None:
            create = self.names(node, "a list of groups ([] for nobody)", group_problem)
        personal = self.boolean(fields["personal"]) if "personal" in fields else False
        quota: int | None = QUOTA
        if (node := fields.get("quota")) is not None and node.kind != "bad":
            quota = count(node.text) if node.kind == "number" else None
            if quota is None:
                self.problem(node, _describe(node), EXPECTED["count"])
        if not create:
            for name in ("personal", "quota"):
                if name in fields and not self.problems:
                    self.problem(
                        fields[name],
                        f"{name} where nobody may create repositories",
                        "create: a list of groups beside it",
                    )
        return Namespace(
            path, text, self.settings(fields), create or (), bool(personal), quota or QUOTA
        )

    def overlaps(
        self,
        repositories: dict[str, tuple[str, Settings]],
        namespaces: dict[str, Namespace],
        places: dict[str, Node],
    ) -> None:
        for path in repositories:
            for above in parents(path):
                if above in repositories:
                    self.problem(
                        places["repository " + path],
                        f"'{path}' inside the repository '{above}'",
                        "no repository inside another",
                    )
        for path in namespaces:
            for above in (path, *parents(path)):
                if above in repositories:
                    self.problem(
                        places[path],
                        f"the namespace '{path}' where '{above}' is a repository",
                        "a namespace above repositories",
                    )

    def entries(self, node: Node | None, field_name: str) -> list[tuple[Node, Node]]:
        """Go through the paths of `namespaces` or `repositories`, without the impossible ones."""
        if node is None:
            return []
        result = []
        for key, value in self.pairs(node, f"a mapping of paths ({field_name}: {{}} for none)"):
            expected = path_problem(key.text)
            if expected:
                lower = key.text.lower()
                if lower != key.text and path_problem(lower) is None:
                    expected += f"; did you mean '{lower}'?"
                self.problem(key, f"'{_short(key.text)}'", expected)
            # An entry with a bad path is still worth checking for more.
            result.append((key, value))
        return result

    def pairs(self, node: Node, expected: str) -> list[tuple[Node, Node]]:
        """Go through a mapping with text keys, each once."""
        if node.kind != "mapping":
            if node.kind != "bad":
                self.problem(node, _describe(node), expected)
            return []
        seen: dict[str, Node] = {}
        result = []
        for key, value in node.pairs:
            if key.kind != "text":
                if key.kind != "bad":
                    quote = "" if key.kind in ("list", "mapping") else ", in quotes"
                    self.problem(key, f"{_describe(key)} as a key", f"text{quote}")
            elif key.text in seen:
                first = seen[key.text].line
                self.problem(
                    key,
                    f"'{_short(key.text)}' again (the first is in line {first})",
                    "every key once",
                )
            else:
                seen[key.text] = key
                result.append((key, value))
        return result

    def mapping(self, node: Node, what: str, known: Sequence[str]) -> dict[str, Node]:
        """Go through a mapping with a fixed set of keys."""
        result = {}
        for key, value in self.pairs(node, f"{what}: a mapping with {_list(known)}"):
            if key.text in known:
                result[key.text] = value
            else:
                guess = difflib.get_close_matches(key.text.lower()[:40], known, n=1, cutoff=0.5)
                hint = f"; did you mean '{guess[0]}'?" if guess else ""
                self.problem(key, f"the unknown key '{_short(key.text)}'", _list(known) + hint)
        return result

    def missing(self, place: Node, key: str, expected: str) -> None:
        self.problem(place, f"no {key}", expected)

    def settings(self, fields: dict[str, Node]) -> Settings:
        read: Read | None = None
        push: tuple[str, ...] | None = None
        publishing: bool | None = None
        bundles: tuple[str, ...] | None = None
        if (node := fields.get("read")) is not None:
            read = self.read(node)
        if (node := fields.get("push")) is not None:
            push = self.names(node, "a list of groups ([] for nobody)", group_problem)
        if (node := fields.get("publishing")) is not None:
            publishing = self.boolean(node)
        if (node := fields.get("bundles")) is not None:
            bundles = self.bundles(node)
        return Settings(
            read,
            push,
            publishing,
            bundles,
            self.policies(fields["policies"]) if "policies" in fields else None,
            self.rules(fields["rules"]) if "rules" in fields else (),
            self.reason(fields["read-only"]) if "read-only" in fields else None,
        )

    def boolean(self, node: Node) -> bool | None:
        # YAML 1.1 knows 22 ways to write a boolean; a registry knows two.
        if node.kind == "boolean" and node.text in ("true", "false"):
            return node.text == "true"
        if node.kind != "bad":
            self.problem(node, _describe(node), "true or false")
        return None

    def policies(self, node: Node) -> dict[str, dict[str, Any] | None]:
        result: dict[str, dict[str, Any] | None] = {}
        known = tuple(POLICIES)
        for name, value in self.mapping(node, "policies", known).items():
            if value.kind == "boolean" and value.text == "false":
                result[name] = None
                continue
            policy = POLICIES[name]
            if value.kind != "mapping":
                if value.kind != "bad":
                    words = _list(tuple(policy.options)) or "{}"
                    self.problem(
                        value, _describe(value), f"false, or the options of {name}: {words}"
                    )
                continue
            before = len(self.problems)
            options: dict[str, Any] = {}
            for key, option in self.mapping(value, name, tuple(policy.options)).items():
                options[key] = self.option(option, policy.options[key].kind)
            for key, declared in policy.options.items():
                if declared.required and key not in options:
                    self.missing(value, key, f"{key}: {EXPECTED[declared.kind]}")
            if len(self.problems) == before and (expected := policy.problem(options)):
                self.problem(value, "no options", expected)
            result[name] = options
        return result

    def option(self, node: Node, kind: Kind) -> object:
        """Go through the value of one option; what is not right is None."""
        expected = EXPECTED[kind]
        if kind in ("globs", "groups"):
            names = self.names(node, expected, glob_problem if kind == "globs" else group_problem)
            if names == () and not node.items:
                self.problem(node, "an empty list", expected)
            return None if names is None else list(names)
        if kind == "text":
            return self.description(node)
        if kind in ("size", "count"):
            value = (size if kind == "size" else count)(node.text)
            if node.kind in ("number", "text") and value is not None:
                return value
            if node.kind != "bad":
                self.problem(node, _describe(node), expected)
            return None
        if node.kind != "text":
            if node.kind != "bad":
                self.problem(node, _describe(node), expected)
        elif problem := pattern_problem(node.text):
            self.problem(node, f"'{_short(node.text)}'", problem)
        return node.text

    def rules(self, node: Node) -> tuple[Rule, ...]:
        expected = "a list of rules: {branches: [...], paths: [...], push: [groups]}"
        if node.kind != "list":
            if node.kind != "bad":
                self.problem(node, _describe(node), expected)
            return ()
        if len(node.items) > MAX_RULES:
            self.problem(node, f"{len(node.items)} rules", f"at most {MAX_RULES}")
            return ()
        return tuple(self.rule(item) for item in node.items)

    def rule(self, node: Node) -> Rule:
        fields = self.mapping(node, "a rule", _RULE_FIELDS)
        lists: dict[str, tuple[str, ...]] = {}
        for name in ("branches", "paths"):
            if name in fields:
                value = self.option(fields[name], "globs")
                lists[name] = tuple(value) if isinstance(value, list) else ()
        push: tuple[str, ...] | None = ()
        if "push" in fields:
            push = self.names(fields["push"], "a list of groups ([] for nobody)", group_problem)
        if node.kind == "mapping":
            if "push" not in fields:
                self.missing(node, "push", "push: the groups that may ([] for nobody)")
            if not lists:
                self.missing(node, "branches and no paths", "what the rule is about")
        return Rule(push or (), **lists)

    def reason(self, node: Node) -> str | None:
        """Go through the reason of read-only, a text for everybody who meets it."""
        if node.kind == "boolean":
            self.problem(node, _describe(node), "the reason, in words (people are shown it)")
            return None
        return self.description(node) or None

    def description(self, node: Node) -> str:
        text = node.text.strip()
        expected = f"one line of text, at most {MAX_DESCRIPTION} characters"
        if node.kind in ("number", "boolean"):
            self.problem(node, _describe(node), "text, in quotes")
        elif node.kind != "text":
            if node.kind != "bad":
                self.problem(node, _describe(node), expected)
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

    def read(self, node: Node) -> Read | None:
        expected = "public or a list of groups"
        if node.kind == "text" and node.text == "public":
            return "public"
        groups = self.names(node, expected, group_problem)
        if groups == () and not node.items and node.kind == "list":
            self.problem(node, "an empty list", expected)
        return groups

    def bundles(self, node: Node) -> tuple[str, ...] | None:
        known = _list(BUNDLE_KINDS)

        def bundle_problem(name: str) -> str | None:
            if name in BUNDLE_KINDS:
                return None
            guess = difflib.get_close_matches(name.lower()[:40], BUNDLE_KINDS, n=1, cutoff=0.5)
            return known + (f"; did you mean '{guess[0]}'?" if guess else "")

        kinds = self.names(node, f"a list of {known} ([] for none)", bundle_problem)
        if kinds and kinds[0] == "gzip" and len(kinds) > 1:
            self.problem(
                node.items[0],
                "'gzip' as the first of several",
                "it last: a client takes the first entry it supports, and every client has gzip",
            )
        return kinds

    def names(
        self, node: Node, expected: str, check: Callable[[str], str | None]
    ) -> tuple[str, ...] | None:
        """Go through a list of distinct names; None only if it is no list."""
        if node.kind != "list":
            if node.kind != "bad":
                self.problem(node, _describe(node), expected)
            return None
        result: list[str] = []
        for item in node.items:
            if item.kind != "text":
                if item.kind != "bad":
                    self.problem(item, _describe(item), expected)
            elif problem := check(item.text):
                self.problem(item, f"'{_short(item.text)}'", problem)
            elif item.text in result:
                self.problem(item, f"'{item.text}' again", "every name once")
            else:
                result.append(item.text)
        return tuple(result)


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
    # What another reader of this file (Ansible) would make of a plain scalar. Dates and the like
    # (2026-11-20) are text for us: their spelling is kept.
    tag = _RESOLVER.resolve(yaml.ScalarNode, event.value, (True, False))  # type: ignore[no-untyped-call]
    return _KINDS.get(tag, "text")


def _node(
    kind: Literal["text", "number", "boolean", "nothing", "list", "mapping", "bad"],
    event: yaml.Event,
) -> Node:
    mark = event.start_mark
    assert mark is not None
    return Node(kind, mark.line + 1, mark.column + 1)


def _describe(node: Node) -> str:
    match node.kind:
        case "text":
            return f"'{_short(node.text)}'"
        case "number":
            return f"the number {_short(node.text)}"
        case "boolean":
            return f"the boolean {node.text}"
        case "list" | "mapping":
            return f"a {node.kind}"
    return "nothing"


def _short(text: str) -> str:
    """Quote what may be anything, on one line of a terminal."""
    text = "".join(
        character if character.isprintable() else f"\\u{ord(character):04x}"
        for character in text[:61]
    )
    return text if len(text) <= 60 else text[:60] + "..."


def _list(words: Sequence[str]) -> str:
    return ", ".join(words)
