"""Standing cost of the prober: processor time in rounds without any change.

    python -m testing.bench.steering_idle                    # 60 objects, as on a small site
    python -m testing.bench.steering_idle --objects 30000    # and the bar of one round
    python -m testing.bench.steering_idle --rounds 40 --interval 3

The store of the bench is a process of its own, so that only the prober's time counts. Rounds follow
each other without a pause; the share of a processor is computed for rounds every `--interval`
seconds. Bars: 1 % of a processor with 60 objects, 0.3 s for a round with 30,000.
"""

from __future__ import annotations

import argparse
import multiprocessing
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.bundles.decide.manifest import Entry, render
from hgfleet.steering import probe
from hgfleet.steering.order import Endpoint
from hgfleet.steering.selection import ROUNDS
from hgfleet.steering.settings import Config
from testing.integration.support.store import NOW, Store

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

SHARE_BAR: Final = 0.01
ROUND_BAR_SECONDS: Final = 0.3
MANY: Final = 30_000
A_MANIFEST: Final = 6
CONTENT: Final = b"x" * 2000


def serve(objects: int, pipe: Connection) -> None:
    """Serve the objects until the other side closes the pipe."""
    store = Store()
    stored = store.put("one", CONTENT)
    store.content |= dict.fromkeys(map(str, range(objects)), CONTENT)
    pipe.send((store.url, stored.sha256))
    pipe.poll(None)


def publish(folder: Path, url: str, sha256: str, objects: int) -> None:
    """Write manifests for all objects, each with a few."""
    for first in range(0, objects, A_MANIFEST):
        keys = range(first, min(objects, first + A_MANIFEST))
        entries = [Entry(f"{url}/{key}", "zstd-v2", sha256, len(CONTENT), 3, NOW) for key in keys]
        team = folder / f"team{first % 100}"
        team.mkdir(parents=True, exist_ok=True)
        (team / f"{first}.manifest").write_text(render(entries))


def measure(config: Config, rounds: int, warm: int) -> list[float]:
    """Return the processor time of each round, without the first `warm`."""
    spent: list[float] = []
    last = time.process_time()

    def is_over(_seconds: float) -> bool:
        nonlocal last
        now = time.process_time()
        spent.append(now - last)
        last = now
        return len(spent) == warm + rounds

    probe.run(config, lambda *_, **__: None, is_over)
    return spent[warm:]


def main() -> int:
    """Measure and print; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--objects", type=int, default=60)
    parser.add_argument("--rounds", type=int, default=30)
    parser.add_argument("--interval", type=float, default=3.0, help="seconds (default: 3)")
    options = parser.parse_args()
    ours, theirs = multiprocessing.get_context("spawn").Pipe()
    server = multiprocessing.get_context("spawn").Process(
        target=serve, args=(options.objects, theirs), daemon=True
    )
    server.start()
    theirs.close()
    url, sha256 = ours.recv()
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as name:
        root = Path(name)
        publish(root / "manifests", url, sha256, options.objects)
        config = Config(
            endpoints=(Endpoint("one", url),),
            manifests=root / "manifests",
            health=root / "health.json",
            state=root,
            interval_seconds=options.interval,
        )
        spent = measure(config, options.rounds, 2 * ROUNDS)
    ours.close()
    server.terminate()
    share = statistics.mean(spent) / options.interval
    slowest = max(spent)
    print(f"objects            {options.objects:>10,}")
    print(
        f"CPU of a round     {statistics.mean(spent) * 1000:>7.1f} ms, at most {slowest * 1000:.1f}"
    )
    print(f"share of a core    {share:>10.2%}")
    held, bar = share <= SHARE_BAR, f"{SHARE_BAR:.0%} of a core"
    if options.objects >= MANY:
        held = statistics.median(spent) <= ROUND_BAR_SECONDS
        bar = f"{ROUND_BAR_SECONDS * 1000:.0f} ms a round"
    print(f"bar                {bar}: {'held' if held else 'MISSED'}")
    return 0 if held else 1


if __name__ == "__main__":
    sys.exit(main())
