"""Variables and rules of a role, for tests that evaluate them with Ansible's templar."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml
from ansible.template import trust_as_template

if TYPE_CHECKING:
    from ansible.template import Templar

ROLES: Final = Path(__file__).resolve().parents[3] / "ansible/roles"


def _trusted(value: Any) -> Any:
    if isinstance(value, list):
        return [_trusted(item) for item in value]
    return trust_as_template(value) if isinstance(value, str) else value


def of_role(role: str) -> dict[str, Any]:
    """Return defaults and vars of a role, whose strings are templates.

    Values of an inventory are data: a test wants to see a template in them refused.
    """
    variables: dict[str, Any] = {}
    for name in ("defaults", "vars"):
        variables |= yaml.safe_load((ROLES / role / name / "main.yml").read_text("utf-8"))
    return {key: _trusted(value) for key, value in variables.items()}


def value(templar: Templar, name: str) -> Any:
    """Return the value of a variable."""
    return templar.template(trust_as_template("{{ " + name + " }}"))


def refused(templar: Templar, role: str, about: str = "", rules: str = "rules") -> str:
    """Return the sentences of the preflight's rules that do not hold; `about` narrows the rules."""
    (task,) = yaml.safe_load((ROLES / role / "tasks/preflight.yml").read_text("utf-8"))
    return " ".join(
        str(templar.template(trust_as_template(rule["otherwise"])))
        for rule in task["vars"][f"__{role}_{rules}"]
        if about in rule["otherwise"] and not templar.template(trust_as_template(rule["right"]))
    )
