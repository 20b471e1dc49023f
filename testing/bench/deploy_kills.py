"""Kills of ./deploy at random moments, each followed by the same command to its end.

    ./cluster build --tests
    PYTHONPATH=docker .venv/bin/python -m testing.bench.deploy_kills [--kills 20] [--seed 1]

The site is that of production-small.example on four blank containers, deployed over SSH. A run that
brings it from one release to another gets SIGKILL, with all of its processes, at a moment drawn
from the time that such a run takes. The next run has to finish, and afterwards no host is drained,
no lock is held, every host has the release, and a push and a clone work.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from localcluster import release

from testing.deploys.releases import second_release, version_of
from testing.deploys.small import small_site

if TYPE_CHECKING:
    from testing.deploys.site import Site


def killed_after(site: Site, archive: Path, seconds: float) -> str:
    """Start a deploy, kill it after some seconds; return its last line, or that it had ended."""
    run = site.deploying("--yes", "--no-plan", "--release", str(archive))
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(seconds)
    had_ended = run.returncode is not None
    with contextlib.suppress(ProcessLookupError):
        os.killpg(run.pid, signal.SIGKILL)
    lines = run.communicate()[0].strip().splitlines()
    return "it had ended" if had_ended else (lines[-1][:60] if lines else "before its first line")


def problems(site: Site, version: str, scratch: Path) -> list[str]:
    """Return what is wrong after the run that follows a kill."""
    found = [f"{host} has {has}" for host, has in site.releases().items() if has != version]
    mark = "ls /etc/hgfleet/web.drain 2>/dev/null || :"
    found += [f"{host} is drained" for host in site.hosts if site.on(host, mark)]
    if "at work" in site.deploy("--log").ok().stdout:
        found.append("a lock is held")
    service = site.service()
    alice, bob = service.person("alice"), service.person("bob")
    try:
        work = alice.clone(alice.ssh_url("project"), scratch / "work")
        node = work.commit("file", f"{time.time_ns()}\n".encode(), "after a kill")
        work.hg("push").ok()
        clone = bob.clone(service.url("project"), scratch / "clone")
        if node not in clone.heads():
            found.append("the push is missing in a clone")
    except AssertionError as error:
        found.append(str(error).splitlines()[0])
    return found


def kills(site: Site, archives: tuple[Path, Path], number: int, seed: int, folder: Path) -> int:
    """Kill that many runs; return how many were not made good by the next one."""
    site.deploy("--yes", "--release", str(archives[0])).ok()
    began = time.monotonic()
    site.deploy("--yes", "--no-plan", "--release", str(archives[1])).ok()
    whole = time.monotonic() - began
    print(f"seed {seed}; a whole run takes {whole:.0f} s")
    print("| killed after, s | at | next run, s | problems |", "| --- " * 4 + "|", sep="\n")
    drawn, bad = random.Random(seed), 0
    for count in range(number):
        archive = archives[count % 2]
        after = drawn.uniform(0, whole)
        at = killed_after(site, archive, after)
        began = time.monotonic()
        done = site.deploy("--yes", "--no-plan", "--release", str(archive))
        seconds = time.monotonic() - began
        if done.code == 0:
            scratch = folder / f"kill-{count}"
            scratch.mkdir()
            found = problems(site, version_of(archive), scratch)
        else:
            found = [f"exit code {done.code}"]
            print(done, file=sys.stderr)
        bad += bool(found)
        row = f"| {after:.0f} | {at} | {seconds:.0f} | {'; '.join(found) or 'none'} |"
        print(row, flush=True)
    return bad


def main() -> int:
    """Print the table; 1 if the next run did not make a kill good."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=20, help="how many runs are killed")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    built = release.ensure()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with small_site(folder, "kills") as site:
            archives = (built.archive, second_release(built.archive, folder, "second"))
            bad = kills(site, archives, options.kills, options.seed, folder)
    print(f"{bad} of {options.kills} kills were not made good by the next run")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
