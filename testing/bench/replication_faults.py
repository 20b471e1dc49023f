"""Pushes while processes are killed at random: no acknowledged push may be lost.

    python -m testing.bench.replication_faults                       # 300 pushes
    python -m testing.bench.replication_faults --pushes 1000 --seed 7

Clients push to a primary with two mirrors and a broker (`replication_site.py`), while hg sessions,
the relay, the appliers and the broker are killed (kill -9) and the broker hangs, at moments that
the seed and the machine choose. Killed processes are started again, as by systemd. A client whose
session was killed pushes again. A push is acknowledged when its client was told so: exit code 0 and
"push N recorded".

Then the power of the primary is cut: the store of a repository is put back by one to three records,
and other pushes follow (`power_cuts.py`).

    python -m testing.bench.replication_faults --pushes 0 --cuts 36  # the power cuts, all of them

Bars: every acknowledged push is in the push log of the primary and of each mirror, `verify` finds
all repositories equal, chains are valid, and the push logs cover all changesets. No push around a
power cut is reported as visible on a mirror that does not have it, and each loss fences the
repository until an operator lifts the fence.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hgfleet.pushlog import log_file
from hgfleet.replication.mirror.verify import Finding, Verification
from hgfleet.replication.source.client import SourceClient
from hgfleet.replication.terms import repository_fences
from testing.bench import power_cuts
from testing.bench.random_faults import RandomFaults
from testing.bench.replication_site import LOGGED, TOLD, ReplicatedSite, load, until

if TYPE_CHECKING:
    from collections.abc import Callable

    from testing.bench.random_faults import Kind

HG: Final = (sys.executable, "-m", "mercurial")
CLIENTS: Final = 3
ATTEMPTS: Final = 50
KINDS: Final = {"session": 3, "relay": 1, "hgweb1": 1, "hgweb2": 1, "broker": 1, "pause": 1}
PAUSE_SECONDS: Final = (0.1, 1.5)
"""Pause between two faults."""


class Faults(RandomFaults):
    """Kills until it is told to stop; then every process runs again."""

    def __init__(self, site: ReplicatedSite, seed: int) -> None:
        super().__init__(seed, PAUSE_SECONDS)
        self._site = site

    def kinds(self) -> list[Kind]:
        """Return the kinds of faults."""
        return [(name, weight, partial(self._make, name)) for name, weight in KINDS.items()]

    def _make(self, kind: str) -> int:
        site = self._site
        if kind == "session":
            return self._kill_session()
        if kind == "relay":
            site.kill_relay()
            site.start_relay()
        elif kind == "broker":
            site.broker.kill()
            self.stop.wait(self.random.uniform(0, 2))
            site.broker.start()
        elif kind == "pause":
            site.broker.pause()
            self.stop.wait(self.random.uniform(0, 3))
            site.broker.resume()
        else:
            applier = next(process for process in site.appliers if process.settings.host == kind)
            applier.kill()
            applier.start()
        return 1

    def _kill_session(self) -> int:
        """Kill the next session that begins, at a random moment of its work."""
        deadline = time.monotonic() + 10
        old = set(self._site.sessions.iterdir())
        while not (new := set(self._site.sessions.iterdir()) - old):
            if self.stop.wait(0.01) or time.monotonic() > deadline:
                return 0
        self.stop.wait(self.random.uniform(0, 1.5))
        pid = int(new.pop().name)
        try:
            words = Path(f"/proc/{pid}/cmdline").read_bytes()
            # Another process may have the same id by now.
            if str(self._site.primary.repos).encode() not in words:
                return 0
            os.kill(pid, signal.SIGKILL)
        except (FileNotFoundError, ProcessLookupError):
            return 0
        return 1


class Client:
    """Pushes the changesets of its clone to its repository, in single pushes."""

    def __init__(self, site: ReplicatedSite, number: int, pushes: int) -> None:
        self.path = f"bench/faults{number}"
        self.acknowledged: dict[int, str] = {}
        self.attempts = 0
        self.problem = ""
        self._site, self._pushes = site, pushes
        self._clone = site.clone(f"clone{number}", pushes)
        self.nodes = self._nodes()

    def _nodes(self) -> list[str]:
        done = subprocess.run(
            [*HG, "-R", self._clone, "log", "-r", "all()", "-T", "{node}\n"],
            env=self._site.client_environment(),
            capture_output=True,
            text=True,
            check=True,
        )
        return done.stdout.split()

    def run(self) -> None:
        """Push everything; a push without an acknowledgement is tried again."""
        for revision in range(self._pushes):
            for _attempt in range(ATTEMPTS):
                self.attempts += 1
                done = self._site.push(self._clone, self.path, revision)
                told = TOLD.search(done.stdout)
                if done.returncode == 0 and told:
                    self.acknowledged[int(told[1])] = self.nodes[revision]
                    break
                if "no changes found" in done.stdout:
                    # The session was killed after its transaction.
                    break
            else:
                self.problem = f"{self.path} {revision}: {done.stdout}"
                return


def _check(site: ReplicatedSite, clients: list[Client]) -> list[tuple[str, bool, str]]:
    hosts = site.all_hosts()

    def logs(client: Client) -> list[bytes]:
        return [(host.path(client.path) / ".hg/store/pushlog").read_bytes() for host in hosts]

    took = until(
        "the mirrors have every push",
        lambda: all(len(set(logs(client))) == 1 for client in clients),
    )
    lost = []
    for client in clients:
        for host in hosts:
            entries = log_file.entries(host.path(client.path) / ".hg/store/pushlog")
            changesets = {entry.record.id: entry.record.changesets for entry in entries}
            for number, node in client.acknowledged.items():
                if node not in changesets.get(number, ()):
                    lost.append(f"{host.root.name} {client.path} {number} {node}")
    rows = [
        ("mirrors caught up", True, f"{took:.1f} s after the last push"),
        ("acknowledged pushes lost", not lost, f"{len(lost)} {' '.join(lost[:3])}"),
    ]
    for mirror in site.mirrors:
        source = SourceClient(mirror.settings)
        results = Verification(mirror.settings, source).run((), lambda _result: None)
        bad = [
            f"{result.path} {result.text}"
            for result in results
            if result.finding is not Finding.EQUAL
        ]
        name = f"verify on {mirror.root.name}"
        rows.append((name, bool(results) and not bad, "; ".join(bad) or f"{len(results)} equal"))
    # The command only reads, so the relay is not needed.
    hgrc = site.hgrc("check", LOGGED + "[hgfleet]\npushlog = yes\n")
    bad = []
    for client in clients:
        words = ["-R", str(site.primary.path(client.path)), "debugpushlog", "--verify"]
        done = subprocess.run(
            [*HG, *words],
            env=site.primary.environment(HGRCPATH=str(hgrc)),
            capture_output=True,
            text=True,
            check=False,
        )
        if done.returncode:
            bad.append(done.stdout + done.stderr)
    fenced = [fence.path for fence in repository_fences.read(site.primary.settings.terms).values()]
    rows.append(("fences without a loss", not fenced, " ".join(fenced) or "none"))
    rows.append(("chains and coverage", not bad, "; ".join(bad) or f"{len(clients)} valid"))
    return rows


def main() -> int:
    """Push under faults, check and print; exit code 1 if a bar is missed."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pushes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--cuts", type=int, default=12, help="power cuts (12)")
    options = parser.parse_args()
    folder = Path(tempfile.mkdtemp(prefix="hgfleet-bench-replication-"))
    try:
        with ReplicatedSite(folder, wait=1) as site:
            return _measure(site, options)
    finally:
        shutil.rmtree(folder)


