"""Repositories of the primary that other hosts are compared with: `truth.py COUNT` prints JSON.

Runs on the primary as root (`playbooks/roll/check.yml`); hg runs as the owner of the repositories.
The smallest public repositories with a changeset are chosen, so that clones of them are quick.
Repositories that were pushed to in the last minute come after all others: with a push between the
two looks, a correct host differs from the primary.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

REGISTRY = Path("/var/lib/hgfleet/registry.json")
ROOT = Path("/srv/hg/repos")
HG = "/opt/hgfleet/current/bin/hg"
AS_OWNER = (
    *("/usr/sbin/runuser", "-u", "hg", "--"),
    *("/usr/bin/env", "HGRCPATH=/etc/hgfleet/hgrc", "HGPLAIN=1"),
)
PLAIN = re.compile(r"[A-Za-z0-9._/-]+")
"""Names of files that are in an address as they are."""

QUIET_SECONDS = 60.0
"""Without a push for that long, a push during the check is unlikely."""


def _hg(path: str, *arguments: str) -> bytes:
    done = subprocess.run(
        [*AS_OWNER, HG, "-R", str(ROOT / path), *arguments],
        capture_output=True,
        cwd="/",
        check=True,
    )
    return done.stdout


def _changelog(path: str) -> tuple[int, float]:
    """Return the size of the changelog, 0 without a changeset, and when it changed."""
    try:
        status = (ROOT / path / ".hg/store/00changelog.i").stat()
    except OSError:
        return 0, 0.0
    return status.st_size, status.st_mtime


def choose(changelogs: dict[str, tuple[int, float]], now: float, count: int) -> list[str]:
    """Return the repositories to compare, by the size and the last change of their changelogs."""
    ranked = [
        (now - changed < QUIET_SECONDS, size, path)
        for path, (size, changed) in changelogs.items()
        if size
    ]
    return [path for _, _, path in sorted(ranked)[:count]]


def public(registry: dict[str, Any]) -> list[str]:
    """Return the public repositories of a compiled registry."""
    default = registry.get("defaults", {}).get("read")
    entries = registry.get("repositories", {}).items()
    return [path for path, entry in entries if entry.get("read", default) == "public"]


def plain(names: list[str]) -> str:
    """Return the first name that an address has as it is, empty if there is none."""
    return next((name for name in names if PLAIN.fullmatch(name)), "")


def read(path: str) -> dict[str, object]:
    """Return the heads of a repository, and a file of its tip."""
    heads = _hg(path, "log", "-r", "head() and not secret()", "-T", "{node}\n").decode().split()
    tip = _hg(path, "log", "-r", "max(not secret())", "-T", "{node}").decode()
    names = _hg(path, "files", "-r", tip, "-T", "{path}\n").decode("utf-8", "replace").splitlines()
    file = plain(names)
    content = _hg(path, "cat", "-r", tip, f"path:{file}") if file else b""
    return {
        "path": path,
        "heads": sorted(heads),
        "tip": tip,
        "file": file,
        "sha256": hashlib.sha256(content).hexdigest(),
    }


if __name__ == "__main__":
    known = public(json.loads(REGISTRY.read_bytes())) if REGISTRY.is_file() else []
    chosen = choose({path: _changelog(path) for path in known}, time.time(), int(sys.argv[1]))
    print(json.dumps([read(path) for path in chosen]))
