"""Compiled registry: `registry.json`, which `hgfleet registry apply` writes and every host reads.

Each SSH session imports this module, so it imports nothing slow.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from hgfleet.core.errors import RegistryError
from hgfleet.core.names import path_problem
from hgfleet.policies.rule import Rule
from hgfleet.registry.model.registry import BUNDLE_KINDS, Namespace, Registry, Repository, Settings

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from hgfleet.registry.model.registry import AcceptDates, Read

COMPILED_FORMAT: Final = 2
"""Raised when an older reader would misunderstand `registry.json`."""


def dump_compiled(registry: Registry) -> str:
    """Render the registry as JSON, the same text for the same registry.

    Unset values are left out: most repositories have no policies, and every session reads this.
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
        "bundles_from": settings.bundles_from,
        "accept_dates": settings.accept_dates,
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
        "bundles_from": repository.bundles_from or None,
        "accept_dates": None if repository.accept_dates == "valid" else repository.accept_dates,
    }
    return {name: value for name, value in data.items() if value is not None}


def load_compiled(path: Path | str) -> Registry:
    """Read the JSON that `hgfleet registry apply` wrote.

    Raises RegistryError if the file is missing or is not of the format of this version.
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
    """Parse the text that `dump_compiled` renders."""
    try:
        data = json.loads(text)
        if data["format"] != COMPILED_FORMAT:
            raise RegistryError(
                f"{name}: got format {data['format']!r}, expected {COMPILED_FORMAT}; "
                "`hgfleet registry apply` of this release writes it again"
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
    """The repositories of a compiled registry, each made on first use.

    A session needs only one of thousands: with 2,000 repositories, making all of them takes
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
        bundles_from=_bytes_or_none(value.get("bundles_from")) or 0,
        accept_dates=_dates(value.get("accept_dates", "valid")),
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
        bundles_from=_bytes_or_none(value.get("bundles_from")),
        accept_dates=_dates(value["accept_dates"]) if "accept_dates" in value else None,
    )


def _dates(value: object) -> AcceptDates:
    # A later release may have other values beyond "any", which admit nothing here.
    return "any" if value == "any" else "valid"


def _read(value: object) -> Read:
    return "public" if value == "public" else _names(value)


def _names(value: object) -> tuple[str, ...]:
    # Here, a string would be taken for a list of one-letter names.
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


def _bytes_or_none(value: object) -> int | None:
    if value is not None and (not isinstance(value, int) or value < 0):
        raise TypeError(f"got {value!r} where a number of bytes belongs")
    return value


def _reason(error: Exception) -> str:
    if isinstance(error, OSError) and error.strerror:
        return error.strerror
    return f"{type(error).__name__}: {error}"
