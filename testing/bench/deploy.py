"""The time of each kind of ./deploy over SSH, on blank machines made for it.

    ./cluster build --tests
    python -m testing.bench.deploy [--plain]

The site is production-small.example on four containers; with `--plain` the run that finds nothing
to change is measured without Ansible's accelerator too. `seconds` is the wall time of the
operator's command. `CPU` is the processor time of all its processes on the controller, which does
not depend on other work of the machine.

| kind | bar |
| --- | --- |
| blank hosts to a working site, 4 hosts, release present | 240 s |
| nothing to change, 4 hosts | 30 s, changed=0 |
| a person and a repository added | 30 s, no service restarted |
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from controller.cluster import release
from testing.deploys.releases import second_release
from testing.deploys.small import small_site

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from testing.deploys.site import Site
    from testing.e2e.command import Result

WITHOUT: Final = {"HGFLEET_MITOGEN": "0"}


@dataclass(frozen=True)
class Row:
    """A measured run."""

    kind: str
    seconds: float
    cpu: float
    bar: float | None = None
    problem: str = ""

    def __str__(self) -> str:
        bar = "-" if self.bar is None else f"{self.bar:.0f}"
        verdict = self.problem or (
            "" if self.bar is None else "met" if self.seconds <= self.bar else "missed"
        )
        return f"| {self.kind} | {self.seconds:.0f} | {self.cpu:.0f} | {bar} | {verdict} |"


def measure(kind: str, bar: float | None, act: Callable[[], Result]) -> Row:
    """Run a command; return its wall time and the processor time of its processes."""
    begin, before = time.monotonic(), os.times()
    done = act()
    seconds, after = time.monotonic() - begin, os.times()
    cpu = after.children_user + after.children_system
    cpu -= before.children_user + before.children_system
    row = Row(kind, seconds, cpu, bar, "" if done.code == 0 else f"exit code {done.code}")
    print(row, flush=True)
    if done.code != 0:
        print(done, file=sys.stderr)
    return row


def kinds(site: Site, built: release.Release, folder: Path, *, plain: bool) -> list[Row]:
    """Measure every kind of deploy on a site whose machines are blank."""
    first = ("--release", str(built.archive))

    def deploy(*options: str, env: Mapping[str, str] | None = None) -> Result:
        return site.deploy("--yes", *options, env=env)

    rows = [measure("blank hosts to a working site", 240, lambda: deploy(*first))]
    before = site.services()
    rows.append(measure("nothing to change", 30, lambda: deploy(*first)))
    if plain:
        name = "nothing to change, without the accelerator"
        rows.append(measure(name, None, lambda: deploy(*first, env=WITHOUT)))
    site.add_person("carol", "developers")
    site.add_repository("team/website")
    row = measure(
        "a person and a repository added", 30, lambda: deploy("--only", "people,registry")
    )
    rows.append(row)
    if site.services() != before:
        print("services restarted:", site.services(), "before:", before, file=sys.stderr)
    second = second_release(built.archive, folder, "upgrade")
    rows.append(measure("another release", None, lambda: deploy("--release", str(second))))
    rows.append(measure("back", None, lambda: deploy("--rollback", built.version)))
    return rows


def main() -> int:
    """Print the table; 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("--plain", action="store_true", help="measure without the accelerator too")
    options = parser.parse_args()
    built = release.ensure()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        with small_site(folder, "bench") as site:
            print(
                f"| {len(site.hosts)} hosts | seconds | CPU | bar | |", "| --- " * 5 + "|", sep="\n"
            )
            rows = kinds(site, built, folder, plain=options.plain)
    missed = [row for row in rows if row.problem or (row.bar is not None and row.seconds > row.bar)]
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
