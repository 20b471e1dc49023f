"""Checks that every lock fits its requirements, without a network.

    python -m controller.checks.locks

| lock | locks |
| --- | --- |
| requirements.txt | requirements.in, the controller's tools |
| docker/release/requirements.txt | `dependencies` of pyproject.toml, a host's release |

Every requirement must be locked to a version that it allows, every locked package must have a hash
and be required by a package, and a package in both locks must have the same version: tests run with
the controller's, hosts with the release's.
"""

from __future__ import annotations

import re
import sys
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ROOT = Path(__file__).resolve().parents[2]

HASH = re.compile(r"--hash=sha256:[0-9a-f]{64}(?:\s|$)")


def requirements(text: str) -> list[Requirement]:
    """Read the lines of a requirements.in."""
    lines = (line.split(" #")[0].strip() for line in text.splitlines())
    return [Requirement(line) for line in lines if line and not line.startswith(("#", "-"))]


def locked(text: str) -> tuple[dict[str, str], list[str]]:
    """Read a lock: name to version, and the mistakes of the lock as such."""
    versions: dict[str, str] = {}
    problems = []
    for entry in re.split(r"\n(?=\S)", text.replace("\\\n", " ")):
        line = entry.split("\n")[0].split(" #")[0].strip()
        if not line or line.startswith("#"):
            continue
        if line.startswith("-"):
            problems.append(f"'{line[:60]}' is an option; a lock has none (no index, no links)")
            continue
        try:
            requirement = Requirement(line.split(" --hash")[0].strip())
        except InvalidRequirement:
            problems.append(f"'{line[:60]}' is no requirement")
            continue
        exact = [item.version for item in requirement.specifier if item.operator == "=="]
        if len(exact) != 1 or len(requirement.specifier) != 1 or "*" in exact[0]:
            problems.append(f"{requirement.name} is not locked to a single version")
            continue
        if not HASH.search(line):
            problems.append(f"{requirement.name} has no hash")
        versions[canonicalize_name(requirement.name)] = exact[0]
    return versions, problems


def unmet(wanted: Iterable[Requirement], versions: dict[str, str]) -> list[str]:
    """Say which requirements the lock does not meet."""
    result = []
    for requirement in wanted:
        version = versions.get(canonicalize_name(requirement.name))
        if version is None:
            result.append(f"{requirement.name} is required and not locked")
        elif not requirement.specifier.contains(Version(version), prereleases=True):
            result.append(f"{requirement} is required, {version} is locked")
    return result


def check(top: Path) -> list[str]:
    """Check both locks of a repository; returns a line per problem."""
    inputs = {
        "requirements.txt": requirements((top / "requirements.in").read_text("utf-8")),
        "docker/release/requirements.txt": [
            Requirement(line)
            for line in tomllib.loads((top / "pyproject.toml").read_text("utf-8"))["project"][
                "dependencies"
            ]
        ],
    }
    result = []
    locks = []
    for name, wanted in inputs.items():
        versions, problems = locked((top / name).read_text("utf-8"))
        locks.append(versions)
        result += [f"{name}: {text}" for text in problems + unmet(wanted, versions)]
        if not wanted:
            result.append(f"{name}: nothing is required, so nothing was checked")
    controller, release = locks
    result += [
        f"{name} is {controller[name]} in requirements.txt and {release[name]} in "
        "docker/release/requirements.txt; lock the same version in both"
        for name in sorted(set(controller) & set(release))
        if controller[name] != release[name]
    ]
    return result


def main(arguments: Sequence[str] | None = None) -> int:
    """Print every problem; the exit code is 1 if there is any."""
    words = sys.argv[1:] if arguments is None else list(arguments)
    if words:
        print(__doc__)
        return 0
    lines = check(ROOT)
    for line in lines:
        print(line, file=sys.stderr)
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
