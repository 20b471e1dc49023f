"""Power cuts of a primary: a store is put back by some records, and pushes continue.

A round has a repository of its own. Four pushes are visible on both mirrors; then the store is put
back by one to three records, as by a disk that was not synced, while the relay runs, restarts, or
restarts without its positions. Other pushes follow, whose records have the numbers and the lengths
of the lost records. Afterwards the fence has to be there and to stay, the store is copied back from
a mirror, an operator lifts the fence, and a push succeeds.
"""

from __future__ import annotations

import asyncio
import re
import shutil
import subprocess
import time
from itertools import product
from random import Random
from typing import TYPE_CHECKING, Final, NamedTuple

from hgfleet.pushlog import log_file
from hgfleet.replication.promotion import lifting
from hgfleet.replication.terms import repository_fences
from testing.bench.replication_site import until
from testing.integration.support import site as host_site

if TYPE_CHECKING:
    from pathlib import Path

    from hgfleet.replication.terms.repository_fences import Fenced
    from testing.bench.replication_site import ReplicatedSite

BEFORE: Final = 4
"""Number of pushes before the cut."""

FENCE_SECONDS: Final = 60.0
"""For the relay to notice the loss: it reads all push logs every 30 s."""

VISIBLE: Final = re.compile(r"push (\d+) recorded; .*visible on (\d+)/\d+ mirrors")


class Cut(NamedTuple):
    """Lost pushes, the fate of the relay, and how many pushes follow before the check."""

    lost: int
    relay: str
    pushes: int


RUNS, RESTARTS, FORGETS, GOES_BACK = (
    "runs",
    "restarts",
    "restarts without positions",
    "restarts with older positions",
)


def cuts(seed: int, count: int) -> list[Cut]:
    """Return so many different cuts, chosen by the seed."""
    every = [
        Cut(*parts) for parts in product((1, 2, 3), (RUNS, RESTARTS, FORGETS, GOES_BACK), (0, 1, 3))
    ]
    Random(seed).shuffle(every)
    return every[:count]


