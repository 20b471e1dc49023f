"""Cost of a repository's policies for a push.

    python -m testing.bench.policies [--files N] [--rounds N]

A repository of N files (default 20,000) gets pushes of 1 and of 1,000 changesets with three files
each, over `hg serve --stdio`, without any policy and with all of them and two rules. It prints the
best of the rounds: seconds of the whole push, and seconds inside the policies, from the log.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).resolve().parents[2]
HG: Final = str(Path(sys.executable).with_name("hg"))

POLICIES: Final = {
    "single-head": {},
    "no-merges": {"branches": ["stable"]},
    "commit-message": {"pattern": "^Bug [0-9]+: "},
    "author": {"pattern": "^[^<>]+ <[^<>@ ]+@[^<>@ ]+>$"},
    "file-size": {"max": 1_000_000},
    "paths": {"max-length": 200, "forbidden": ["*.exe", "node_modules", "docs/**/*.pdf"]},
    "no-case-collisions": {},
    "no-symlinks": {},
    "no-subrepositories": {},
    "closed-tree": {"reason": "never", "branches": ["closed"]},
}
RULES: Final = [
    {"branches": ["stable"], "push": ["release"]},
    {"paths": ["settings"], "push": ["release"]},
]

# Makes changesets without a working copy: a changeset of FIRST files, then COUNT changesets.
MAKE: Final = """
import sys
from mercurial import context, hg, ui
from mercurial.node import nullid
repo = hg.repository(ui.ui.load(), sys.argv[1].encode())
first, count, start = map(int, sys.argv[2:])
def commit(paths, number):
    def content(repo, memctx, path):
        return context.memfilectx(repo, memctx, path, b'%d %s' % (number, path) * 20)
    parents = (repo[b'tip'].node(), nullid)
    user = b'Alice <alice@example.org>'
    text = b'Bug %d: change some files' % number
    made = context.memctx(repo, parents, text, paths, content, user=user, date=(0, 0))
    repo.commitctx(made)
def name(n):
    return b'directory-%03d/part-%d/file-%06d.txt' % (n % 200, n % 7, n)
with repo.lock(), repo.transaction(b'bench'):
    if first:
        commit([name(n) for n in range(first)], 0)
    for number in range(count):
        n = start + number * 3
        commit([name(n % 19999), name((n + 7919) % 19999), b'new/file-%06d' % n], n + 1)
"""


def environment(folder: Path, hgrc: str) -> dict[str, str]:
    """Return the environment of hg on either side."""
    return {
        "PATH": os.environ["PATH"],
        "HGRCPATH": str(folder / hgrc),
        "HGPLAIN": "1",
        "PYTHONPATH": str(ROOT),
        "HGFLEET_USER": "alice",
        "HGFLEET_GROUPS": "staff",
    }


def make(folder: Path, repository: str, first: int, count: int, start: int) -> None:
    """Add changesets to a repository."""
    subprocess.run(
        [sys.executable, "-c", MAKE, str(folder / repository), str(first), str(count), str(start)],
        env=environment(folder, "client.rc"),
        check=True,
    )


def register(folder: Path, *, guarded: bool) -> None:
    """Write the generated hgrc of the server's repository."""
    lines = ["[hgfleet]", "path = bench", "read = public", "push = staff"]
    if guarded:
        lines += [f"policies = {json.dumps(POLICIES)}", f"rules = {json.dumps(RULES)}"]
    (folder / "server/.hg/hgrc").write_text("\n".join(lines) + "\n")


def push(folder: Path) -> tuple[float, float, str]:
    """Push everything; return the seconds, the policies' seconds, and the policies in the log."""
    log = folder / "server/.hg/blackbox.log"
    log.unlink(missing_ok=True)
    start = time.perf_counter()
    subprocess.run(
        [HG, "-R", str(folder / "client"), "push", "-q", "ssh://host/server"],
        env=environment(folder, "client.rc"),
        check=True,
    )
    seconds = time.perf_counter() - start
    text = log.read_text() if log.exists() else ""
    match = re.search(r" policies=(\S+).* seconds=([0-9.]+)", text)
    return (seconds, float(match[2]), match[1]) if match else (seconds, 0.0, "")


def main() -> None:
    """Measure, and print a table."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--files", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="policies-") as name:
        folder = Path(name)
        (folder / "client.rc").write_text(f"[ui]\nssh = {folder}/session\n")
        (folder / "server.rc").write_text(
            "[extensions]\nblackbox =\n"
            f"access = {ROOT}/hgext/access.py\n"
            f"policies = {ROOT}/hgext/policies.py\n"
            "[blackbox]\ntrack = hgfleet_policy\n[server]\nvalidate = true\n"
        )
        session = folder / "session"
        session.write_text(
            f"#!/bin/sh\nHGRCPATH={folder}/server.rc exec {HG} -R {folder}/server serve --stdio\n"
        )
        session.chmod(0o755)
        subprocess.run([HG, "init", str(folder / "base")], check=True)
        make(folder, "base", options.files, 0, 0)
        # Old changesets are public, as on a server.
        subprocess.run(
            [HG, "-R", str(folder / "base"), "phase", "--public", "-r", "all()"], check=True
        )
        print(f"{'changesets':>10}  {'policies':8}  {'push s':>7}  {'policies s':>10}")
        for count in (1, 1000):
            shutil.copytree(folder / "base", folder / f"with-{count}")
            make(folder, f"with-{count}", 0, count, 1)
            for guarded in (False, True):
                best = (1e9, 0.0, "")
                for _ in range(options.rounds):
                    shutil.rmtree(folder / "server", ignore_errors=True)
                    shutil.copytree(folder / "base", folder / "server")
                    shutil.rmtree(folder / "client", ignore_errors=True)
                    shutil.copytree(folder / f"with-{count}", folder / "client")
                    register(folder, guarded=guarded)
                    best = min(best, push(folder))
                kind = "all" if guarded else "none"
                print(
                    f"{count:10}  {kind:8}  {best[0]:7.2f}  {best[1]:10.3f}  {best[2]}", flush=True
                )


if __name__ == "__main__":
    main()
