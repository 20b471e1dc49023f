"""Power cuts on the cluster: the store of a repository is put back by one to three records.

A cut has the effect of a disk that did not sync: records that the primary had are gone, while
broker and mirrors have them. The relay runs on, or is killed and starts again with its positions,
without them, or with older positions. Other pushes follow, whose records have the numbers of the
lost records. Then the fence has to be there, with the number and the hash of a lost record, and
pushes have to be refused. The operator brings the lost pushes back from a mirror, or gives them up,
as the runbook says, even if the repository was renamed in between. Other faults happen at the same
time, so the operator, too, tries again.
"""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import dataclass
from functools import partial
from itertools import product
from typing import TYPE_CHECKING, Final

from testing.bench.cluster_client import REPOSITORIES, SECONDS, Client
from testing.e2e.command import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from testing.bench.cluster_client import Push, Site
    from testing.e2e.host import Host
    from testing.e2e.people import Clone

FENCE_SECONDS: Final = 150
"""For the relay to notice a loss: it reads all push logs every 30 s, and its host may be away."""

RUNS, RESTARTS, FORGETS, GOES_BACK = (
    "relay runs",
    "relay restarts",
    "relay restarts without positions",
    "relay restarts with older positions",
)
WAITS, AT_ONCE = "mirrors have them", "at once"
BACK, GIVEN_UP = "brought back", "given up"

REFUSED: Final = "nothing was changed: mirrors have a push"
POSITIONS: Final = "/var/lib/hgfleet-relay"
KEEP: Final = f"""\
import os, sqlite3
os.makedirs("/var/tmp/bench-positions", exist_ok=True)
there = sqlite3.connect("/var/tmp/bench-positions/NAME")
sqlite3.connect("file:{POSITIONS}/positions.sqlite?mode=ro", uri=True).backup(there)
"""
TAKE: Final = f"""\
find {POSITIONS} -mindepth 1 -delete
if [ -e /var/tmp/bench-positions/NAME ]; then
    install -o hg -g hg -m 600 /var/tmp/bench-positions/NAME {POSITIONS}/positions.sqlite
fi
"""


@dataclass(frozen=True)
class Cut:
    """Lost pushes, whether mirrors have them, the relay's fate, later pushes, and the way out."""

    lost: int
    published: str
    relay: str
    pushes: int
    is_renamed: bool
    way: str


