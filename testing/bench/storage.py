"""Storage formats: zlib against zstd, and the cost of an upgrade.

    python -m testing.bench.storage                          # 10,000 changesets
    python -m testing.bench.storage --changesets 100000      # the repository is made once, and kept
    python -m testing.bench.storage --repository PATH        # a copy of a real one

Makes a repository as Mercurial made them before 2016, upgrades a copy by `hgfleet storage upgrade`
and another copy by `hg debugupgraderepo --run`. It prints the table of the first upgrade, both
times, and for how long each upgrade blocked pushes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import time
from io import StringIO
from pathlib import Path
from typing import Final

from hgfleet.core.report import Report
from hgfleet.core.text import size
from hgfleet.storage import work_folder
from hgfleet.storage.upgrade import Fleet, Upgrade, table
from testing.bench.repos import OLD_FORMAT, Size, kept

ROOT: Final = Path(__file__).resolve().parents[2]

HG: Final = Path(sys.executable).with_name("hg")
HGRC: Final = f"""
[extensions]
pinned_store = {ROOT}/hgext/pinned_store.py
"""


def by_core(fleet: Fleet, name: str) -> float:
    """Let Mercurial itself upgrade, recomputing deltas as hgfleet does; return the seconds."""
    started = time.perf_counter()
    subprocess.run(
        [
            *(HG, "-R", fleet.root / name, "debugupgraderepo", "--run", "--no-backup"),
            *("--optimize", "re-delta-parent", "--quiet"),
        ],
        env=fleet.environment(),
        check=True,
        stdout=subprocess.DEVNULL,
    )
    return time.perf_counter() - started


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--changesets", type=int, default=10_000)
    parser.add_argument("--repository", type=Path, help="a real one instead")
    options = parser.parse_args()
    shape = Size(changesets=options.changesets, files=2000)
    source = options.repository or kept(shape, 7, OLD_FORMAT)
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        root = Path(folder)
        (root / "hgrc").write_text(HGRC)
        fleet = Fleet(root, root / "hgrc")
        for name in ("ours", "core"):
            shutil.copytree(source / ".hg", root / name / ".hg", symlinks=True)
        wanted = fleet.wanted()
        outcomes = Upgrade(fleet, Report("events", StringIO())).run(
            [fleet.candidate("ours", wanted)]
        )
        for outcome in outcomes:
            if outcome.error:
                raise outcome.error
            assert outcome.figures.get("changed"), "it has today's format already"
        print("\n".join(table(outcomes, wanted)))
        core = by_core(fleet, "core")
        sizes = [work_folder.measure(root / name / ".hg/store")[0] for name in ("ours", "core")]
    figures = outcomes[0].figures
    without = figures["seconds"] - sum(figures.get("measured_seconds", ()))
    print(f"hgfleet storage upgrade, with all its checks    {without:8.1f} s  {size(sizes[0])}")
    print(f"  of these, pushes wait for at most             {figures['locked_seconds']:8.2f} s")
    print(f"hg debugupgraderepo --run, without any check    {core:8.1f} s  {size(sizes[1])}")
    print(f"  pushes wait for                               {core:8.1f} s")
    print(f"load of the machine: {os.getloadavg()[0]:.1f} on {os.cpu_count()} processors")
    return 0


if __name__ == "__main__":
    sys.exit(main())
