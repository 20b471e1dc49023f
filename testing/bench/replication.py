"""Replication: how late mirrors show a push, and what replication costs.

    python -m testing.bench.replication                      # every part, and a table
    python -m testing.bench.replication lag restart          # some of them
    python -m testing.bench.replication --seconds 20 --repositories 1000 idle

Primary, mirrors and broker are processes of this machine (`replication_site.py`), so they share its
processors with the clients. The table has the load of the machine during each part.

Bars: a push is visible on both mirrors after 0.5 s in the median and 1.5 s at the 95th percentile,
at 5 pushes/s; an applier of 1,000 repositories has caught up 10 s after its start; relay and
applier of 10,000 idle repositories take 1 % of a processor each; log and relay cost a push 10 % of
its time, without the wait for mirrors; syncing a push to the disk before its client is told costs
the push 15 % of its time on this machine's disk. The idle time includes no comparison of all
positions, which an applier makes every 10 minutes.
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import sys
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testing.bench.replication_site import (
    BARE,
    DURABLE_NO,
    ON_A_PRIMARY,
    TOLD,
    ReplicatedSite,
    cpu_seconds,
    hg_program,
    load,
    until,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CLIENTS: Final = 5
P50_S: Final = 0.5
P95_S: Final = 1.5
RESTART_S: Final = 10.0
IDLE_SHARE: Final = 0.01
COST: Final = 0.10
DURABLE_COST: Final = 0.15


@dataclass(frozen=True)
class Row:
    """A measurement and its bar."""

    what: str
    bar: str
    measured: str
    held: bool
    load: str


def _lag(folder: Path, options: argparse.Namespace) -> list[Row]:
    names = [f"bench/lag{number}" for number in range(CLIENTS)]
    lags: list[float] = []
    late: list[str] = []
    with ReplicatedSite(folder) as site:
        site.declare(names)
        clones = [site.clone(f"clone{number}", options.seconds) for number in range(CLIENTS)]
        site.start()
        program = hg_program()
        begin = time.monotonic() + 1

        def client(number: int) -> None:
            for turn in range(options.seconds):
                at = begin + turn + number / CLIENTS
                time.sleep(max(0.0, at - time.monotonic()))
                done = site.push(clones[number], names[number], turn, program=program)
                told = TOLD.search(done.stdout)
                shown = told and [site.tip(host, names[number]) for host in site.mirrors]
                if told and shown and told[4] and told[2] == told[3] and min(shown) >= int(told[1]):
                    lags.append(float(told[4]))
                else:
                    late.append(done.stdout)

        threads = [threading.Thread(target=client, args=(number,)) for number in range(CLIENTS)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took, now = time.monotonic() - begin, load()
    for said in late[:3]:
        print(f"not visible on all mirrors: {said}")
    lags.sort()
    p50, p95 = statistics.median(lags), lags[int(0.95 * len(lags))]
    pace = f"{len(lags) / took:.1f} pushes/s, {len(late)} of {len(lags) + len(late)} not in time"
    return [
        Row("lag p50", f"{P50_S} s", f"{p50:.2f} s ({pace})", p50 <= P50_S and not late, now),
        Row(
            "lag p95",
            f"{P95_S} s",
            f"{p95:.2f} s, at most {lags[-1]:.2f} s",
            p95 <= P95_S and not late,
            now,
        ),
    ]


def _restart(folder: Path, options: argparse.Namespace) -> list[Row]:
    with ReplicatedSite(folder, mirrors=("hgweb1",)) as site:
        site.declare_recorded(min(1000, options.repositories))
        site.start()
        (applier,) = site.appliers
        applier.kill()
        (applier.settings.state / "state.json").unlink()
        applier.start()
        took = until("the applier catches up", lambda: _is_idle(applier.state()))
        count = applier.state()["positions"]
    is_held = took <= RESTART_S
    what = f"restart of an applier, {count:,} repositories"
    return [Row(what, f"{RESTART_S:g} s", f"{took:.1f} s", is_held, load())]


def _is_idle(state: dict[str, object]) -> bool:
    return bool(state["caught_up"]) and not state["waiting"]


def _idle(folder: Path, options: argparse.Namespace) -> list[Row]:
    with ReplicatedSite(folder, mirrors=("hgweb1",)) as site:
        site.declare_recorded(options.repositories)
        site.start()
        (applier,) = site.appliers
        assert site.relay is not None
        assert applier.process is not None
        pids = {"relay": site.relay.pid, "applier": applier.process.pid}
        until("the applier is idle", lambda: _is_idle(applier.state()))
        until("both are quiet", lambda: _is_quiet(pids.values()))
        before = {name: cpu_seconds(pid) for name, pid in pids.items()}
        began = time.monotonic()
        time.sleep(options.seconds)
        took = time.monotonic() - began
        shares = {name: (cpu_seconds(pid) - before[name]) / took for name, pid in pids.items()}
    what = f"{options.repositories:,} repositories idle"
    return [
        Row(f"{what}, {name}", f"{IDLE_SHARE:.0%}", f"{share:.2%}", share <= IDLE_SHARE, load())
        for name, share in shares.items()
    ]


def _is_quiet(pids: object) -> bool:
    spent = [cpu_seconds(pid) for pid in pids]  # type: ignore[attr-defined]
    time.sleep(3)
    return all(cpu_seconds(pid) - used < 0.15 for pid, used in zip(pids, spent, strict=True))  # type: ignore[call-overload]


def _cost(folder: Path, options: argparse.Namespace) -> list[Row]:
    what = "cost of log and relay to a push"
    texts = BARE, ON_A_PRIMARY + DURABLE_NO
    return [_paired(folder, options, what, texts, COST)]


def _durable(folder: Path, options: argparse.Namespace) -> list[Row]:
    what = "cost of the sync to a push"
    texts = ON_A_PRIMARY + DURABLE_NO, ON_A_PRIMARY
    return [_paired(folder, options, what, texts, DURABLE_COST)]


def _paired(
    folder: Path, options: argparse.Namespace, what: str, texts: tuple[str, str], bar: float
) -> Row:
    """Push with two configurations in turns; `bar` limits the extra cost of the second."""
    pushes = options.pushes
    with ReplicatedSite(folder, mirrors=()) as site:
        names = "bench/before", "bench/after"
        site.declare(names)
        clones = [site.clone(f"clone{number}", pushes) for number in range(2)]
        hgrcs = [site.hgrc(f"hgrc{number}", text, 0) for number, text in enumerate(texts)]
        site.start_relay()
        times: tuple[list[float], list[float]] = ([], [])
        for turn in range(pushes):
            # They take turns, and each is first equally often, because the machine's load changes.
            for number in (0, 1) if turn % 2 else (1, 0):
                began = time.perf_counter()
                done = site.push(clones[number], names[number], turn, hgrc=hgrcs[number])
                times[number].append(time.perf_counter() - began)
                is_logged = "pushlog" in texts[number]
                if done.returncode or ("recorded" in done.stdout) != is_logged:
                    raise SystemExit(done.stdout)
        now = load()
    # Without the first push to each repository, which begins its log.
    before, after = (statistics.median(seconds[1:]) for seconds in times)
    differences = [two - first for first, two in zip(*times, strict=True)][1:]
    share = statistics.median(differences) / before
    measured = f"{share:+.1%} ({1000 * before:.0f} and {1000 * after:.0f} ms)"
    return Row(what, f"{bar:.0%}", measured, share <= bar, now)


PARTS: Final[dict[str, Callable[[Path, argparse.Namespace], list[Row]]]] = {
    "lag": _lag,
    "restart": _restart,
    "idle": _idle,
    "cost": _cost,
    "durable": _durable,
}


def _part(name: str) -> str:
    if name not in PARTS:
        raise argparse.ArgumentTypeError(f"got {name!r}, expected {', '.join(PARTS)}")
    return name


def main() -> int:
    """Measure and print the table; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("parts", nargs="*", type=_part, help=", ".join(PARTS))
    parser.add_argument("--seconds", type=int, default=60, help="of pushes, and of idleness")
    parser.add_argument("--repositories", type=int, default=10_000, help="of the part idle")
    parser.add_argument("--pushes", type=int, default=40, help="of each kind, for costs")
    options = parser.parse_args()
    rows = []
    for name in options.parts or PARTS:
        folder = Path(tempfile.mkdtemp(prefix="hgfleet-bench-replication-"))
        try:
            rows += PARTS[name](folder, options)
        finally:
            shutil.rmtree(folder)
    print(f"{'':44} {'bar':>7}  {'':6} load")
    for row in rows:
        state = "held" if row.held else "MISSED"
        print(f"{row.what:44} {row.bar:>7}  {state:6} {row.load}  {row.measured}")
    return 0 if all(row.held for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
