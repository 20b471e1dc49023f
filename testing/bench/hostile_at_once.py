"""Phases `alone` and `at-once` of the bench of hostile requests: each case against the bars."""

from __future__ import annotations

import contextlib
import os
import subprocess
import tempfile
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from controller.bootstrap import VENV
from testing.bench import hostile_groups, hostile_site
from testing.bench.hostile_bars import NONE, Bar, times
from testing.bench.hostile_cases import Case
from testing.bench.hostile_groups import Outcome

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from testing.bench.hostile_site import Sampler, Site
    from testing.e2e.host import Host

HG: Final = str(VENV / "bin/hg")
PAGE_BAR_SECONDS: Final = 1.0
LOG_SECONDS: Final = 0.1
"""For the access log, which has a request just after its answer."""


@dataclass
class Neighbour:
    """Another client, which requests pages and clones until it is stopped."""

    site: Site
    pages: list[float] = field(default_factory=list)
    failed: list[str] = field(default_factory=list)
    clones: int = 0
    broken_clones: int = 0
    _over: threading.Event = field(default_factory=threading.Event)

    def look(self) -> None:
        """Request a page every 0.1 s."""
        while not self._over.wait(0.1):
            status, seconds = self.site.request(Case("page", "/shortlog"), 60)
            self.pages.append(seconds)
            if status != "200":
                self.failed.append(status)

    def clone(self) -> None:
        """Clone again and again."""
        while not self._over.is_set():
            with tempfile.TemporaryDirectory(prefix="hgfleet-bench-") as folder:
                done = subprocess.run(
                    [HG, "clone", "-q", "-U", f"{self.site.url}/{self.site.repository}", "c"],
                    cwd=folder,
                    env={**os.environ, "HGRCPATH": self.site.hgrc},
                    capture_output=True,
                    check=False,
                )
            self.clones += 1
            self.broken_clones += done.returncode != 0
            self._over.wait(2)

    def bars(self, phase: str) -> list[Bar]:
        """Return the bars of this client."""
        clones = f"other client's broken clones of {self.clones}"
        return [
            *times(phase, "other client's pages", self.pages, PAGE_BAR_SECONDS),
            Bar(phase, "other client's failed pages", len(self.failed), 0),
            Bar(phase, clones, self.broken_clones if self.clones else NONE, 0),
        ]

    @contextlib.contextmanager
    def running(self) -> Iterator[Neighbour]:
        """Run the client until the block ends."""
        threads = [threading.Thread(target=work, daemon=True) for work in (self.look, self.clone)]
        for thread in threads:
            thread.start()
        try:
            yield self
        finally:
            self._over.set()
            for thread in threads:
                thread.join()


def attack(
    site: Site, sampler: Sampler, group: Sequence[Case], count: int, timeout: float
) -> list[Outcome]:
    """Send each case of a group `count` times, all at once."""
    before = sampler.read()
    with ThreadPoolExecutor(count * len(group)) as pool:
        # Cases take turns; otherwise the first case would take all renderers and places to wait.
        rounds = [
            [pool.submit(site.request, case, timeout) for case in group] for _ in range(count)
        ]
        answers = [
            [future.result() for future in requests] for requests in zip(*rounds, strict=True)
        ]
    time.sleep(LOG_SECONDS)
    after = sampler.read()
    return [
        Outcome(
            case.name,
            ",".join(sorted({status for status, _ in replies})),
            max(seconds for _, seconds in replies),
            (after.cpu - before.cpu) / (count * len(group)),
            after.growth,
            after.computed,
            after.dearest,
            max(0, after.peak - before.peak),
        )
        for case, replies in zip(group, answers, strict=True)
    ]


def tried_alone(
    site: Site, host: Host, chosen: Sequence[Case], timeout: float
) -> dict[str, Outcome]:
    """Send each case once, without printing it; return the outcomes by name."""
    print(f"{len(chosen)} cases are tried alone first, to make groups of them", flush=True)
    with hostile_site.sampler(host) as sampler:
        outcomes = [attack(site, sampler, [case], 1, timeout)[0] for case in chosen]
    return {outcome.name: outcome for outcome in outcomes}


def phase(
    site: Site, host: Host, groups: Sequence[Sequence[Case]], count: int, timeout: float, label: str
) -> tuple[list[Bar], list[Outcome]]:
    """Run all groups; return the bars and the outcomes.

    Without a neighbour for single requests, since its clones would count in every case.
    """
    host.run("python3", "-c", hostile_site.FRESH).ok()
    neighbour = Neighbour(site) if count > 1 else None
    outcomes: list[Outcome] = []
    with (
        hostile_site.sampler(host) as sampler,
        neighbour.running() if neighbour else contextlib.nullcontext(),
    ):
        waiting = list(groups)
        while waiting:
            group = waiting.pop(0)
            results = attack(site, sampler, group, count, timeout)
            repeated = hostile_groups.again(group, results)
            waiting[:0] = repeated
            names = {case.name for again in repeated for case in again}
            for outcome in results:
                show(outcome, "  in a group: sent again" if outcome.name in names else "")
            outcomes += [outcome for outcome in results if outcome.name not in names]
    if not sampler.requests:
        raise SystemExit("no request reached this web host: name the one that serves, with --web")
    return [*bars_of(outcomes, label), *(neighbour.bars(label) if neighbour else [])], outcomes


def bars_of(outcomes: Sequence[Outcome], label: str) -> list[Bar]:
    """Return the bars of the cases."""
    missed = sum(not outcome.is_held for outcome in outcomes)
    cases = f"cases above 2 s of CPU or 200 MB, of {len(outcomes)}"
    together = max((outcome.unit for outcome in outcomes), default=0) / 1e6
    return [
        Bar(label, cases, missed if outcomes else NONE, 0),
        Bar(label, "growth of all processes together", together, unit="MB"),
    ]


def show(outcome: Outcome, mark: str) -> None:
    """Print the line of a case."""
    mark = mark or ("" if outcome.is_held else "  MISSED")
    print(
        f"{outcome.name[:60]:60} {outcome.statuses[:16]:16} {outcome.wall:7.2f} s "
        f"{outcome.cpu:6.2f} s CPU {outcome.dearest:6.2f} s dearest {outcome.memory / 1e6:7.0f} MB "
        f"of {outcome.unit / 1e6:4.0f}{mark}",
        flush=True,
    )
