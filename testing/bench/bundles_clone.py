"""Benchmark of clones: cost for the server, and time of the client, with and without a bundle."""

from __future__ import annotations

import re
import shutil
import statistics
import subprocess
import tempfile
import time
from collections import defaultdict
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

from hgfleet.bundles.decide.manifest import parse
from hgfleet.bundles.decide.plan import Action
from testing.bench.bundles_site import (
    HG,
    ROUNDS,
    Site,
    children,
    environment,
    free_port,
    identity_of,
    server,
    show,
)
from testing.bench.repos import Size, kept

BARS: Final = {"server CPU": 0.01, "stream": 1.5}


def cpu_of(process: subprocess.Popen[bytes]) -> float:
    """Return the seconds of CPU that a running process has used, all its threads together.

    The clock comes from clock_getcpuclockid(3), because /proc has only hundredths of a second.
    """
    return time.clock_gettime((~process.pid << 3) | 2)


@dataclass(frozen=True)
class Spent:
    """Seconds: how long the client waited, its CPU, and the server's CPU."""

    wall: float
    client: float
    server: float = 0.0


def clone(source: str | Path, folder: Path, env: dict[str, str], *words: str) -> Spent:
    """Clone into a new folder, and leave it there.

    For a while ext4 passes over each inode that was freed (`recently_deleted` in fs/ext4/ialloc.c):
    a clone right after the deletion of another takes seconds longer than a user's clone.
    """
    target = Path(tempfile.mkdtemp(dir=folder)) / "clone"
    before, started = children(), time.perf_counter()
    done = subprocess.run(
        [HG, "clone", *words, str(source), str(target)],
        env=env,
        capture_output=True,
        text=True,
        check=False,
    )
    took = time.perf_counter() - started
    assert done.returncode == 0, done.stderr
    if str(source).startswith("http"):
        used = "applying clone bundle" in done.stdout
        assert used is ("ui.clonebundles=no" not in words), f"{words}: {done.stdout}{done.stderr}"
    return Spent(took, children() - before)


def bench_clone(site: Site, root: Path, changesets: int, given: Path | None) -> bool:
    """Measure the CPU of the server and the time of the client, for each way to clone.

    The ways take turns, so that the load of the machine is the same for all of them.
    """
    name = "large"
    source = site.config.repositories / name
    if given:
        source.symlink_to(given)
    else:
        source.symlink_to(kept(Size(changesets=changesets, files=2000), seed=7))
    (repository,) = site.repositories([name], ("stream", "zstd"))
    show("clone", "hgfleet bundles run", site.run([repository], Action.GENERATE))
    env = environment(site.config.hgrc)
    served, port = root / "served", free_port()
    subprocess.run([HG, "clone", "-q", "-U", "--pull", source, served], env=env, check=True)
    published = (site.config.manifests / f"{identity_of(name)}.manifest").read_text()
    stream = next(line for line in published.splitlines() if ";stream=" in line)
    with server(
        [HG, "-R", str(served), "serve", "-p", str(port), "-a", "127.0.0.1"], port, env=env
    ) as process:
        spent = _measure(source, served, f"http://127.0.0.1:{port}/", root, env, process)
    show("clone", "size of the stream bundle", parse(stream)[0].size / 1e6, unit="MB")
    return _show(spent)


def _measure(
    source: Path,
    served: Path,
    url: str,
    root: Path,
    env: dict[str, str],
    process: subprocess.Popen[bytes],
) -> dict[str, list[Spent]]:
    """Clone in every way in turn, several times."""
    manifest_file = served / ".hg/clonebundles.manifest"
    published = (root / f"manifests/{identity_of('large')}.manifest").read_text()
    stream = next(line for line in published.splitlines() if ";stream=" in line)
    ways = {
        "no bundle": (published, ["-U", "--config", "ui.clonebundles=no"]),
        "stream": (published, ["-U"]),
        "zstd": (published, ["-U", "--config", "ui.clonebundleprefers=COMPRESSION=zstd"]),
        "stream, DIGEST not checked": (re.sub(r" DIGEST=\S+", "", stream), ["-U"]),
        "stream, and files": (published, []),
    }
    target = root / "clones"
    target.mkdir()
    spent: dict[str, list[Spent]] = defaultdict(list)
    # In RAM no hard link to the repository is possible, as for a client on another machine.
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-", dir="/dev/shm") as ram:
        elsewhere = Path(ram)
        for number in range(ROUNDS + 1):
            for way, (manifest, more) in ways.items():
                manifest_file.write_text(manifest + "\n")
                before = cpu_of(process)
                cost = clone(url, target, env, *more)
                # The first round warms the caches of the server.
                if number:
                    spent[way].append(replace(cost, server=cpu_of(process) - before))
            if number:
                # Copies by hard links where possible, the fastest way of all.
                spent["a path"].append(clone(source, target, env, "-U", "--stream"))
                spent["a path, and files"].append(clone(source, target, env, "--stream"))
                # A copy without hard links.
                spent["a path, to RAM"].append(clone(source, elsewhere, env, "-U", "--stream"))
                manifest_file.write_text(published)
                spent["stream, to RAM"].append(clone(url, elsewhere, env, "-U"))
                for one_clone in elsewhere.iterdir():
                    shutil.rmtree(one_clone)
    return spent


def _show(spent: dict[str, list[Spent]]) -> bool:
    """Print the medians; return whether they meet the bars."""
    for way, costs in spent.items():
        show("clone", f"client wall: {way}", statistics.median(cost.wall for cost in costs))
        show("clone", f"client CPU:  {way}", statistics.median(cost.client for cost in costs))
    cpu, wall = (
        {
            way: statistics.median(getattr(cost, what) for cost in costs)
            for way, costs in spent.items()
        }
        for what in ("server", "wall")
    )
    for way in ("no bundle", "stream", "zstd"):
        show("clone", f"server CPU: {way}", cpu[way])
    share = cpu["stream"] / cpu["no bundle"]
    met = show("clone", "server CPU, stream bundle / none", share, BARS["server CPU"], "")
    for faster, other, what, bar in (
        ("stream, to RAM", "a path, to RAM", "no files, both copy", None),
        ("stream", "a path", "no files, the path by hard links", None),
        (
            "stream, and files",
            "a path, and files",
            "as people clone, by hard links",
            BARS["stream"],
        ),
    ):
        label = f"client wall, stream bundle / path: {what}"
        met = show("clone", label, wall[faster] / wall[other], bar, "") and met
    return met
