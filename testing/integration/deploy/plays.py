"""Playbooks on hosts that are this machine, without a network, and on hosts that are away."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

ROOT: Final = Path(__file__).resolve().parents[3]

HERE: Final[Mapping[str, object]] = {
    "ansible_connection": "local",
    "ansible_python_interpreter": sys.executable,
}
AWAY: Final[Mapping[str, object]] = {"ansible_host": "127.0.0.1", "ansible_port": 1}
"""Nothing listens there."""


def inventory(folder: Path, groups: Mapping[str, Sequence[str]], away: Sequence[str] = ()) -> Path:
    """Write an inventory; hosts in `away` do not answer."""
    names = dict.fromkeys(name for members in groups.values() for name in members)
    hosts = {name: dict(AWAY if name in away else HERE) for name in names}
    children = {group: {"hosts": dict.fromkeys(members)} for group, members in groups.items()}
    file = folder / "hosts.json"
    file.write_text(json.dumps({"all": {"hosts": hosts, "children": children}}))
    return file


def play(
    inventory: Path, book: str, variables: Mapping[str, Any], *options: str
) -> tuple[int, str]:
    """Run a playbook of the project; return its exit code and its output as a single line."""
    ansible = Path(sys.executable).with_name("ansible-playbook")
    # As the user of the tests.
    given = {"ansible_become": False, "ssh_admin_former_port": 2, **variables}
    words = [str(ansible), "-i", str(inventory), f"ansible/playbooks/{book}", *options]
    env = {name: text for name, text in os.environ.items() if not name.startswith("ANSIBLE_")}
    done = subprocess.run(
        [*words, "-e", json.dumps(given)],
        cwd=ROOT,
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())
