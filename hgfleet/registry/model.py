"""The registry: every repository and namespace, and what each person may do there.

A person writes it as YAML (`registry.yml` in the inventory, read by `load`); hosts read it as
compiled JSON (`registry.json`, read by `load_compiled`), where every value is already inherited.
This module is imported by each SSH session, so it imports nothing that is slow to import.

People create repositories of their own in the namespaces that are open to them. Those are not in
the inventory; what they inherit is worked out on the host, with `effective`, by the same rules.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from hgfleet.core.errors import RegistryError
from hgfleet.core.names import parents, path_problem
from hgfleet.policies.rule import Rule

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path

__all__ = [
    "BUNDLE_KINDS",
    "Namespace",
    "Policies",
    "Registry",
    "Repository",
    "Settings",
    "build",
    "dump_compiled",
    "effective",
    "load",
    "load_compiled",
    "parse_compiled",
]

Read = Literal["public"] | tuple[str, ...]
Policies = Mapping[str, Mapping[str, Any]]
"""The name of each hook policy with its options, as JSON has them; see `hgfleet.policies`."""
_T = TypeVar("_T")

COMPILED_FORMAT: Final = 2
"""Raised when an older reader would misunderstand `registry.json`."""

BUNDLE_KINDS: Final = ("stream", "zstd", "gzip")
"""Kinds of clone bundles, in the order a manifest has them unless the registry says otherwise."""

QUOTA: Final = 20
"""Repositories that one person may own below a namespace, unless the namespace says otherwise."""


@dataclass(frozen=True, slots=True)
class Settings:
    """What a repository, a namespace or the defaults say themselves; None is "inherited".

    `policies` has the options of each policy, or None for one that is switched off here. `rules`
    and `read_only` say nothing unless they say something: both only ever add to what is above.
    """

    read: Read | None = None
    push: tuple[str, ...] | None = None
    publishing: bool | None = None
    bundles: tuple[str, ...] | None = None
    policies: Mapping[str, Mapping[str, Any] | None] | None = None
    rules: tuple[Rule, ...] = ()
    read_only: str | None = None


BUILT_IN: Final = Settings(read="public", push=(), publishing=True, bundles=BUNDLE_KINDS)
"""The last resort: readable, and nobody may push until somebody says who."""


@dataclass(frozen=True, slots=True)
class Namespace:
    """A prefix of paths, and what the repositories below it inherit."""

    path: str
    description: str = ""
    settings: Settings = Settings()
    create: tuple[str, ...] = ()
    """Groups whose members may create repositories below it, over SSH."""
    personal: bool = False
    """Whether those have to be at NAMESPACE/PERSON/NAME."""
    quota: int = QUOTA
    """How many of them one person may own."""


@dataclass(frozen=True, slots=True)
class Repository:
    """One repository with every value in effect.

    `read` is "public" or the groups that may read (none: its owner alone); `push` the groups that
    may push (none: a repository that nobody but an owner may change); `bundles` the kinds of clone
    bundles in manifest order; `read_only` the reason why nobody may push at the moment; `owner` the
    person who created it, None for one of the inventory.
    """

    path: str
    description: str
    read: Read
    push: tuple[str, ...]
    publishing: bool
    bundles: tuple[str, ...]
    policies: Policies = field(default_factory=dict, hash=False)
    rules: tuple[Rule, ...] = ()
    read_only: str | None = None
    owner: str | None = None

    @property
    def is_public(self) -> bool:
        """Whether anybody, known or not, may read it."""
        return self.read == "public"


@dataclass(frozen=True, slots=True)
class Registry:
    """All repositories and namespaces, by path, in the order of their paths."""

    repositories: Mapping[str, Repository]
    namespaces: Mapping[str, Namespace] = field(default_factory=dict)
    defaults: Settings = Settings()
    read_only: str | None = None
    """Why nobody may push anywhere at the moment."""


def build(
    repositories: Mapping[str, tuple[str, Settings]],
    namespaces: Mapping[str, Namespace],
    defaults: Settings = Settings(),
    read_only: str | None = None,
) -> Registry:
    """Work out what every repository inherits; the input is already checked."""
    above = Registry(
        repositories={},
        namespaces=MappingProxyType({path: namespaces[path] for path in sorted(namespaces)}),
        defaults=defaults,
        read_only=read_only,
    )
    result = {}
    for path in sorted(repositories):
        description, own = repositories[path]
        result[path] = effective(path, own, above, description=description)
    return Registry(
        MappingProxyType(result), above.namespaces, above.defaults, read_only=above.read_only
    )


def effective(
    path: str,
    own: Settings,
    registry: Registry,
    *,
    description: str = "",
    owner: str | None = None,
) -> Repository:
    """Work out what one repository inherits from the namespaces and defaults of the registry.

    Most values come from the repository, else from the longest namespace above it that has that
    value, else from the defaults, else they are built in; of policies each one by itself. What
    protects a repository from everybody below its namespace adds up instead: all rules hold, and of
    several reasons to be read-only the outermost is the one to name.

    Where the clone bundles lie depends on who may read it, and is for the bundle jobs to decide: a
    site without a private store has none of repositories that are not public.
    """
    chain = [own]
    chain += [
        registry.namespaces[above].settings
        for above in parents(path)
        if above in registry.namespaces
    ]
    chain += [registry.defaults, BUILT_IN]
    read: Read = _first([settings.read for settings in chain])
    outermost_first = chain[::-1]
    reasons = [registry.read_only, *(settings.read_only for settings in outermost_first)]
    return Repository(
        path=path,
        description=description,
        read=read,
        push=_first(settings.push for settings in chain),
        publishing=_first(settings.publishing for settings in chain),
        bundles=_first(settings.bundles for settings in chain),
        policies=_policies(outermost_first),
        rules=tuple(rule for settings in outermost_first for rule in settings.rules),
        read_only=next((reason for reason in reasons if reason), None),
        owner=owner,
    )


def _policies(outermost_first: Sequence[Settings]) -> Policies:
    merged: dict[str, Mapping[str, Any] | None] = {}
    for settings in outermost_first:
        merged.update(settings.policies or {})
    return {name: options for name, options in sorted(merged.items()) if options is not None}


def _first(values: Iterable[_T | None]) -> _T:
    return next(value for value in values if value is not None)


def load(path: Path | str) -> Registry:
    """Read and check a registry in YAML.

    Raises RegistryError with every problem found, one a line: "file:line:column: got ..., expected
    ...". Whatever the file contains, nothing but the registry comes of it.
    """
    from hgfleet.registry import schema  # brings PyYAML, which readers of JSON skip

    return schema.load(path)


def dump_compiled(registry: Registry) -> str:
    """Render the registry as JSON, the same text for the same registry.

    What nothing says is left out: most repositories have no policies, and every session reads this.
    """
    data = {
        "format": COMPILED_FORMAT,
        "read_only": registry.read_only,
        "defaults": _settings_json(registry.defaults),
        "namespaces": {
            path: {
                "description": namespace.description,
                "settings": _settings_json(namespace.settings),
                "create": list(namespace.create),
                "personal": namespace.personal,
                "quota": namespace.quota,
            }
            for path, namespace in sorted(registry.namespaces.items())
        },
        "repositories": {
            path: _repository_json(repository)
            for path, repository in sorted(registry.repositories.items())
        },
    }
    return json.dumps(data, indent=1, ensure_ascii=False) + "\n"


def _settings_json(settings: Settings) -> dict[str, Any]:
    data = {
        "read": settings.read,
        "push": settings.push,
        "publishing": settings.publishing,
        "bundles": settings.bundles,
        "policies": settings.policies,
        "rules": [rule.to_json() for rule in settings.rules] or None,
        "read_only": settings.read_only,
    }
    return {name: value for name, value in data.items() if value is not None}


def _repository_json(repository: Repository) -> dict[str, Any]:
    data = {
        "description": repository.description,
        "read": repository.read,
        "push": repository.push,
        "publishing": repository.publishing,
        "bundles": repository.bundles,
        "policies": dict(repository.policies) or None,
        "rules": [rule.to_json() for rule in repository.rules] or None,
        "read_only": repository.read_only,
        "owner": repository.owner,
    }
    return {name: value for name, value in data.items() if value is not None}


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
            repositories=_Compiled(_mapping(data["repositories"]), name),
            namespaces=MappingProxyType(
                {path: _namespace(path, value) for path, value in data["namespaces"].items()}
            ),
            defaults=_settings(data["defaults"]),
            read_only=_reason_or_none(data["read_only"]),
        )
    except _DAMAGE as error:
        raise _damaged(name, error) from error


class _Compiled(Mapping[str, Repository]):
    """The repositories of a compiled registry, each made into one when it is first asked for.

    A session needs a single one of thousands: with 2,000 repositories, making all of them takes
    30 ms, reading the JSON 5 ms.
    """

    __slots__ = ("_data", "_made", "_name")

    def __init__(self, data: Mapping[str, Any], name: str) -> None:
        self._data = data
        self._name = name
        self._made: dict[str, Repository] = {}

    def __getitem__(self, path: str) -> Repository:
        try:
            return self._made[path]
        except KeyError:
            value = self._data[path]
        try:
            made = self._made[path] = _repository(path, value)
        except _DAMAGE as error:
            raise _damaged(self._name, error) from error
        return made

    def __contains__(self, path: object) -> bool:
        return path in self._data

    def __iter__(self) -> Iterator[str]:
        return iter(self._data)

    def __len__(self) -> int:
        return len(self._data)


_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


def _damaged(name: str, error: Exception) -> RegistryError:
    return RegistryError(
        f"{name}: not a compiled registry ({_reason(error)}); `hgfleet registry apply` writes it"
    )


def _repository(path: str, value: dict[str, Any]) -> Repository:
    if path_problem(path) or not isinstance(value["publishing"], bool):
        raise ValueError(f"bad entry {path!r}")
    return Repository(
        path=path,
        description=str(value["description"]),
        read=_read(value["read"]),
        push=_names(value["push"]),
        publishing=value["publishing"],
        bundles=tuple(kind for kind in value["bundles"] if kind in BUNDLE_KINDS),
        policies=_mapping(value.get("policies", {})),
        rules=tuple(Rule.from_json(rule) for rule in value.get("rules", ())),
        read_only=_reason_or_none(value.get("read_only")),
        owner=_reason_or_none(value.get("owner")),
    )


def _namespace(path: str, value: dict[str, Any]) -> Namespace:
    if not isinstance(value["personal"], bool) or not isinstance(value["quota"], int):
        raise TypeError(f"bad namespace {path!r}")
    return Namespace(
        path,
        str(value["description"]),
        _settings(value["settings"]),
        create=_names(value["create"]),
        personal=value["personal"],
        quota=value["quota"],
    )


def _settings(value: dict[str, Any]) -> Settings:
    bundles = value.get("bundles")
    return Settings(
        read=_read(value["read"]) if "read" in value else None,
        push=_names(value["push"]) if "push" in value else None,
        publishing=value.get("publishing"),
        bundles=None if bundles is None else tuple(k for k in bundles if k in BUNDLE_KINDS),
        policies=_mapping(value["policies"]) if "policies" in value else None,
        rules=tuple(Rule.from_json(rule) for rule in value.get("rules", ())),
        read_only=_reason_or_none(value.get("read_only")),
    )


def _read(value: object) -> Read:
    return "public" if value == "public" else _names(value)


def _names(value: object) -> tuple[str, ...]:
    # A string here would be taken for a list of one-letter names.
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"got {value!r} where a list of names belongs")
    return tuple(value)


def _mapping(value: object) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise TypeError(f"got {value!r} where a mapping belongs")
    return value


def _reason_or_none(value: object) -> str | None:
    if value is not None and not isinstance(value, str):
        raise TypeError(f"got {value!r} where text belongs")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
