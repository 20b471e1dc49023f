"""Kills of ./deploy at random moments, each followed by a whole run of the same command.

    ./cluster build --tests
    python -m testing.bench.deploy_kills [--kills 20] [--seed 1]

The site is production-small.example on four blank containers, deployed over SSH. Runs in turn
change its release and add a repository. Each run gets SIGKILL, with all of its processes, at a
random moment of the time that such a run takes. The next run has to finish, and afterwards no host
is drained, no lock is held, every host has the release, and a push and a clone work.
"""

from __future__ import annotations

import argparse
import contextlib
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.cluster import release
from testing.deploys.releases import second_release, version_of
from testing.deploys.small import small_site

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.deploys.site import Site


ENDED: Final = "it had ended"
RELEASE: Final = "release"
KINDS: Final = (RELEASE, "repository")


def killed_after(site: Site, options: Sequence[str], seconds: float) -> str:
    """Start a deploy, kill it after some seconds; return its last line, or ENDED."""
    run = site.deploying(*options)
    with contextlib.suppress(subprocess.TimeoutExpired):
        run.wait(seconds)
    had_ended = run.returncode is not None
    lines = site.kill_run(run).strip().splitlines()
    return ENDED if had_ended else (lines[-1][:60] if lines else "before its first line")


@dataclass
class Changes:
    """The changes of runs: another release and back, or a further repository each time."""

    site: Site
    archives: tuple[Path, Path]
    """The release that the site has at first, and another release."""
    release: int = 0
    """The index of the release that the site is to have."""
    repositories: int = 0
    seconds: dict[str, float] = field(default_factory=dict)
    """Duration of an undisturbed run, by its kind of change."""

    def prepare(self, kind: str) -> tuple[str, ...]:
        """Change the inventory, if the change is there; return the options of a run."""
        if kind == RELEASE:
            self.release = 1 - self.release
        else:
            self.repositories += 1
            self.site.add_repository(self.repository)
        return ("--yes", "--no-plan", "--release", str(self.archives[self.release]))

    @property
    def repository(self) -> str:
        """The newest repository."""
        return f"new-{self.repositories}" if self.repositories else "project"

    def measure(self, kind: str) -> None:
        """Make a change undisturbed, and record the time."""
        options = self.prepare(kind)
        began = time.monotonic()
        self.site.deploy(*options).ok()
        self.seconds[kind] = time.monotonic() - began
        print(f"a run with a new {kind} takes {self.seconds[kind]:.0f} s", flush=True)

    def problems(self, scratch: Path) -> list[str]:
        """Return the problems after the run that follows a kill."""
        site, version = self.site, version_of(self.archives[self.release])
        problems = [f"{host} has {has}" for host, has in site.releases().items() if has != version]
        mark = "ls /etc/hgfleet/web.drain 2>/dev/null || :"
        problems += [f"{host} is drained" for host in site.hosts if site.on(host, mark)]
        if "at work" in site.deploy("--log").ok().stdout:
            problems.append("a lock is held")
        service = site.service()
        alice, bob = service.person("alice"), service.person("bob")
        try:
            work = alice.clone(alice.ssh_url(self.repository), scratch / "work")
            node = work.commit("file", f"{time.time_ns()}\n".encode(), "after a kill")
            work.hg("push").ok()
            clone = bob.clone(service.url(self.repository), scratch / "clone")
            if node not in clone.heads():
                problems.append("the push is missing in a clone")
        except AssertionError as error:
            problems.append(str(error).splitlines()[0])
        return problems


def kills(changes: Changes, number: int, seed: int, folder: Path) -> int:
    """Kill so many runs; return after how many of them the next run did not succeed."""
    drawn, bad, killed = random.Random(seed), 0, 0
    while killed < number:
        kind = KINDS[killed % 2]
        options, after = changes.prepare(kind), drawn.uniform(0, changes.seconds[kind])
        at = killed_after(changes.site, options, after)
        began = time.monotonic()
        done = changes.site.deploy(*options)
        seconds = time.monotonic() - began
        with tempfile.TemporaryDirectory(dir=folder) as scratch:
            problems = changes.problems(Path(scratch))
        if done.code != 0:
            problems.insert(0, f"exit code {done.code}")
            print(done, file=sys.stderr)
        bad += bool(problems)
        killed += at != ENDED
        words = [kind, f"{after:.0f}", at, f"{seconds:.0f}", "; ".join(problems) or "none"]
        print(f"| {killed} | {' | '.join(words)} |", flush=True)
    return bad


def main() -> int:
    """Print the table; the exit code is 1 if a run after a kill did not succeed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--kills", type=int, default=20, help="how many runs are killed")
    parser.add_argument("--seed", type=int, default=1, help="of the moments")
    options = parser.parse_args()
    built = release.ensure()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with small_site(folder, "kills") as site:
            site.deploy("--yes", "--release", str(built.archive)).ok()
            archives = (built.archive, second_release(built.archive, folder, "second"))
            changes = Changes(site, archives)
            for kind in KINDS:
                changes.measure(kind)
            print(f"seed {options.seed}")
            print("| kill | of a new | after, s | at | next run, s | problems |")
            print("| --- " * 6 + "|", flush=True)
            bad = kills(changes, options.kills, options.seed, folder)
    print(f"{bad} of {options.kills} kills were not made good by the next run")
    return int(bool(bad))


if __name__ == "__main__":
    sys.exit(main())
