"""A client of the cluster that pushes to a repository of its own and changes it between pushes.

Between pushes the owner renames the repository, deletes it and makes another at the same path, and
archives and restores it. A session, a host or a network may fail during each of these commands, so
the owner checks the effect of a failed command and tries again.

Every push is a `Push`: the identity of the repository, the number of the record, its changeset and,
once it is read from a log, the hash of the record.
"""

from __future__ import annotations

import os
import threading
import time
import uuid
from collections import Counter
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Final

from hgfleet.pushlog import record
from testing.bench.replication_site import TOLD
from testing.e2e.command import wait_until
from testing.e2e.mirrors import mirrors_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.host import Host
    from testing.e2e.people import Clone

OWNERS: Final = ("alice", "bob")
"""The owners of the clients' repositories, in turn: a person may own only five repositories."""
ATTEMPTS: Final = 100
RETRY_SECONDS: Final = 1.0
SECONDS: Final = 180
"""For states that arrive by themselves after a fault."""
EVERY: Final = 5
"""Pushes between two changes of the repository."""
REPOSITORIES: Final = "/srv/hg/repos"
CONTROL: Final = 'p=$(printf %s "$1"); cat "/srv/hg/repos/$p/.hg/store/pushlog" 2>/dev/null || :'


@dataclass(frozen=True)
class Push:
    """A push that a client was told is recorded, and the number of mirrors in the message."""

    identity: str
    number: int
    node: str
    shown: int = 0

    def __str__(self) -> str:
        return f"{self.identity[:8]} {self.number} {self.node[:12]}"