class Round:
    """A repository and its cut; `lies` are wrong messages, `problems` are missing ones."""

    def __init__(self, site: ReplicatedSite, number: int, cut: Cut) -> None:
        self.path, self.cut = f"bench/cut{number}", cut
        self.lies: list[str] = []
        self.problems: list[str] = []
        self._site, self._folder = site, site.folder / f"cut{number}"
        self._folder.mkdir()
        self._clone = site.clone(f"cut{number}/clone", BEFORE + 1)

    def run(self) -> None:
        """Push, cut the power, push again, check the fence, and restore the store."""
        for revision in range(BEFORE):
            self._snapshot(revision)
            if revision == BEFORE - self.cut.lost:
                self._keep_positions()
            said = self._push(self._clone, revision)
            if not (VISIBLE.search(said) or "recorded" in said):
                self.problems.append(f"before the cut: {said}")
                return
        until("the mirrors show the pushes", lambda: set(self._tips()) == {BEFORE})
        other = self._other()
        self._cut()
        for revision in range(self.cut.pushes):
            self._push(other, BEFORE - self.cut.lost + revision)
        fenced = self._fenced()
        if fenced is None:
            self.problems.append(f"{self.path}: {self.cut} was silent")
            return
        self._site.kill_relay()
        self._site.start_relay()
        said = self._push(other, BEFORE - self.cut.lost + self.cut.pushes)
        if "nothing was changed: mirrors have a push" not in said:
            self.problems.append(f"{self.path}: a push to a fenced repository: {said}")
        self._bring_back(fenced)

    def _push(self, clone: Path, revision: int) -> str:
        """Push, and compare the answer with the logs of the mirrors."""
        done = self._site.push(clone, self.path, revision)
        told = VISIBLE.search(done.stdout)
        if told and int(told[2]):
            node = self._node(clone, revision)
            shown = sum(
                node in self._nodes(mirror.path(self.path), int(told[1]))
                for mirror in self._site.mirrors
            )
            if shown < int(told[2]):
                self.lies.append(f"{self.path}: {self.cut}: on {shown} mirrors: {told[0]}")
        return done.stdout

    @staticmethod
    def _nodes(repository: Path, number: int) -> tuple[str, ...]:
        entries = log_file.entries(repository / ".hg/store/pushlog")
        return next((entry.record.changesets for entry in entries if entry.record.id == number), ())

    def _node(self, clone: Path, revision: int) -> str:
        return self._hg("-R", str(clone), "log", "-r", str(revision), "-T", "{node}")

    def _hg(self, *words: str) -> str:
        environment = self._site.client_environment()
        done = subprocess.run(
            [str(host_site.HG), *words], env=environment, capture_output=True, text=True, check=True
        )
        return done.stdout

    def _tips(self) -> list[int]:
        return [self._site.tip(host, self.path) for host in self._site.all_hosts()]

    def _store(self) -> Path:
        return self._site.primary.path(self.path) / ".hg/store"

    def _snapshot(self, revision: int) -> None:
        shutil.copytree(self._store(), self._folder / f"store{revision}", symlinks=True)

    def _keep_positions(self) -> None:
        """Keep the relay's positions from before the pushes that will be lost."""
        self._kept = self._folder / "positions"
        shutil.copytree(self._site.primary.settings.positions, self._kept)

    def _other(self) -> Path:
        """Make a clone with other changesets of the same shape after the cut."""
        other, kept = self._folder / "other", BEFORE - self.cut.lost
        last = str(kept - 1)
        self._hg("clone", "-q", "-r", last, str(self._clone), str(other))
        for number in range(kept, kept + self.cut.pushes + 1):
            (other / f"nf{number}").write_text(f"other {number}\n")
            words = ["-R", str(other), "--cwd", str(other), "commit", "-A", "-q"]
            self._hg(*words, "-m", f"s{number}")
        return other

    def _cut(self) -> None:
        site, cut = self._site, self.cut
        if cut.relay != RUNS:
            site.kill_relay()
        shutil.rmtree(self._store())
        snapshot = self._folder / f"store{BEFORE - cut.lost}"
        shutil.copytree(snapshot, self._store(), symlinks=True)
        positions = site.primary.settings.positions
        if cut.relay in (FORGETS, GOES_BACK):
            shutil.rmtree(positions)
            if cut.relay == FORGETS:
                positions.mkdir()
            else:
                shutil.copytree(self._kept, positions)
        if cut.relay != RUNS:
            site.start_relay()
            until("the mirrors are live", site.all_are_live)

    def _fenced(self) -> Fenced | None:
        """Return the fence, when the relay has made it."""
        end = time.monotonic() + FENCE_SECONDS
        terms = self._site.primary.settings.terms
        while time.monotonic() < end:
            for fenced in repository_fences.read(terms).values():
                if fenced.path == self.path:
                    return fenced
            time.sleep(0.1)
        return None

    def _bring_back(self, fenced: Fenced) -> None:
        site = self._site
        shutil.rmtree(self._store())
        mirror = site.mirrors[0].path(self.path) / ".hg/store"
        shutil.copytree(mirror, self._store(), symlinks=True)
        asyncio.run(lifting.lift(site.primary.settings, None, fenced, ()))
        said = self._push(self._clone, BEFORE)
        if f"push {BEFORE + 1} recorded" not in said or "mirrors do not get it" in said:
            self.problems.append(f"{self.path}: after the fence: {said}")
            return
        until("the mirrors show it", lambda: set(self._tips()) == {BEFORE + 1})


def measure(rounds: list[Round]) -> list[tuple[str, bool, str]]:
    """Run the rounds; return rows: the failure, whether the bar is held, the measurement."""
    for each in rounds:
        each.run()
        said = "; ".join([*each.lies, *each.problems]) or "fenced"
        print(f"{each.path}: {each.cut}: {said}", flush=True)
    lies = [lie for each in rounds for lie in each.lies]
    problems = [problem for each in rounds for problem in each.problems]
    count = f"{len(rounds)} power cuts"
    return [
        ("told visible, and are not", not lies, f"{len(lies)} in {count} {' '.join(lies[:3])}"),
        ("silent, or not repaired", not problems, f"{len(problems)} {' '.join(problems[:3])}"),
    ]
