"""Pushes to the cluster while sessions, daemons, whole hosts and networks go at random.

    ./cluster up
    PYTHONPATH=.:docker .venv/bin/python testing/bench/replication_cluster.py           # 300 pushes
    PYTHONPATH=.:docker .venv/bin/python testing/bench/replication_cluster.py --seed 7
    PYTHONPATH=.:docker .venv/bin/python testing/bench/replication_cluster.py --outage 300

Clients push over SSH to the primary of the local cluster. Meanwhile sessions of hg, the relay, the
appliers and the broker are killed (kill -9), containers of the primary, the mirrors and the broker
are killed and started again, and mirrors and broker lose their network for a time. The seed chooses
the faults; the machine chooses the points. A client whose push failed pushes again. A push is
acknowledged when its client was told so: exit code 0 and "push N recorded".

With `--outage` the broker is off for so many seconds instead, and one client pushes; no push may
fail, and each says that replication is down as soon as the primary knows.

Bars: every acknowledged push is in the push log of the primary and of each mirror, the mirrors'
`verify` finds all repositories equal, chains are valid, and the logs cover all changesets.

`replication_faults.py` does the same with processes of this machine, without hosts and networks.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import threading
import time
import uuid
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from random_faults import RandomFaults
from replication_site import TOLD

from hgfleet.pushlog import record
from testing.e2e.cluster import Cluster
from testing.e2e.command import run, wait_until
from testing.e2e.conftest import environment
from testing.e2e.mirrors import is_equal, mirrors_of, wait_for_use
from testing.faults.support import has_booted, stopped, unplugged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from random_faults import Kind

    from testing.e2e.host import Host
    from testing.e2e.people import Clone

CLIENTS: Final = 4
ATTEMPTS: Final = 100
RETRY_SECONDS: Final = 1.0
OUTAGE_PAUSE_SECONDS: Final = 2.0
"""Between two pushes while the broker is off."""
SECONDS: Final = 180
"""For states that come by themselves after the last fault."""
PAUSE_SECONDS: Final = (0.2, 3.0)
"""Between two faults."""
AWAY_SECONDS: Final = (0.5, 12.0)
"""For which a network is gone; a lease of the cluster lasts 10 s."""
KILL_SESSION: Final = "pgrep --uid hg --full hgfleet-shell | shuf --head-count=1 | xargs kill -9"


def kill_unit(host: Host, unit: str) -> None:
    """Kill the processes of a unit, which systemd starts again."""
    host.systemctl("kill", "--signal=KILL", unit).ok()


def kill_session(primary: Host) -> None:
    """Kill one session of hg; it is no fault if there is none."""
    primary.run("sh", "-c", KILL_SESSION)


def kill_host(host: Host) -> None:
    """Kill all processes of a host at once, as a loss of power does, and start it again."""
    run(["docker", "kill", host.container]).ok()
    run(["docker", "start", host.container]).ok()
    wait_until(f"{host.name} has booted", lambda: has_booted(host), SECONDS)


class Faults(RandomFaults):
    """Breaks parts of the cluster until it is told to stop; then all of them are back."""

    def __init__(self, cluster: Cluster, seed: int) -> None:
        super().__init__(seed, PAUSE_SECONDS)
        self._cluster = cluster

    def kinds(self) -> list[Kind]:
        """Return the kinds of faults."""
        primary, broker = self._cluster.first("ssh"), self._cluster.first("broker")
        mirrors = mirrors_of(self._cluster)

        def kind(name: str, weight: int, make: Callable[..., None], *arguments: object) -> Kind:
            def made() -> int:
                make(*arguments)
                return 1

            return name, weight, made

        return [
            kind("session", 8, kill_session, primary),
            kind("relay", 3, kill_unit, primary, "hgfleet-relay.service"),
            kind("broker", 2, kill_unit, broker, "hgfleet-broker.service"),
            *(kind("applier", 2, kill_unit, host, "hgfleet-applier.service") for host in mirrors),
            *(
                kind(f"host {host.name}", 1, kill_host, host)
                for host in (primary, broker, *mirrors)
            ),
            *(
                kind(f"network of {host.name}", 1, self._cut_off, host)
                for host in (broker, *mirrors)
            ),
        ]

    def _cut_off(self, host: Host) -> None:
        """Take the network of a host away for a time."""
        with contextmanager(unplugged)(self._cluster, host):
            time.sleep(self.random.uniform(*AWAY_SECONDS))


class Client:
    """Pushes changesets to a repository of its own, one by one."""

    def __init__(self, cluster: Cluster, number: int, folder: Path, pushes: int) -> None:
        person = cluster.person("alice")
        self.path = f"people/alice/faults-{number}-{uuid.uuid4().hex[:8]}"
        self.acknowledged: dict[int, str] = {}
        self.attempts = 0
        self.problem = ""
        self._person, self._pushes = person, pushes
        person.ssh("repo", "create", self.path).ok()
        self._work: Clone = person.clone(person.ssh_url(self.path), folder / str(number))

    def run(self) -> None:
        """Push everything; a push without an acknowledgement is tried again."""
        for _ in range(self._pushes):
            node = self._work.commit("file.txt", os.urandom(512), "in spite of it")
            for _attempt in range(ATTEMPTS):
                self.attempts += 1
                done = self._work.hg("push")
                told = TOLD.search(done.output)
                if done.code == 0 and told:
                    self.acknowledged[int(told[1])] = node
                    break
                if done.code == 1 and "no changes found" in done.output:
                    # The session was killed after its transaction.
                    break
                time.sleep(RETRY_SECONDS)
            else:
                self.problem = f"{self.path}: {done}"
                return

    def push(self) -> str:
        """Push a changeset, which must be acknowledged; return what was told."""
        node = self._work.commit("file.txt", os.urandom(512), "without a broker")
        done = self._work.hg("push").ok()
        told = TOLD.search(done.output)
        assert told, done
        self.acknowledged[int(told[1])] = node
        return done.output

    def logs(self, hosts: Sequence[Host]) -> list[str]:
        """Return the push log of each host."""
        return [host.shell(f"cat /srv/hg/repos/{self.path}/.hg/store/pushlog") for host in hosts]

    def lost(self, log: str) -> list[str]:
        """Return what was acknowledged and is not in a push log."""
        records = [record.parse(line.encode()) for line in log.splitlines()]
        found = {one.id: one.changesets for one in records}
        return [
            f"{self.path} {number} {node}"
            for number, node in self.acknowledged.items()
            if node not in found.get(number, ())
        ]

    def delete(self) -> None:
        """Remove the repository from the cluster."""
        self._person.ssh("repo", "archive", self.path)
        self._person.ssh("repo", "delete", self.path, self.path).ok()


Row = tuple[str, bool, str]


def check(cluster: Cluster, clients: Sequence[Client]) -> list[Row]:
    """Compare all hosts with what clients were told."""
    mirrors = mirrors_of(cluster)
    hosts = [cluster.first("ssh"), *mirrors]
    began = time.monotonic()

    def are_equal(client: Client) -> bool:
        return len(set(client.logs(hosts))) == 1

    try:
        for client in clients:
            wait_until(f"{client.path} is the same everywhere", partial(are_equal, client), SECONDS)
        for host in mirrors:
            wait_for_use(cluster, host)
        rows = [("mirrors caught up", True, f"after {time.monotonic() - began:.1f} s")]
    except AssertionError as problem:
        rows = [("mirrors caught up", False, str(problem))]
    lost = [one for client in clients for log in client.logs(hosts) for one in client.lost(log)]
    rows.append(("acknowledged pushes lost", not lost, f"{len(lost)} {' '.join(lost[:3])}"))
    for host in mirrors:
        equal = is_equal(host)
        said = "" if equal else host.run("hgfleet", "replication", "verify").output
        rows.append((f"verify on {host.name}", equal, said or "all equal"))
    bad = []
    for host in hosts:
        for client in clients:
            words = f"/opt/hgfleet/current/bin/hg -R /srv/hg/repos/{client.path} debugpushlog"
            done = host.run(
                *("runuser", "-u", "hg", "--", "env", "HGRCPATH=/etc/hgfleet/hgrc"),
                *(*words.split(), "--verify"),
            )
            bad += [] if done.code == 0 else [f"{host.name}: {done.output}"]
    rows.append(("chains and coverage", not bad, "; ".join(bad) or f"{len(clients)} on each host"))
    return rows


def measure_outage(cluster: Cluster, options: argparse.Namespace, folder: Path) -> list[Row]:
    """Push while the broker is off; return the rows of the table."""
    client = Client(cluster, 0, folder, 0)
    said: list[str] = []
    slowest = 0.0
    try:
        with contextmanager(stopped)(cluster, cluster.first("broker")):
            ends = time.monotonic() + options.outage
            while (began := time.monotonic()) < ends:
                said.append(client.push())
                slowest = max(slowest, time.monotonic() - began)
                time.sleep(OUTAGE_PAUSE_SECONDS)
        rows = check(cluster, [client])
    finally:
        client.delete()
    down = ["replication is down" in one for one in said]
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
    each = -(-options.pushes // CLIENTS)
    clients = [Client(cluster, number, folder, each) for number in range(CLIENTS)]
    threads = [threading.Thread(target=client.run) for client in clients]
    began = time.monotonic()
    try:
        with Faults(cluster, options.seed) as faults:
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
        rows: list[Row] = [("acknowledged pushes", count > 0, f"{count} of {each * CLIENTS}")]
        rows += [("a client that pushes", False, one.problem) for one in clients if one.problem]
        if faults.problem:
            rows.append(("the faults", False, repr(faults.problem)))
        rows += check(cluster, clients)
    finally:
        for client in clients:
            client.delete()
    return rows


def main() -> int:
    """Run as the command says."""
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
