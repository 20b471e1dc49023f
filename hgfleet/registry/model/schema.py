"""Schema of `registry.yml`: a checked registry, or the list of all problems."""

from __future__ import annotations

import difflib
import os
import stat
from typing import TYPE_CHECKING, Any, Final, get_args

from hgfleet.core.errors import RegistryError
from hgfleet.core.names import group_problem, parents, path_problem
from hgfleet.core.text import shown
from hgfleet.policies.catalog import POLICIES
from hgfleet.policies.globs import glob_problem
from hgfleet.policies.options import EXPECTED, Kind, count, pattern_problem, size
from hgfleet.policies.rule import Rule
from hgfleet.registry.model.registry import (
    BUNDLE_KINDS,
    QUOTA,
    AcceptDates,
    Namespace,
    Read,
    Registry,
    Settings,
    build,
)
from hgfleet.registry.model.yaml_tree import (
    Problem,
    RegistrySourceError,
    UnreadableError,
    compose,
    describe,
)
from hgfleet.registry.model.yaml_values import Values

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.registry.model.yaml_tree import Node

MAX_BYTES: Final = 4 * 1024 * 1024
"""Size of a registry; 10,000 repositories with long descriptions are under 2 MiB."""

VERSION: Final = 1

MAX_RULES: Final = 100
"""Rules of an entry: each is compared with every changeset of a push."""

_TOP_FIELDS = ("version", "read-only", "defaults", "namespaces", "repositories")
_SETTING_FIELDS = (
    *("read", "push", "publishing", "bundles", "bundles-from", "policies", "rules", "accept-dates"),
)
_ENTRY_FIELDS = ("description", *_SETTING_FIELDS, "read-only")
_NAMESPACE_FIELDS = (*_ENTRY_FIELDS, "create", "personal", "quota")
_RULE_FIELDS = ("branches", "paths", "tags", "push")