def _measure(site: ReplicatedSite, options: argparse.Namespace) -> int:
    each = -(-options.pushes // CLIENTS)
    cuts = power_cuts.cuts(options.seed, options.cuts)
    site.declare(
        [
            *(f"bench/faults{number}" for number in range(CLIENTS if each else 0)),
            *(f"bench/cut{number}" for number in range(len(cuts))),
        ]
    )
    site.start()
    rows = _under_faults(site, options, each) if each else []
    if cuts:
        rounds = [power_cuts.Round(site, number, cut) for number, cut in enumerate(cuts)]
        rows += power_cuts.measure(rounds)
    for name, held, measured in rows:
        print(f"{name:28} {'held' if held else 'MISSED':7} {measured}")
    return 0 if all(held for _, held, _ in rows) else 1


def _under_faults(
    site: ReplicatedSite, options: argparse.Namespace, each: int
) -> list[tuple[str, bool, str]]:
    clients = [Client(site, number, each) for number in range(CLIENTS)]
    runs: list[Callable[[], None]] = [client.run for client in clients]
    threads = [threading.Thread(target=run) for run in runs]
    began = time.monotonic()
    with Faults(site, options.seed) as faults:
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    took = time.monotonic() - began
    count = sum(len(client.acknowledged) for client in clients)
    attempts = sum(client.attempts for client in clients)
    print(
        f"seed {options.seed}, load {load()}: {took:.0f} s, {attempts} attempts, killed: {faults}"
    )
    rows = [("acknowledged pushes", count > 0, f"{count} of {each * CLIENTS} changesets")]
    rows += [
        ("a client that pushes", False, client.problem) for client in clients if client.problem
    ]
    if faults.problem:
        rows.append(("the faults", False, repr(faults.problem)))
    return rows + _check(site, clients)


if __name__ == "__main__":
    sys.exit(main())
