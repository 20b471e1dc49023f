"""Which releases the role release removes from a host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from ansible.parsing.dataloader import DataLoader
from ansible.template import Templar, trust_as_template

ROOT = Path(__file__).resolve().parents[3]
VARIABLES = ROOT / "ansible/roles/release/vars/main.yml"
PRUNE = ROOT / "ansible/roles/release/tasks/prune.yml"


def superseded(
    releases: list[str], current: str, wanted: str, kept: int = 3, used: tuple[str, ...] = ()
) -> list[str]:
    """Evaluate the loop of the role's task; `releases` are on the host, the newest first.

    Processes run from the releases that are `used`.
    """
    declared: dict[str, Any] = yaml.safe_load(VARIABLES.read_text("utf-8"))
    variables: dict[str, Any] = {
        name: trust_as_template(text) for name, text in declared.items() if isinstance(text, str)
    }
    variables |= {
        "release_version": wanted,
        "release_kept": kept,
        "__release_found": {
            "files": [
                {"path": f"/opt/hgfleet/releases/{name}", "ctime": -number}
                for number, name in enumerate(releases)
            ]
        },
        "__release_used": {"stdout_lines": [f"/opt/hgfleet/releases/{name}" for name in used]},
        "__release_current": {"stat": {"lnk_target": f"releases/{current}"} if current else {}},
    }
    templar = Templar(DataLoader(), variables)
    loop = next(task["loop"] for task in yaml.safe_load(PRUNE.read_text("utf-8")) if "loop" in task)
    paths = templar.template(trust_as_template(loop))
    return [Path(path).name for path in paths]


@pytest.mark.parametrize(
    ("releases", "current", "wanted", "removed"),
    [
        ([], "", "a", []),
        (["c", "b", "a"], "c", "d", ["a"]),
        (["d", "c", "b", "a"], "d", "d", ["a"]),
        (["c", "b", "a"], "c", "c", []),
        # A rollback made the oldest release current; it is the way back of the next deploy.
        (["c", "b", "a"], "a", "d", ["b"]),
        (["c", "b", "a"], "c", "a", []),
    ],
)
def test_the_current_release_and_the_one_before_stay(
    releases: list[str], current: str, wanted: str, removed: list[str]
) -> None:
    assert superseded(releases, current, wanted) == removed


def test_with_two_to_keep_only_the_way_back_stays_beside_the_current_one() -> None:
    assert superseded(["c", "b", "a"], "a", "d", kept=2) == ["c", "b"]


def test_a_release_that_a_process_runs_from_stays() -> None:
    """A push that began before a deploy ends with the release that it began with."""
    releases = ["e", "d", "c", "b", "a"]
    assert superseded(releases, "e", "f") == ["c", "b", "a"]
    assert superseded(releases, "e", "f", used=("e", "b")) == ["c", "a"]