def load(path: Path | str) -> Registry:
    """Read and check a registry in YAML.

    Raises RegistryError with every problem found, each on a line: "file:line:column: got ...,
    expected ...". The content of the file has no effect but the registry.
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
        kind = "a directory" if stat.S_ISDIR(mode) else "a pipe, socket or device"
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


class _Checker(Values):
    def check(self, text: str) -> Registry:
        try:
            registry = self.top(compose(text, self.problems))
        except UnreadableError:
            registry = None
        if self.problems.found or registry is None:
            raise RegistrySourceError(self.problems.found)
        return registry

    def top(self, document: Node) -> Registry:
        fields = self.mapping(document, "the registry", _TOP_FIELDS)
        if document.kind != "mapping":
            raise UnreadableError
        version = fields.get("version")
        if version is None:
            self.missing(document, "version", f"version: {VERSION}")
        elif version.kind != "bad" and (version.kind, version.text) != ("number", str(VERSION)):
            self.problem(version, describe(version), f"the number {VERSION}")
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
                self.missing(key, "description", "a line that says what the repository is for")
            settings = self.settings(own)
            repositories[key.text] = (text, settings)
            places["repository " + key.text] = key
        self.overlaps(repositories, namespaces, places)
        return build(repositories, namespaces, defaults, read_only)

    def namespace(self, path: str, fields: dict[str, Node]) -> Namespace:
        text = self.description(fields["description"]) if "description" in fields else ""
        create: tuple[str, ...] | None = ()
        if (node := fields.get("create")) is not None:
            create = self.names(node, "a list of groups ([] for none)", group_problem)
        personal = self.boolean(fields["personal"]) if "personal" in fields else False
        quota: int | None = QUOTA
        if (node := fields.get("quota")) is not None and node.kind != "bad":
            quota = count(node.text) if node.kind == "number" else None
            if quota is None:
                self.problem(node, describe(node), EXPECTED["count"])
        if not create:
            for name in ("personal", "quota"):
                if name in fields and not self.problems.found:
                    self.problem(
                        fields[name],
                        f"{name} where no user may create repositories",
                        "create: a list of groups as well",
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
        """Return the paths of `namespaces` or `repositories` with their entries, even if wrong."""
        if node is None:
            return []
        result = []
        for key, value in self.pairs(node, f"a mapping of paths ({field_name}: {{}} for none)"):
            expected = path_problem(key.text)
            if expected:
                lower = key.text.lower()
                if lower != key.text and path_problem(lower) is None:
                    expected += f"; did you mean '{lower}'?"
                self.problem(key, f"'{shown(key.text, 60)}'", expected)
            # An entry with a bad path is checked too.
            result.append((key, value))
        return result

    def settings(self, fields: dict[str, Node]) -> Settings:
        read: Read | None = None
        push: tuple[str, ...] | None = None
        publishing: bool | None = None
        bundles: tuple[str, ...] | None = None
        if (node := fields.get("read")) is not None:
            read = self.read(node)
        if (node := fields.get("push")) is not None:
            push = self.names(node, "a list of groups ([] for none)", group_problem)
        if (node := fields.get("publishing")) is not None:
            publishing = self.boolean(node)
        if (node := fields.get("bundles")) is not None:
            bundles = self.bundles(node)
        bundles_from: object = None
        if (node := fields.get("bundles-from")) is not None:
            bundles_from = self.option(node, "size")
        return Settings(
            read,
            push,
            publishing,
            bundles,
            self.policies(fields["policies"]) if "policies" in fields else None,
            self.rules(fields["rules"]) if "rules" in fields else (),
            self.reason(fields["read-only"]) if "read-only" in fields else None,
            bundles_from if isinstance(bundles_from, int) else None,
            self.accept_dates(fields["accept-dates"]) if "accept-dates" in fields else None,
        )

    def accept_dates(self, node: Node) -> AcceptDates | None:
        for known in get_args(AcceptDates):
            if node.kind == "text" and node.text == known:
                return known  # type: ignore[no-any-return]
        if node.kind != "bad":
            self.problem(node, describe(node), "any (dates of an old history) or valid")
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
                    listed = ", ".join(policy.options) or "{}"
                    self.problem(
                        value, describe(value), f"false, or the options of {name}: {listed}"
                    )
                continue
            before = len(self.problems.found)
            options: dict[str, Any] = {}
            for key, option in self.mapping(value, name, tuple(policy.options)).items():
                options[key] = self.option(option, policy.options[key].kind)
            for key, declared in policy.options.items():
                if declared.required and key not in options:
                    self.missing(value, key, f"{key}: {EXPECTED[declared.kind]}")
            if len(self.problems.found) == before and (expected := policy.problem(options)):
                self.problem(value, "no options", expected)
            result[name] = options
        return result

    def option(self, node: Node, kind: Kind) -> object:
        """Return the value of an option; None if it is wrong."""
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
                self.problem(node, describe(node), expected)
            return None
        if node.kind != "text":
            if node.kind != "bad":
                self.problem(node, describe(node), expected)
        elif problem := pattern_problem(node.text):
            self.problem(node, f"'{shown(node.text, 60)}'", problem)
        return node.text

    def rules(self, node: Node) -> tuple[Rule, ...]:
        expected = "a list of rules: {branches: [...], paths: [...], push: [groups]}, or with tags"
        if node.kind != "list":
            if node.kind != "bad":
                self.problem(node, describe(node), expected)
            return ()
        if len(node.items) > MAX_RULES:
            self.problem(node, f"{len(node.items)} rules", f"at most {MAX_RULES}")
            return ()
        return tuple(self.rule(item) for item in node.items)

    def rule(self, node: Node) -> Rule:
        fields = self.mapping(node, "a rule", _RULE_FIELDS)
        lists: dict[str, tuple[str, ...]] = {}
        for name in ("branches", "paths", "tags"):
            if name in fields:
                value = self.option(fields[name], "globs")
                lists[name] = tuple(value) if isinstance(value, list) else ()
        push: tuple[str, ...] | None = ()
        if "push" in fields:
            push = self.names(fields["push"], "a list of groups ([] for none)", group_problem)
        if node.kind == "mapping":
            if "push" not in fields:
                self.missing(node, "push", "push: the groups that may ([] for none)")
            if not lists:
                self.missing(node, "branches, paths or tags", "branches, paths or tags to protect")
            elif "tags" in lists and len(lists) > 1:
                self.problem(node, "tags together with branches or paths", "a rule for each")
        return Rule(push or (), **lists)

    def reason(self, node: Node) -> str | None:
        """Return the reason of read-only, which refusals show."""
        if node.kind == "boolean":
            self.problem(node, describe(node), "the reason, in words (people are shown it)")
            return None
        return self.description(node) or None

    def read(self, node: Node) -> Read | None:
        expected = "public or a list of groups"
        if node.kind == "text" and node.text == "public":
            return "public"
        groups = self.names(node, expected, group_problem)
        if groups == () and not node.items and node.kind == "list":
            self.problem(node, "an empty list", expected)
        return groups

    def bundles(self, node: Node) -> tuple[str, ...] | None:
        known = ", ".join(BUNDLE_KINDS)

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
