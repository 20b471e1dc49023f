"""The tier `goldens`: steps that compare or update goldens, and the preflight of the examples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from controller.bootstrap import ROOT, VENV
from controller.tests.execution import Step

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

EXAMPLES: Final = ("production-large.example", "production-small.example")
INVENTORIES: Final = (*EXAMPLES, "cluster")
"""Inventories with goldens."""

DECIDED_BY: Final = (
    "ansible/roles/",
    "ansible/inventories/",
    "ansible/playbooks/",
    "ansible/plugins/",
    "ansible/site.yml",
    "ansible.cfg",
    "requirements.",
    "testing/goldens/",
    "controller/checks/goldens/",
)
"""Prefixes of the files that decide the content of a golden."""


def affected(changed: Collection[str]) -> tuple[str, ...]:
    """Return the inventories whose goldens a change of files can change."""
    return INVENTORIES if any(name.startswith(DECIDED_BY) for name in changed) else ()


def steps(words: str, only: Sequence[str] | None = None, *, update: bool = False) -> list[Step]:
    """Return the step that compares or updates, and without `update` the preflights."""
    options = ["--update"] if update else []
    command = [str(VENV / "bin/python"), "-m", "controller.checks.goldens", *options]
    pages = Step("goldens", "pages", command)
    every = [pages] if update else [pages, *map(_preflight, EXAMPLES)]
    return [] if only == () else [step for step in every if words in step.name]


def _preflight(name: str) -> Step:
    """Return the step that checks the variables of an example, which has no host to connect to."""
    return Step(
        "goldens",
        f"preflight {name}",
        [
            str(VENV / "bin/ansible-playbook"),
            *(
                "-i",
                f"ansible/inventories/{name}/hosts.yml",
                "ansible/playbooks/internal/preflight.yml",
            ),
            *("-e", "@testing/goldens/secrets.yml", "-e", "ansible_connection=local"),
        ],
        env=_release(),
    )


def _release() -> Mapping[str, str]:
    """Return a release that needs no build: the preflight reads none of its files."""
    return {
        "ANSIBLE_CONFIG": str(ROOT / "ansible.cfg"),
        "HGFLEET_RELEASE_VERSION": "0.0.0-000000000000",
        "HGFLEET_RELEASE_ARCHIVE": str(ROOT / "ansible.cfg"),
        "HGFLEET_VERSITYGW": str(ROOT / "ansible.cfg"),
    }