class CutClient(Client):
    """A client whose primary loses power; `silent` are losses without a fence or alarm."""

    def __init__(self, site: Site, number: int, folder: Path, pushes: int, seed: int) -> None:
        super().__init__(site, number, folder, pushes, seed)
        self.silent: list[str] = []
        self.told: list[str] = []
        """A line for each cut."""
        self.lost_records = 0
        self.changes["power cut"] = self.power_cut
        every = product(
            (1, 2, 3),
            (WAITS, WAITS, AT_ONCE),
            (RUNS, RESTARTS, FORGETS, GOES_BACK),
            (0, 1, 2),
            (False, True),
            (BACK, GIVEN_UP),
        )
        cuts = [Cut(*parts) for parts in every]
        self.random.shuffle(cuts)
        self._cuts: Iterator[Cut] = iter(cuts)

    def power_cut(self) -> None:
        """Push, cut the power, push other changesets, and have an operator decide."""
        cut = next(self._cuts)
        self._push_acknowledged()
        kept = self._keep()
        other = self.another_clone()
        pushes = [self._push_acknowledged() for _ in range(cut.lost)]
        if cut.published == WAITS:
            for mirror in self.site.mirrors:
                self._wait_for(mirror, pushes[-1])
        lost = self._cut(cut, kept)
        for push in pushes:
            self._judge(push)
            self.acknowledged.pop((push.identity, push.number), None)
        after = self._push_others(cut, other)
        fenced = self._fenced(lost)
        outcome = "no host has them"
        if fenced is None:
            self._is_unheard(lost)
            self.lost += pushes
            self.work = other
        else:
            self._see_refusals(cut, other, after)
            if cut.is_renamed:
                self.rename()
            if cut.way == BACK:
                self._bring_back(fenced)
                self._account(pushes, after)
            else:
                self._give_up()
                self.lost += pushes
                self.work = other
            outcome = cut.way
        self.lost_records += len(lost)
        self.told.append(f"{self.path}: {len(lost)} lost, {len(after)} after it, {cut}: {outcome}")
        self._push_acknowledged()

    def _push_acknowledged(self) -> Push:
        while (push := self.push_on()) is None:
            pass
        return push

    def _judge(self, push: Push) -> None:
        """Compare what a client was told with the logs of the mirrors."""
        if push.shown and (shown := self.site.showing(push, self.path)) < push.shown:
            self.lies.append(f"{self.path} {push}: told {push.shown} mirrors, is on {shown}")

    def _wait_for(self, mirror: Host, push: Push) -> None:
        def has() -> bool:
            log = self.site.log(mirror, self.path)
            return any(push.node in entry.changesets for _, entry in log)

        wait_until(f"{mirror.name} has {push}", has, SECONDS)

    # -- the cut ---------------------------------------------------------------------------------

    def _store(self) -> str:
        return shlex.quote(f"{REPOSITORIES}/{self.path}/.hg")

    def _keep(self) -> str:
        """Copy the store and the positions of the relay, as they are on the disk."""
        name = f"{self.identity}.sqlite"
        script = f"cd {self._store()} && rm -rf bench-store && cp -a store bench-store"
        with self.site.steady:
            self.site.shell(self.site.primary, script)
            words = ("python3", "-c", KEEP.replace("NAME", name))
            wait_until("positions are kept", lambda: self.site.primary.run(*words).ok(), SECONDS)
        return name

    def _cut(self, cut: Cut, kept: str) -> dict[int, str]:
        """Put the store back; return the hashes of the lost records by their numbers."""
        primary, relay = self.site.primary, "hgfleet-relay.service"
        with self.site.steady:
            before = self.site.log(primary, self.path)
            if cut.relay != RUNS:
                primary.systemctl("kill", "--signal=KILL", relay)
                self.site.shell(primary, f"systemctl stop {relay}")
            script = "rm -rf bench-lost && mv -T store bench-lost && mv -T bench-store store"
            primary.shell(f"cd {self._store()} && {script}")
            if cut.relay in (FORGETS, GOES_BACK):
                place = kept if cut.relay == GOES_BACK else "none"
                primary.shell(TAKE.replace("NAME", place))
            if cut.relay != RUNS:
                primary.shell(f"systemctl reset-failed {relay} || :; systemctl start {relay}")
            left = self.site.log(primary, self.path)
        assert before[: len(left)] == left, f"{self.path}: the store was not put back"
        return {entry.id: hash_ for hash_, entry in before[len(left) :]}

    def _push_others(self, cut: Cut, other: Clone) -> list[Push]:
        """Push other changesets after the cut; return the recorded pushes."""
        after = []
        for _ in range(cut.pushes):
            push, _ = self.push(other, self.commit(other))
            if push is not None:
                self._judge(push)
                after.append(push)
        return after

    # -- the fence -------------------------------------------------------------------------------

    def _fences(self) -> Sequence[dict[str, object]]:
        """Return the fence of the repository, if there is a fence."""
        done = self.site.primary.run("hgfleet", "replication", "fences", "--json")
        assert done.code in (0, 65), done
        lines = [json.loads(line) for line in done.stdout.splitlines()]
        return [fence for fence in lines if fence["repository"] == self.identity]

    def _fenced(self, lost: dict[int, str]) -> dict[str, object] | None:
        """Return the fence, which has to name a lost record; None if no fence appeared."""
        try:
            (fence,) = wait_until(f"{self.path} is fenced", self._fences, FENCE_SECONDS)
        except AssertionError:
            return None
        number = fence["number"]
        if not isinstance(number, int) or lost.get(number) != fence["hash"]:
            self.silent.append(f"{self.path}: the fence names {number}, lost are {sorted(lost)}")
        return fence

    def _is_unheard(self, lost: dict[int, str]) -> None:
        """Without a fence: record each mirror that has a lost record."""
        for mirror in self.site.mirrors:
            log = self.site.log(mirror, self.path)
            had = [entry.id for hash_, entry in log if lost.get(entry.id) == hash_]
            if had:
                self.silent.append(f"{self.path}: {mirror.name} has {had}, and no fence came")

    def _see_refusals(self, cut: Cut, other: Clone, after: list[Push]) -> None:
        """Push to the fenced repository, if need be after a restart of the relay, until refused."""
        node = self.commit(other)
        if cut.relay == RUNS:
            with self.site.steady:
                self.site.shell(self.site.primary, "systemctl restart hgfleet-relay.service")

        def refused() -> bool:
            push, done = self.push(other, node)
            if push is not None:
                self.silent.append(f"{self.path}: recorded in spite of the fence: {done}")
                after.append(push)
                return True
            return REFUSED in done.output

        wait_until(f"{self.path} refuses pushes", refused, SECONDS, every=1)

    # -- operators -------------------------------------------------------------------------------

    def _bring_back(self, fence: dict[str, object]) -> None:
        """Copy the store of a mirror to the primary and lift the fence, as the runbook says."""
        number, mirror = fence["number"], self.random.choice(self.site.mirrors)

        def has() -> bool:
            log = self.site.log(mirror, self.path)
            return any(entry.id == number and hash_ == fence["hash"] for hash_, entry in log)

        wait_until(f"{mirror.name} has push {number} of {self.path}", has, SECONDS)
        with self.site.steady:
            folder = self._store()
            packed = self.site.shell(mirror, f"tar -C {folder} -c store | base64")
            script = f"cd {folder} && rm -rf bench-cut && mv -T store bench-cut"
            self.site.shell(self.site.primary, script)
            script = f"base64 -d | tar -C {folder} -xp"
            self.site.primary.run("sh", "-ec", script, stdin=packed).ok()
        self._lift()

    def _account(self, pushes: Sequence[Push], after: Sequence[Push]) -> None:
        """Count the restored pushes as acknowledged again, instead of the pushes after the cut."""
        for push in after:
            self.acknowledged.pop((push.identity, push.number), None)
        nodes = {
            n for _, entry in self.site.log(self.site.primary, self.path) for n in entry.changesets
        }
        back = [lost for lost in pushes if lost.node in nodes]
        self.acknowledged.update({(lost.identity, lost.number): lost for lost in back})
        # The last push may have reached no mirror when the power failed.
        self.lost += [*after, *(lost for lost in pushes if lost not in back)]

    def _lift(self, *words: str) -> None:
        command = ("hgfleet", "replication", "lift", self.path, *words)

        def lifted() -> bool:
            done = self.site.primary.run(*command)
            # A killed run may already have lifted the fence.
            return done.code == 0 or not self._fences() or bool(done.ok())

        wait_until(f"the fence of {self.path} is lifted", lifted, SECONDS)

    def _give_up(self) -> None:
        """Give the lost pushes up, as the refusal says; mirrors then fetch the repository again."""
        command = ("hgfleet", "replication", "lift", self.path)

        def asked() -> str:
            told = re.search(r"--accept-loss (\S+)", self.site.primary.run(*command).stderr)
            return told[1] if told else ""

        ids = wait_until(f"lift of {self.path} names the pushes", asked, SECONDS)
        self._lift("--accept-loss", ids)
        for mirror in self.site.mirrors:
            done = partial(self._is_resynced, mirror)
            wait_until(f"{mirror.name} makes {self.path} anew", done, SECONDS, every=1)

    def _is_resynced(self, mirror: Host) -> bool:
        return bool(mirror.run("hgfleet", "replication", "resync", self.path).ok())