class Site:
    """The hosts of the cluster. `steady` is held while a host may not be killed."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.steady = threading.RLock()
        self.primary = cluster.first("ssh")
        self.mirrors = mirrors_of(cluster)
        self.broker = cluster.first("broker")

    @property
    def hosts(self) -> list[Host]:
        """The primary and its mirrors."""
        return [self.primary, *self.mirrors]

    def log(self, host: Host, path: str) -> list[tuple[str, record.Record]]:
        """Return the records of a push log with their hashes; waits for a host that starts."""

        def read() -> list[str]:
            # The first item distinguishes an empty log from no answer.
            return ["", *host.run("sh", "-c", CONTROL, "sh", path).ok().stdout.splitlines()]

        lines = wait_until(f"{host.name} has the log of {path}", read, SECONDS)[1:]
        return [(record.hash_of(line.encode()), record.parse(line.encode())) for line in lines]

    def shell(self, host: Host, script: str) -> str:
        """Run a script that may run twice; waits for a host that starts."""
        return wait_until(f"{host.name}: {script}", lambda: ["", host.shell(script)], SECONDS)[1]

    def showing(self, push: Push, path: str) -> int:
        """Return how many mirrors have a push in their logs."""
        return sum(
            any(entry.id == push.number and push.node in entry.changesets for _, entry in log)
            for log in (self.log(mirror, path) for mirror in self.mirrors)
        )


class Client:
    """Pushes single changesets to a repository, and changes the repository between pushes."""

    def __init__(self, site: Site, number: int, folder: Path, pushes: int, seed: int) -> None:
        self.site, self.folder = site, folder / str(number)
        self.folder.mkdir()
        owner = OWNERS[number % len(OWNERS)]
        self.path = f"people/{owner}/faults-{number}-{uuid.uuid4().hex[:8]}"
        self.acknowledged: dict[tuple[str, int], Push] = {}
        self.lost: list[Push] = []
        """Acknowledged pushes lost by a power cut: each loss was reported, or no host had it."""
        self.lies: list[str] = []
        """Pushes whose message named more mirrors than have them."""
        self.deleted: list[str] = []
        self.made: Counter[str] = Counter()
        self.attempts = self.pushed = 0
        self.problem = ""
        self.random = Random(f"{seed} {number}")
        self.person = site.cluster.person(owner)
        self.changes: dict[str, Callable[[], None]] = {
            "rename": self.rename,
            "recreation": self.recreate,
            "archive and restore": self.restore,
        }
        self._number, self._pushes = number, pushes
        self._clones = 0
        self.identity = ""

    def begin(self) -> None:
        """Make the repository and the clone."""
        self.person.ssh("repo", "create", self.path).ok()
        self.identity = self.site.cluster.identity(self.path)
        self.work: Clone = self.person.clone(self.url, self.folder / "work")

    @property
    def url(self) -> str:
        """The address of the repository now."""
        return self.person.ssh_url(self.path)

    def run(self) -> None:
        """Push everything, and change the repository from time to time."""
        try:
            changes = self._order()
            for count in range(1, self._pushes + 1):
                self.push_on()
                if self.changes and count % EVERY == 0:
                    name = next(changes)
                    self.changes[name]()
                    self.made[name] += 1
        except (AssertionError, OSError, ValueError) as problem:
            self.problem = f"{self.path}: {problem}"

    def _order(self) -> Iterator[str]:
        """Yield each kind of change equally often, in an order that the seed chooses."""
        while True:
            yield from self.random.sample(sorted(self.changes), len(self.changes))

    # -- pushes ----------------------------------------------------------------------------------

    def push_on(self) -> Push | None:
        """Push another changeset until it is acknowledged, or the server already has it."""
        node = self.commit(self.work)
        for _attempt in range(ATTEMPTS):
            push, done = self.push(self.work, node)
            # Without an acknowledgement, the session was killed after its transaction.
            if push or (done.code == 1 and "no changes found" in done.output):
                return push
            time.sleep(RETRY_SECONDS)
        raise AssertionError(f"no push in {ATTEMPTS} attempts: {done}")

    def commit(self, clone: Clone) -> str:
        """Commit a unique changeset; return its hash."""
        return clone.commit("file.txt", os.urandom(512), "in spite of it")

    def push(self, clone: Clone, node: str) -> tuple[Push | None, Result]:
        """Push once; return the push if the client was told that it is recorded."""
        self.attempts += 1
        done = clone.hg("push", self.url)
        told = TOLD.search(done.output)
        if done.code or not told:
            return None, done
        self.pushed += 1
        push = Push(self.identity, int(told[1]), node, int(told[2] or 0))
        before = self.acknowledged.setdefault((push.identity, push.number), push)
        if before.node != node:
            self.lies.append(f"told twice: {before} and {push}")
        return push, done

    def another_clone(self, *options: str) -> Clone:
        """Clone the client's own clone, on its machine."""
        self._clones += 1
        place = self.folder / f"clone{self._clones}"
        return self.person.clone(str(self.work.path), place, "--quiet", *options)

    # -- changes ---------------------------------------------------------------------------------

    def owner(self, command: str, *words: str, is_done: Callable[[], bool]) -> None:
        """Run a command of the owner until it succeeds, or a failed command has had its effect."""
        for _attempt in range(ATTEMPTS):
            done = self.person.ssh("repo", command, *words)
            if done.code == 0 or is_done():
                return
            time.sleep(RETRY_SECONDS)
        raise AssertionError(f"not done in {ATTEMPTS} attempts: {done}")

    def is_there(self, path: str) -> bool:
        """Whether the owner sees a repository that is in service."""
        return self.person.ssh("repo", "info", path).code == 0

    def is_archived(self, path: str) -> bool:
        """Whether a repository is among the owner's archived repositories."""
        done = self.person.ssh("repo", "list", "--archived")
        return done.code == 0 and path in done.stdout.split()

    def rename(self) -> None:
        """Give the repository another path."""
        former, _, _ = self.path.partition(".")
        path = f"{former}.{sum(self.made.values())}"
        self.owner("rename", self.path, path, is_done=lambda: self.is_there(path))
        self.path = path

    def restore(self) -> None:
        """Archive the repository, see pushes refused, and restore it."""
        path = self.path
        self.owner("archive", path, is_done=lambda: self.is_archived(path))
        if self.push(self.work, self.commit(self.work))[0]:
            self.lies.append(f"{path}: a push to an archived repository was recorded")
        self.owner("restore", path, is_done=lambda: self.is_there(path))

    def recreate(self) -> None:
        """Delete the repository, and push everything to a new repository at the same path."""
        path = self.path
        self.owner("archive", path, is_done=lambda: self.is_archived(path))
        self.owner(
            *("delete", path, path),
            is_done=lambda: not (self.is_archived(path) or self.is_there(path)),
        )
        self.owner("create", path, is_done=lambda: self.is_there(path))
        self.deleted.append(self.identity)
        identity = wait_until("it is there", lambda: self.site.cluster.identity(path), SECONDS)
        if identity == self.identity:
            self.lies.append(f"{path}: the recreated repository is {identity}, as the deleted one")
        self.acknowledged = {
            key: push for key, push in self.acknowledged.items() if key[0] != self.identity
        }
        self.identity = identity

    def delete(self) -> None:
        """Remove the repository from the cluster."""
        self.person.ssh("repo", "archive", self.path)
        self.person.ssh("repo", "delete", self.path, self.path).ok()

    # -- the accounts ----------------------------------------------------------------------------

    def missing(self) -> list[str]:
        """Return acknowledged pushes that are not in the log of each host, by identity and hash."""
        missing = []
        logs = {host.name: self.site.log(host, self.path) for host in self.site.hosts}
        hashes = {entry.id: hash_ for hash_, entry in logs[self.site.primary.name]}
        for name, log in logs.items():
            here = {
                (entry.repository, entry.id, hash_, node)
                for hash_, entry in log
                for node in entry.changesets
            }
            missing += [
                f"{name} {self.path} {push}"
                for push in self.acknowledged.values()
                if (push.identity, push.number, hashes.get(push.number), push.node) not in here
            ]
        return missing
