"""The filter that finds misspelt variables of an inventory.

Ansible takes any variable, so that a misspelt name would leave a default in force, unnoticed.
"""

from __future__ import annotations

import difflib
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable

ROLES: Final = Path(__file__).resolve().parents[2] / "roles"

_LOADER: Final = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml is faster

SIMILAR: Final = 0.9
"""The least similarity (`difflib`) to a variable of a role at which a name counts as misspelt.

Any other name is the site's own; a name that is a letter off is not.
"""


def misspelt(names: Iterable[str], known: Collection[str]) -> list[str]:
    """Return a sentence for each name that was meant to be a known variable.

    These are the names with the prefix of a role (`web_`), and the names that differ from a
    variable by a letter or two (`wbe_title`). Names with `__` in front are results of earlier
    tasks.
    """
    prefixes = {name.partition("_")[0] for name in known}
    sentences = []
    for name in sorted(set(names) - set(known)):
        if name.startswith("__"):
            continue
        prefix, underscore, _ = name.partition("_")
        is_of_a_role = bool(underscore) and prefix in prefixes
        near = difflib.get_close_matches(name, known, 1, 0.6 if is_of_a_role else SIMILAR)
        if near:
            sentences.append(f"No role knows {name}; {near[0]} is one.")
        elif is_of_a_role:
            sentences.append(f"No role knows {name}; ansible/roles/{prefix}/README.md lists all.")
    return sentences


def _argument_specs(path: Path) -> dict[str, Any]:
    loaded = yaml.load(path.read_text("utf-8"), Loader=_LOADER)  # noqa: S506  (a SafeLoader)
    return dict(loaded["argument_specs"])


@cache
def known_variables(roles: Path) -> frozenset[str]:
    """Return the variables of all roles in a folder."""
    return frozenset(
        option
        for path in roles.glob("*/meta/argument_specs.yml")
        for entry in _argument_specs(path).values()
        for option in entry.get("options", ())
    )


def misspelt_variables(names: Iterable[str]) -> list[str]:
    """Return a sentence for each misspelt name among the variables of a host."""
    return misspelt(names, known_variables(ROLES))


class FilterModule:
    """What Ansible looks for."""

    def filters(self) -> dict[str, Callable[..., list[str]]]:
        """Return the filters by name."""
        return {"misspelt_variables": misspelt_variables}
