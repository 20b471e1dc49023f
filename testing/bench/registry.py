"""Processor time of a registry with many user repositories: `repo create`, /healthz, the list.

    python -m testing.bench.registry                     # 10,000 repositories; with the bars
    python -m testing.bench.registry --repositories 1000 --rounds 20

`repo create` is the part under the lock of the dynamic registry: read, check, change, write. The
web worker is in this process, and has read its registry. The first list of repositories after a
change of the registry is a separate figure, as each worker makes it once. Each round has a process
of its own. The fastest round is compared with the bars, since other work of the machine only adds
time.

| figure             | bar    |
| ------------------ | ------ |
| `repo create`      | 50 ms  |
| `/healthz`         | 2 ms   |
| `/`                | 20 ms  |
| `/` after a change | 100 ms |
"""

from __future__ import annotations

import argparse
import contextlib
import multiprocessing
import os
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.core.principal import Principal
from hgfleet.registry.dynamic import dynamic_update
from hgfleet.registry.dynamic.entry import Entry
from hgfleet.registry.model.compiled import dump_compiled, load_compiled
from hgfleet.registry.model.registry import Namespace, Registry
from hgfleet.selfservice import rules
from testing.integration.web.support import Site, ask

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

BARS_SECONDS: Final = {"repo create": 0.05, "/healthz": 0.002, "/": 0.02, "/ after a change": 0.1}
CREATED: Final = "2026-11-21T00:00:00Z"
OWNER: Final = Principal("bob", frozenset({"everyone"}))


@contextlib.contextmanager
def measured(times: dict[str, float], name: str) -> Iterator[None]:
    """Record the processor time of a block."""
    before = time.process_time()
    yield
    times[name] = time.process_time() - before


def create(site: Site, name: str) -> None:
    """Register a repository as `repo create` does."""
    settings = site.settings
    path = f"people/bob/{name}"
    with dynamic_update.update(settings.dynamic) as entries:
        static = load_compiled(settings.registry)
        rules.check_creation(path, OWNER, static, entries.dynamic)
        entries[path] = Entry("bob", "", CREATED)
        link(site, path)


def link(site: Site, path: str) -> None:
    """Make a repository's folder by a link, as copying an empty repository takes milliseconds."""
    place = site.path(path)
    place.parent.mkdir(parents=True, exist_ok=True)
    place.symlink_to(site.path("team/project"))


def measure(site: Site, number: int) -> dict[str, float]:
    """Return the processor time of each figure in seconds."""
    times: dict[str, float] = {}
    with measured(times, "repo create"):
        create(site, f"new-{number}")
    web = site.application()
    for page in ("/", "/healthz"):
        ask(web, page)
    create(site, f"newer-{number}")
    with measured(times, "/ after a change"):
        ask(web, "/")
    with measured(times, "/"):
        ask(web, "/")
    ask(web, "/healthz")
    time.sleep(1.1)  # the worker checks only once a second
    with measured(times, "/healthz"):
        ask(web, "/healthz")
    return times


def prepared(folder: Path, repositories: int) -> Site:
    """Return a site with so many public and empty user repositories."""
    site = Site(folder, {**os.environ, "HGRCPATH": ""})
    site.create("team/project")
    namespace = Namespace("people", create=("everyone",), personal=True)
    read = dict(load_compiled(site.settings.registry).repositories)
    site.settings.registry.write_text(dump_compiled(Registry(read, {"people": namespace})))
    site.settings.dynamic.parent.mkdir()
    with dynamic_update.update(site.settings.dynamic) as entries:
        for number in range(repositories):
            path = f"people/user{number // 10}/repository-{number}"
            owner = f"user{number // 10}"
            entries[path] = Entry(owner, f"About {path}", CREATED, read="public")
            link(site, path)
    return site


def in_processes(work: Callable[[int], dict[str, float]], rounds: int) -> list[dict[str, float]]:
    """Run each round in a forked process, so that caches of a round do not help the next."""
    context = multiprocessing.get_context("fork")
    with context.Pool(1, maxtasksperchild=1) as pool:
        return pool.map(work, range(rounds), chunksize=1)


_site: Site


def _round(number: int) -> dict[str, float]:
    return measure(_site, number)


def main() -> int:
    """Measure and print; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--repositories", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=9)
    options = parser.parse_args()
    global _site
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        _site = prepared(Path(folder), options.repositories)
        rounds = in_processes(_round, options.rounds)
    held = True
    print(f"{options.repositories:,} repositories, {options.rounds} rounds, load {os.getloadavg()}")
    for name, bar in BARS_SECONDS.items():
        values = [times[name] for times in rounds]
        is_held = min(values) <= bar
        held &= is_held
        print(
            f"{name:16} least {min(values) * 1000:6.1f} ms, median "
            f"{statistics.median(values) * 1000:6.1f} ms, bar {bar * 1000:.0f} ms"
            f"{'' if is_held else '  MISSED'}"
        )
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
