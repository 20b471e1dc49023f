"""The files of this checkout: all, the changed, and the roles that scenarios carry."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path

from controller import bootstrap
from controller.bootstrap import ROOT

MAIN = "main"
NOT_OURS = {".git", ".venv", ".cluster", ".cache"}


def _git(*arguments: str) -> str | None:
    """Return the output of git, or None where it fails or there is no git."""
    try:
        done = subprocess.run(
            ["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=False
        )
    except OSError:
        return None
    return done.stdout if done.returncode == 0 else None


def files() -> list[str]:
    """Return every file of the repository that git has or would take."""
    listed = _git("ls-files", "-z", "--cached", "--others", "--exclude-standard")
    if listed is not None:
        return sorted({name for name in listed.split("\0") if (ROOT / name).is_file()})
    # An unpacked archive, without git.
    paths = []
    for place, folders, names in os.walk(ROOT):
        folders[:] = [name for name in folders if name not in NOT_OURS]
        paths += [str((Path(place) / name).relative_to(ROOT)) for name in names]
    return sorted(paths)


def base_of_change(revision: str) -> tuple[str, str]:
    """Return the commit that a change is compared with, and how a person reads that.

    `revision`, if given. Else the last commit shared with main, so that all of a branch counts. On
    main itself HEAD, so that uncommitted files count, or its parent if there are none.
    """
    if revision:
        commit = _git("rev-parse", "--verify", "--quiet", f"{revision}^{{commit}}")
        if commit is None:
            bootstrap.fail(
                f"git knows no revision '{revision}'.",
                "Name a commit, a branch or a tag; tiers go before --changed.",
            )
        return commit.strip(), f"since {revision}"
    head = _git("rev-parse", "--verify", "--quiet", "HEAD")
    if head is None:
        bootstrap.fail("--changed needs a git checkout with a commit.", "Run ./run-tests as it is.")
    for main in (MAIN, f"origin/{MAIN}"):
        shared = _git("merge-base", main, "HEAD")
        if shared is not None and shared != head:
            return shared.strip(), f"not on {main}"
        if shared is not None and _git("status", "--porcelain"):
            return head.strip(), f"not committed, on {main}"
    return f"{head.strip()}~1", "the last commit"


def changed_since(commit: str) -> list[str]:
    """Return the files that differ from `commit`, also removed and untracked files."""
    differ = _git("diff", "--name-only", "--no-renames", "-z", commit, "--")
    untracked = _git("ls-files", "-z", "--others", "--exclude-standard")
    if differ is None or untracked is None:
        bootstrap.fail(f"git cannot compare this checkout with {commit}.", "Name a revision.")
    return sorted({name for name in (differ + untracked).split("\0") if name})


def sources(names: list[str]) -> dict[str, str]:
    """Return the text of every file that can refer to others: of all but pictures."""
    return {
        name: (ROOT / name).read_text("utf-8", "replace")
        for name in names
        if not name.endswith(".png")
    }


def scenarios() -> list[str]:
    """Return the roles that have a scenario."""
    return sorted(path.parents[1].name for path in ROOT.glob("ansible/roles/*/molecule/default"))


def hosts_of(scenario: str) -> list[str]:
    """Return the hosts of a scenario's inventory."""
    return sorted(set(re.findall(r"^ +(role-[\w-]+):", _inventory(scenario), re.MULTILINE)))


def carried_roles() -> dict[str, frozenset[str]]:
    """Return per scenario the roles that its hosts carry: the groups of its inventory."""
    names = scenarios()
    result = {}
    for role in names:
        groups = set(re.findall(r"^ +(\w+):$", _inventory(role), re.MULTILINE))
        result[role] = frozenset({role, "base", *(groups & set(names))})
    return result


def _inventory(scenario: str) -> str:
    inventory = ROOT / f"testing/roles/inventory/{scenario}.yml"
    return inventory.read_text("utf-8") if inventory.exists() else ""
