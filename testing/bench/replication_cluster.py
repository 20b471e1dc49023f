"""Pushes to the cluster while sessions, daemons, whole hosts and networks fail at random.

    ./cluster up
    python -m testing.bench.replication_cluster           # 300 pushes
    python -m testing.bench.replication_cluster --seed 7
    python -m testing.bench.replication_cluster --outage 300

Clients push over SSH to the primary of the local cluster. At the same time sessions of hg, the
relay, the appliers and the broker are killed (kill -9), containers of the primary, the mirrors and
the broker are killed and started again, and mirrors and broker lose their network for a time.
Between their pushes, the clients rename their repositories, delete them and make others at the same
paths, archive and restore them (`cluster_client.py`); and the primary loses power: the store of a
repository is put back by one to three records (`cluster_cuts.py`). The seed chooses the faults and
the changes; their exact timing depends on the machine. A client whose push failed pushes again. A
push is acknowledged when its client was told so: exit code 0 and "push N recorded".

With `--outage` the broker is off for so many seconds instead, and a single client pushes. No push
may fail, and each push says that replication is down as soon as the primary knows.

Bars: every acknowledged push is in the push log of the primary and of each mirror, by the identity
of the repository, number, hash and changeset, unless a power cut lost it. Each lost push that a
mirror has is fenced, and no push is reported as visible where it is not. The mirrors' `verify`
finds all repositories equal, no host has a deleted repository, no fence is left, chains are valid,
and the logs cover all changesets.

`replication_faults.py` does the same with processes of this machine, without hosts and networks.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from testing.bench.cluster_client import SECONDS, Client, Site
from testing.bench.cluster_cuts import CutClient
from testing.bench.random_faults import RandomFaults
from testing.bench.replication_site import TOLD
from testing.e2e.cluster import Cluster
from testing.e2e.command import run, wait_until
from testing.e2e.conftest import environment
from testing.e2e.mirrors import is_equal, wait_for_use
from testing.faults.support import has_booted, stopped, unplugged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from testing.bench.random_faults import Kind
    from testing.e2e.host import Host

CLIENTS: Final = 4
OUTAGE_PAUSE_SECONDS: Final = 2.0
"""Pause between two pushes while the broker is off."""
PAUSE_SECONDS: Final = (0.2, 3.0)
"""Pause between two faults."""
AWAY_SECONDS: Final = (0.5, 12.0)
"""How long a network is gone; a lease of the cluster lasts 10 s."""
KILL_SESSION: Final = "pgrep --uid hg --full hgfleet-shell | shuf --head-count=1 | xargs kill -9"


def kill_unit(host: Host, unit: str) -> None:
    """Kill the processes of a unit, which systemd starts again."""
    host.systemctl("kill", "--signal=KILL", unit).ok()


def kill_session(primary: Host) -> None:
    """Kill a session of hg, if there is one."""
    primary.run("sh", "-c", KILL_SESSION)


def kill_host(host: Host) -> None:
    """Kill all processes of a host at once, as a loss of power does, and start it again."""
    run(["docker", "kill", host.container]).ok()
    run(["docker", "start", host.container]).ok()
    wait_until(f"{host.name} has booted", lambda: has_booted(host), SECONDS)


class Faults(RandomFaults):
    """Breaks parts of the cluster until it is told to stop; then all parts work again."""

    def __init__(self, site: Site, seed: int) -> None:
        super().__init__(seed, PAUSE_SECONDS)
        self._site = site

    def kinds(self) -> list[Kind]:
        """Return the kinds of faults."""
        primary, broker, mirrors = self._site.primary, self._site.broker, self._site.mirrors

        def kind(name: str, weight: int, make: Callable[..., None], *arguments: object) -> Kind:
            def made() -> int:
                make(*arguments)
                return 1

            return name, weight, made

        return [
            kind("session", 8, kill_session, primary),
            kind("relay", 3, self._steadily, kill_unit, primary, "hgfleet-relay.service"),
            kind("broker", 2, kill_unit, broker, "hgfleet-broker.service"),
            *(kind("applier", 2, kill_unit, host, "hgfleet-applier.service") for host in mirrors),
            kind(f"host {broker.name}", 1, kill_host, broker),
            *(
                kind(f"host {host.name}", 1, self._steadily, kill_host, host)
                for host in (primary, *mirrors)
            ),
            *(
                kind(f"network of {host.name}", 1, self._cut_off, host)
                for host in (broker, *mirrors)
            ),
        ]

    def _steadily(self, make: Callable[..., None], *arguments: object) -> None:
        """Make a fault while no client needs the host to stay up."""
        with self._site.steady:
            make(*arguments)

    def _cut_off(self, host: Host) -> None:
        """Take the network of a host away for a time."""
        with contextmanager(unplugged)(self._site.cluster, host):
            time.sleep(self.random.uniform(*AWAY_SECONDS))


Row = tuple[str, bool, str]


def check(site: Site, clients: Sequence[Client]) -> list[Row]:
    """Compare all hosts with the acknowledgements of clients."""
    began = time.monotonic()

    def are_equal(client: Client) -> bool:
        first, *others = (site.log(host, client.path) for host in site.hosts)
        return all(other == first for other in others)

    try:
        for client in clients:
            wait_until(f"{client.path} is the same everywhere", partial(are_equal, client), SECONDS)
        for host in site.mirrors:
            wait_for_use(site.cluster, host)
        site.cluster.wait_for_mirrors()
        rows = [("mirrors caught up", True, f"after {time.monotonic() - began:.1f} s")]
    except AssertionError as problem:
        rows = [("mirrors caught up", False, str(problem))]
    lost = [push for client in clients for push in client.missing()]
    rows.append(("acknowledged pushes lost", not lost, f"{len(lost)} {' '.join(lost[:3])}"))
    lies = [lie for client in clients for lie in client.lies]
    rows.append(("told, and is not so", not lies, f"{len(lies)} {' '.join(lies[:3])}"))
    for host in site.mirrors:
        equal = host.run("hgfleet", "replication", "verify").code == 0 and is_equal(host)
        said = "" if equal else host.run("hgfleet", "replication", "verify").output
        rows.append((f"verify on {host.name}", equal, said or "all equal"))
    return [*rows, *check_states(site, clients), check_chains(site, clients)]


def check_states(site: Site, clients: Sequence[Client]) -> list[Row]:
    """Compare which repositories the hosts have, and look for remaining fences."""
    deleted = {identity for client in clients for identity in client.deleted}
    left = []
    for host in site.hosts:
        said = host.run("hgfleet", "replication", "positions").ok().stdout
        places = [json.loads(line) for line in said.splitlines() if not line.startswith("#")]
        there = {place["repository"]: place["path"] for place in places}
        left += [f"{host.name} {there[identity]} {identity}" for identity in deleted & there.keys()]
        left += [
            f"{host.name} has no {client.path} {client.identity}"
            for client in clients
            if there.get(client.identity) != client.path
        ]
    told = f"{len(deleted)} deleted; {' '.join(left[:3])}"
    fences = site.primary.run("hgfleet", "replication", "fences")
    return [
        ("identities on all hosts", not left, told),
        ("fences that are left", fences.code == 0, fences.output.strip()),
    ]


def check_chains(site: Site, clients: Sequence[Client]) -> Row:
    """Verify the push log of each repository on each host."""
    bad = []
    for host in site.hosts:
        for client in clients:
            words = f"/opt/hgfleet/current/bin/hg -R /srv/hg/repos/{client.path} debugpushlog"
            done = host.run(
                *("runuser", "-u", "hg", "--", "env", "HGRCPATH=/etc/hgfleet/hgrc"),
                *(*words.split(), "--verify"),
            )
            bad += [] if done.code == 0 else [f"{host.name}: {done.output}"]
    return ("chains and coverage", not bad, "; ".join(bad) or f"{len(clients)} on each host")


def check_cuts(clients: Sequence[CutClient]) -> list[Row]:
    """Print each power cut; return the losses, and the losses without a fence or alarm."""
    for line in (line for client in clients for line in client.told):
        print(line)
    silent = [loss for client in clients for loss in client.silent]
    cuts = [line.rpartition(": ")[2] for client in clients for line in client.told]
    outcomes = ", ".join(f"{count} {outcome}" for outcome, count in sorted(Counter(cuts).items()))
    records = sum(client.lost_records for client in clients)
    apart = sum(len(client.lost) for client in clients)
    return [
        ("power cuts that were silent", not silent, f"{len(silent)} {' '.join(silent[:3])}"),
        ("power cuts", True, f"{len(cuts)} of {records} records: {outcomes}"),
        ("acknowledged, not to return", True, f"{apart}, each after a power cut"),
    ]


def push_told(client: Client) -> str:
    """Push a changeset, which must be acknowledged; return the output of hg."""
    push, done = client.push(client.work, client.commit(client.work))
    assert push, done
    assert TOLD.search(done.output), done
    return done.output


def measure_outage(cluster: Cluster, options: argparse.Namespace, folder: Path) -> list[Row]:
    """Push while the broker is off; return the rows of the table."""
    site = Site(cluster)
    client = Client(site, 0, folder, 0, options.seed)
    said: list[str] = []
    slowest = 0.0
    try:
        client.begin()
        with contextmanager(stopped)(cluster, site.broker):
            ends = time.monotonic() + options.outage
            while (began := time.monotonic()) < ends:
                said.append(push_told(client))
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(OUTAGE_PAUSE_SECONDS)
        rows = check(site, [client])
    finally:
        client.delete()
    down = ["replication is down" in output for output in said]
    told = (
        f"{sum(down)} say so, the first one of them after {down.index(True)}" if any(down) else ""
    )
    return [
        ("pushes without a broker", bool(said), f"{len(said)}, the slowest {slowest:.1f} s"),
        ("that say so", any(down) and all(down[down.index(True) :]), told),
        *rows,
    ]


def measure(cluster: Cluster, options: argparse.Namespace, folder: Path) -> list[Row]:
    """Push under faults and compare; return the rows of the table."""
    site = Site(cluster)
    each = -(-options.pushes // CLIENTS)
    clients = [CutClient(site, number, folder, each, options.seed) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    began = time.monotonic()
    try:
        for client in clients:
            client.begin()
        with Faults(site, options.seed) as faults:
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        took = time.monotonic() - began
        count = sum(len(client.acknowledged) for client in clients)
        attempts = sum(client.attempts for client in clients)
        load = os.getloadavg()[0]
        print(f"seed {options.seed}, load {load:.1f}: {took:.0f} s, {attempts} attempts")
        print(f"faults: {faults}")
        made = sum((client.made for client in clients), Counter())
        print("changes:", ", ".join(f"{count} {name}" for name, count in sorted(made.items())))
        pushed = sum(client.pushed for client in clients)
        rows: list[Row] = [
            ("acknowledged pushes", pushed > 0, f"{pushed}, {count} of them to stay")
        ]
        rows += [
            ("a client that pushes", False, client.problem) for client in clients if client.problem
        ]
        if faults.problem:
            rows.append(("the faults", False, repr(faults.problem)))
        rows += check_cuts(clients)
        rows += check(site, clients)
    finally:
        with ExitStack() as stack:
            for client in clients:
                stack.callback(client.delete)
    return rows


def main() -> int:
    """Run the bench by the command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n", 1)[0])
    parser.add_argument("--pushes", type=int, default=300)
    parser.add_argument("--seed", type=int, default=11)
    parser.add_argument("--outage", type=float, default=0, metavar="SECONDS")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
        measured = measure_outage if options.outage else measure
        rows = measured(Cluster(environment()), options, Path(folder))
    for name, held, value in rows:
        print(f"{name:28} {'held' if held else 'MISSED':7} {value}")
    return 0 if all(held for _, held, _ in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
