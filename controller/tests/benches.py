"""The tier `bench`: a smoke of every benchmark, with small numbers, so that each can be run.

    eval "$(./cluster env)"
    .venv/bin/python -m controller.tests.benches NAME         # a smoke by hand

Small numbers measure nothing: a bar of seconds or of a ratio that is missed is no failure of a
smoke, and the benchmark's own command judges it. A bar that counts lost or wrong answers holds for
any number, so a smoke judges it (`counts`). An error is a failure of either.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from controller import bootstrap
from controller.bootstrap import CACHE, ROOT
from controller.tests.commands import python
from controller.tests.execution import Step
from controller.tests.hosts import cluster_environment

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

FOLDER: Final = "testing/bench"
MISSED_BAR: Final = 1
"""Exit code of a benchmark that missed a bar; Python's for an error or a reason is the same."""
VERDICT: Final = re.compile(r"\b(?:missed|MISSED|FAILED)\b")
"""Words by which a benchmark says that it missed a bar."""
TRACEBACK: Final = "Traceback (most recent call last)"


@dataclass(frozen=True)
class Bench:
    """How a benchmark is run short."""

    arguments: str = ""
    counts: bool = False


SMOKES: Final[Mapping[str, Bench]] = {
    # Processes of this machine.
    "bundles": Bench("--small 4 --many 10 --kills 2 --changesets 100 --versitygw {versitygw}"),
    "manifest": Bench("--objects 200 --requests 3"),
    "policies": Bench("--files 200 --rounds 1"),
    "pull": Bench("--changesets 1000 --newer 100 --rounds 1"),
    "pushlog": Bench("--pushes 200 --answers 5"),
    "registry": Bench("--repositories 50 --rounds 1"),
    "replication": Bench("--seconds 4 --repositories 50 --pushes 4"),
    "replication_faults": Bench("--pushes 15 --cuts 2", counts=True),
    "steering_idle": Bench("--rounds 2 --interval 0.1"),
    "storage": Bench("--changesets 100"),
    "streams": Bench("--changesets 100 --rounds 1"),
    "web": Bench("--changesets 50 --seconds 0.5 --rounds 1 --clients 2 --workers 1 --threads 2"),
    # The cluster.
    "backup": Bench("--repositories 5 --changesets 100 --rounds 1"),
    # Wrong bytes are an error of a smoke, too: they have an exit code of their own.
    "hostile": Bench(
        "--phase alone --phase connections --phase failing --phase tokens --phase partial "
        "--every 20 --timeout 30 --changesets 200 --seconds 5 --share 10"
    ),
    "connections": Bench("--connections 400 --seconds 3 --kind idle --kind h2"),
    "keys": Bench("--people 50 --rounds 1 --lookups 5"),
    "monitoring": Bench("--seconds 10"),
    "replication_cluster": Bench("--pushes 10", counts=True),
    "ssh": Bench("--runs 2"),
    # Blank machines.
    "deploy_kills": Bench("--kills 1", counts=True),
}

LEFT_OUT: Final[Mapping[str, str]] = {
    "deploy": "takes 15 minutes with any numbers; the tier deploys has each kind of deploy",
    "promotion": "takes 10 minutes with any numbers; faults and rolls promote the standby",
}

PARTS: Final[Mapping[str, str]] = {
    "bundles_clone": "bundles",
    "bundles_kill": "bundles",
    "bundles_site": "bundles",
    "cluster_client": "replication_cluster",
    "cluster_cuts": "replication_cluster",
    "firewall": "ssh",
    **dict.fromkeys(
        (
            "hostile_archives",
            "hostile_at_once",
            "hostile_bars",
            "hostile_cases",
            "hostile_failing",
            "hostile_groups",
            "hostile_history",
            "hostile_load",
            "hostile_others",
            "hostile_setup",
            "hostile_site",
            "hostile_witness",
        ),
        "hostile",
    ),
    "http_load": "web",
    "pull_getbundle": "pull",
    "power_cuts": "replication_faults",
    "random_faults": "replication_faults",
    "replication_site": "replication",
    "repos": "storage",
}
"""Modules that a benchmark uses, each with a benchmark that has a smoke."""


def steps(words: str, only: Sequence[str] | None = None) -> list[Step]:
    """Return a step for each benchmark; it is chosen by its name."""
    env = {**cluster_environment(), "PYTHONPATH": str(ROOT)}
    return [
        Step("bench", name, python("-m", "controller.tests.benches", name), env=env)
        for name in SMOKES
        if words in name and (only is None or name in only)
    ]


def command(name: str, bench: Bench, versitygw: str) -> list[str]:
    """Return the command of a smoke."""
    arguments = [word.format(versitygw=versitygw) for word in bench.arguments.split()]
    return [sys.executable, "-m", f"{FOLDER.replace('/', '.')}.{name}", *arguments]


def is_failure(bench: Bench, code: int, output: str) -> bool:
    """Whether a smoke failed: an error, or a bar that holds for any number."""
    if code == 0:
        return False
    is_verdict = code == MISSED_BAR and VERDICT.search(output) and TRACEBACK not in output
    return bench.counts or not is_verdict


def versitygw() -> str:
    """Return the object store's program that came with the last release."""
    programs = sorted(
        (CACHE / "release").glob("versitygw-*"), key=lambda path: path.stat().st_mtime
    )
    if not programs:
        bootstrap.fail("The object store's program is not built.", "Build it: ./cluster build")
    return str(programs[-1])


def main(arguments: Sequence[str]) -> int:
    """Run the smoke of a benchmark, and print its output; 1 if it failed."""
    if len(arguments) != 1 or arguments[0] not in SMOKES:
        print(f"got {' '.join(arguments) or 'no name'}, expected one of {', '.join(SMOKES)}")
        return 2
    (name,) = arguments
    bench = SMOKES[name]
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    path = versitygw() if "{versitygw}" in bench.arguments else ""
    with subprocess.Popen(
        command(name, bench, path),
        cwd=ROOT,
        env=env,
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    ) as process:
        assert process.stdout is not None
        lines = []
        for line in process.stdout:
            lines.append(line)
            print(line, end="", flush=True)
    failed = is_failure(bench, process.returncode, "".join(lines))
    if process.returncode and not failed:
        print(f"{name} ran; a bar was missed, which small numbers do not judge")
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
