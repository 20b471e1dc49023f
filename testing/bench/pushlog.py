"""Queries about pushes to the web part, with 100,000 pushes in a repository.

    python -m testing.bench.pushlog                # a table, and whether the bar is met
    python -m testing.bench.pushlog --pushes 10000

The bench makes a repository with a changeset for each push, its push log and the log's index. Then
it calls the application of the web part as a WSGI server does, each time with another query, so
that no stored answer helps. Every answer is checked. `cold` is the first answer after a push,
`update` the session's work for 30 pushes that the index does not cover yet.

Bar: 95 of 100 answers by date, by changeset and by id take at most 50 ms.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import shutil
import statistics
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

os.environ["HGRCPATH"] = ""

from mercurial import hg, metadata, node
from mercurial import ui as ui_module

from hgfleet.pushlog import index, index_step
from testing.integration.web.support import Site, ask
from testing.support.pushlog_lines import START_MS, Chain

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from hgfleet.web.app import Application

BAR_S: Final = 0.050
REPOSITORY: Final = "bench/pushes"
START: Final = START_MS // 1000
WINDOW: Final = 100
"""Number of pushes in an answer by date or by id."""


def main() -> int:
    """Make the repository, query, print the table; the exit code is 1 if the bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pushes", type=int, default=100_000, metavar="N")
    parser.add_argument("--answers", type=int, default=300, metavar="N", help="of each kind")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hgfleet-bench-pushlog-"))
    try:
        return _measure(folder, options.pushes, options.answers)
    finally:
        shutil.rmtree(folder)


def _measure(folder: Path, pushes: int, answers: int) -> int:
    site = Site(folder, {**os.environ})
    site.create(REPOSITORY)
    control = site.path(REPOSITORY) / ".hg"
    nodes = _history(site.path(REPOSITORY), pushes)
    chain = Chain(control / "store/pushlog")
    for each in nodes:
        chain.push(each)
    file = control / "cache" / index_step.NAME
    took, _ = _timed(lambda: index.update(chain.file, file))
    size = f"{file.stat().st_size / 2**20:.0f} MiB"
    print(f"{pushes} pushes, log {chain.file.stat().st_size / 2**20:.0f} MiB, index {size}")
    print(f"index built in {took:.2f} s")
    web = site.application()
    for _ in range(30):
        nodes.append(nodes[-1])
        chain.push(nodes[-1])
    took, _ = _timed(lambda: _ask(web, "startID=1&endID=2", 1))
    print(f"cold     {1000 * took:7.1f} ms")
    took, _ = _timed(lambda: index.update(chain.file, file))
    print(f"update   {1000 * took:7.1f} ms")
    is_met = True
    for name, questions in (
        ("id", _by_id(pushes)),
        ("date", _by_date(pushes)),
        ("changeset", _by_changeset(nodes[:pushes])),
        ("newest", _newest()),
    ):
        times = sorted(_timed(lambda: _ask(web, *next(questions)))[0] for _ in range(answers))  # noqa: B023
        p95 = times[int(0.95 * len(times))]
        middle = statistics.median(times)
        print(f"{name:9}{1000 * middle:6.1f} ms median, {1000 * p95:6.1f} ms p95")
        is_met = is_met and p95 <= BAR_S
    print("bar met" if is_met else f"bar missed: p95 at most {1000 * BAR_S:.0f} ms")
    return 0 if is_met else 1


def _history(path: Path, changesets: int) -> list[str]:
    """Add changesets without files to an empty repository."""
    repository = hg.repository(ui_module.ui.load(), os.fsencode(path)).unfiltered()
    nodes = []
    parent = node.nullid
    with repository.wlock(), repository.lock(), repository.transaction(b"bench") as transaction:
        for number in range(changesets):
            parent = repository.changelog.add(
                node.nullid, metadata.ChangingFiles(), b"change %d" % number, transaction,
                parent, node.nullid, b"bench", (number, 0),
            )  # fmt: skip
            nodes.append(parent.hex())
    return nodes


def _by_id(pushes: int) -> Iterator[tuple[str, int]]:
    for start in _random(pushes):
        yield f"version=2&startID={start}&endID={start + WINDOW}", WINDOW


def _by_date(pushes: int) -> Iterator[tuple[str, int]]:
    for first in _random(pushes):
        start = START + 60 * first
        yield f"version=2&startdate={start}&enddate={start + 60 * WINDOW + 1}", WINDOW


def _by_changeset(nodes: list[str]) -> Iterator[tuple[str, int]]:
    for number in _random(len(nodes)):
        yield f"version=2&changeset={nodes[number]}&tipsonly=1", 1


def _newest() -> Iterator[tuple[str, int]]:
    # The unknown parameter makes each query different.
    for number in _random(10**6):
        yield f"version=2&x={number}", 10


def _random(pushes: int) -> Iterator[int]:
    chance = random.Random(7)
    while True:
        yield chance.randrange(max(1, pushes - 2 * WINDOW))


def _ask(web: Application, query: str, expected: int) -> None:
    reply = ask(web, f"/{REPOSITORY}/json-pushes", query)
    if reply.status != 200:
        raise SystemExit(f"{query}: {reply.status} {reply.text}")
    document = json.loads(reply.body)
    count = len(document.get("pushes", document))
    if count != expected:
        raise SystemExit(f"{query}: {count} pushes, expected {expected}")


def _timed(call: Callable[[], object]) -> tuple[float, object]:
    before = time.perf_counter()
    done = call()
    return time.perf_counter() - before, done


if __name__ == "__main__":
    raise SystemExit(main())
