"""Rule: groups that may push to some branches, paths or tags. Imported by every SSH session."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Rule:
    """Groups that may push changesets on some branches, touching some paths, or both; or some tags.

    `branches`, `paths` and `tags` are globs. A rule of tags has neither branches nor paths. In
    other rules, an empty list of branches or paths stands for all of them.
    """

    push: tuple[str, ...]
    branches: tuple[str, ...] = ()
    paths: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()

    def to_json(self) -> dict[str, list[str]]:
        """Return the rule for JSON, without empty globs."""
        globs = {"branches": self.branches, "paths": self.paths, "tags": self.tags}
        said = {**globs, "push": self.push}
        return {name: list(value) for name, value in said.items() if value or name == "push"}

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> Rule:
        """Read `to_json`; raises TypeError or KeyError for anything else."""
        return cls(
            push=_texts(value["push"]),
            branches=_texts(value.get("branches", [])),
            paths=_texts(value.get("paths", [])),
            tags=_texts(value.get("tags", [])),
        )


def _texts(value: object) -> tuple[str, ...]:
    # Here, a string would be taken for a list of one-letter names.
    if not isinstance(value, list) or not all(isinstance(name, str) for name in value):
        raise TypeError(f"got {value!r}, expected a list of names")
    return tuple(value)
