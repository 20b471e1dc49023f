"""The registry: every repository and namespace, and what each person may do there.

A person writes it as YAML (`registry.yml` in the inventory, read by `load`); hosts read it as
compiled JSON (`registry.json`, read by `load_compiled`), where every value is already inherited.
This module is imported by each SSH session, so it imports nothing that is slow to import.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from hgfleet.errors import RegistryError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

__all__ = [
    "BUNDLE_KINDS",
    "RESERVED_SEGMENTS",
    "Namespace",
    "Registry",
    "Repository",
    "Settings",
    "build",
    "dump_compiled",
    "group_problem",
    "load",
    "load_compiled",
    "parse_compiled",
    "path_problem",
]

Read = Literal["public"] | tuple[str, ...]
_T = TypeVar("_T")

COMPILED_FORMAT: Final = 1
"""Raised when an older reader would misunderstand `registry.json`."""

BUNDLE_KINDS: Final = ("stream", "zstd", "gzip")
"""Kinds of clone bundles, in the order a manifest has them unless the registry says otherwise."""

MAX_SEGMENTS: Final = 8
MAX_PATH_LENGTH: Final = 200

RESERVED_SEGMENTS: Final = frozenset(
    {
        # Answered by the web part itself, before it looks for a repository.
        "api",
        "favicon.ico",
        "healthz",
        "json",
        "metrics",
        "readyz",
        "robots.txt",
        "static",
        # Kept free for what the service may answer one day: taking a name back from a repository
        # breaks the clones of everybody who has it.
        "admin",
        "bundles",
        "help",
        "login",
        "status",
    }
)
"""First segments of a URL that can never be a repository or namespace."""

# .hg and .git would make a clone URL look like another tool's; .lock and .manifest are names that
# files beside a repository have (`<path>.manifest` is the clone bundle manifest of `<path>`).
_REFUSED_SUFFIXES: Final = (".git", ".hg", ".lock", ".manifest")
_SEGMENT = re.compile(r"[a-z0-9][a-z0-9._-]*")
_GROUP = re.compile(r"[a-z0-9][a-z0-9._-]{0,63}")


@dataclass(frozen=True, slots=True)
class Settings:
    """What a repository, a namespace or the defaults say themselves; None is "inherited"."""

    read: Read | None = None
    push: tuple[str, ...] | None = None
    publishing: bool | None = None
    bundles: tuple[str, ...] | None = None


BUILT_IN: Final = Settings(read="public", push=(), publishing=True, bundles=BUNDLE_KINDS)
"""The last resort: readable, and nobody may push until somebody says who."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A prefix of paths, and what the repositories below it inherit."""

    path: str
    description: str = ""
    settings: Settings = Settings()


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository with every value in effect.

    `read` is "public" or the groups that may read; `push` the groups that may push (none: a
    repository that nobody may change); `bundles` the kinds of clone bundles in manifest order.
    """

    path: str
    description: str
    read: Read
    push: tuple[str, ...]
    publishing: bool
    bundles: tuple[str, ...]

    @property
    def is_public(self) -> bool:
        """Whether anybody, known or not, may read it."""
        return self.read == "public"


@dataclass(frozen=True, slots=True)
class Registry:
    """All repositories and namespaces, by path, in the order of their paths."""

    repositories: Mapping[str, Repository]
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)


def path_problem(path: str) -> str | None:
    """Say what a path of a repository or namespace should look like, or None if it is one."""
    if len(path) > MAX_PATH_LENGTH:
        return f"a path of at most {MAX_PATH_LENGTH} characters"
    segments = path.split("/")
    if not all(_SEGMENT.fullmatch(segment) for segment in segments):
        return (
            "a path like 'team/project': segments of a-z 0-9 . _ - that begin with a letter "
            "or digit, joined by single slashes"
        )
    if len(segments) > MAX_SEGMENTS:
        return f"a path of at most {MAX_SEGMENTS} segments"
    for segment in segments:
        if segment.endswith(_REFUSED_SUFFIXES):
            return f"a path whose segments do not end in {', '.join(_REFUSED_SUFFIXES)}"
    if segments[0] in RESERVED_SEGMENTS:
        return f"another first segment ('{segments[0]}' belongs to the web part)"
    return None


def group_problem(name: str) -> str | None:
    """Say what the name of a group should look like, or None if it is one."""
    if name == "public":
        return "the name of a group ('public' is not one; it is only a value of read)"
    if not _GROUP.fullmatch(name):
        return "the name of a group: a-z 0-9 . _ -, at most 64, beginning with a letter or digit"
    return None


def parents(path: str) -> list[str]:
    """The proper prefixes of a path, nearest first: a/b/c gives a/b, a."""
    segments = path.split("/")
    return ["/".join(segments[:end]) for end in range(len(segments) - 1, 0, -1)]


def build(
    repositories: Mapping[str, tuple[str, Settings]],
    namespaces: Mapping[str, Namespace],
    defaults: Settings = Settings(),
) -> Registry:
    """Work out what every repository inherits; the input is already checked.

    Each value comes from the repository, else from the longest namespace above it that has that
    value, else from the defaults, else it is built in. Clone bundles lie in a bucket that everybody
    may read, so a repository that is not public has none, whatever it would inherit.
    """
    result = {}
    for path in sorted(repositories):
        description, own = repositories[path]
        chain = [own]
        chain += [namespaces[above].settings for above in parents(path) if above in namespaces]
        chain += [defaults, BUILT_IN]
        read: Read = _first([settings.read for settings in chain])
        result[path] = Repository(
            path=path,
            description=description,
            read=read,
            push=_first(settings.push for settings in chain),
            publishing=_first(settings.publishing for settings in chain),
            bundles=_first(settings.bundles for settings in chain) if read == "public" else (),
        )
    return Registry(
        repositories=MappingProxyType(result),
        namespaces=MappingProxyType({path: namespaces[path] for path in sorted(namespaces)}),
    )


def _first(values: Iterable[_T | None]) -> _T:
    return next(value for value in values if value is not None)


def load(path: Path | str) -> Registry:
    """Read and check a registry in YAML.

    Raises RegistryError with every problem found, one a line: "file:line:column: got ..., expected
    ...". Whatever the file contains, nothing but the registry comes of it.
    """
    from hgfleet import registry_yaml  # brings PyYAML, which readers of JSON skip

    return registry_yaml.load(path)


def dump_compiled(registry: Registry) -> str:
    """Render the registry as JSON, the same text for the same registry."""
    data = {
        "format": COMPILED_FORMAT,
        "namespaces": {
            path: {"description": namespace.description}
            for path, namespace in sorted(registry.namespaces.items())
        },
        "repositories": {
            path: {
                "description": repository.description,
                "read": "public" if repository.read == "public" else list(repository.read),
                "push": list(repository.push),
                "publishing": repository.publishing,
                "bundles": list(repository.bundles),
            }
            for path, repository in sorted(registry.repositories.items())
        },
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def load_compiled(path: Path | str) -> Registry:
    """Read the JSON that `hgfleet registry apply` wrote.

    Raises RegistryError if it is missing or is not what this version writes.
    """
    try:
        with open(path, encoding="utf-8") as file:  # noqa: PTH123  (pathlib is slow to import)
            text = file.read()
    except (OSError, UnicodeDecodeError) as error:
        raise RegistryError(
            f"{path}: cannot read the compiled registry ({_reason(error)}); "
            "`hgfleet registry apply` writes it"
        ) from error
    return parse_compiled(text, str(path))


def parse_compiled(text: str, name: str = "registry.json") -> Registry:
    """Turn the text that `dump_compiled` made into the registry again."""
    try:
        data = json.loads(text)
        if data["format"] != COMPILED_FORMAT:
            raise RegistryError(
                f"{name}: got format {data['format']!r}, expected {COMPILED_FORMAT}; "
                "`hgfleet registry apply` of this release writes it anew"
            )
        return Registry(
            repositories=MappingProxyType(
                {path: _repository(path, value) for path, value in data["repositories"].items()}
            ),
            namespaces=MappingProxyType(
                {
                    path: Namespace(path, str(value["description"]))
                    for path, value in data["namespaces"].items()
                }
            ),
        )
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise RegistryError(
            f"{name}: not a compiled registry ({_reason(error)}); "
            "`hgfleet registry apply` writes it"
        ) from error


def _repository(path: str, value: dict[str, Any]) -> Repository:
    read = value["read"]
    if path_problem(path) or not isinstance(value["publishing"], bool):
        raise ValueError(f"bad entry {path!r}")
    return Repository(
        path=path,
        description=str(value["description"]),
        read="public" if read == "public" else _groups(read),
        push=_groups(value["push"]),
        publishing=value["publishing"],
        bundles=tuple(kind for kind in value["bundles"] if kind in BUNDLE_KINDS),
    )


def _groups(value: object) -> tuple[str, ...]:
    # A string here would be taken for a list of one-letter groups.
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"got {value!r} where a list of groups belongs")
    return tuple(value)


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
