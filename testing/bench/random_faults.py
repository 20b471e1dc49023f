"""Faults that come at random while a benchmark works."""

from __future__ import annotations

import threading
from collections import Counter
from random import Random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Kind = tuple[str, int, Callable[[], int]]
    """Name, weight, and a function that makes the fault and returns how many it made."""


class RandomFaults:
    """Makes faults in turn, in a thread, until the context ends.

    The seed chooses the kinds of faults and the pauses between them (seconds, from shortest to
    longest). Each fault is undone before the next begins. `problem` is the error that ended the
    thread early.
    """

    def __init__(self, seed: int, pause: tuple[float, float]) -> None:
        self.random = Random(seed)
        self.stop = threading.Event()
        self.made: Counter[str] = Counter()
        self.problem: BaseException | None = None
        self._pause = pause
        self._thread = threading.Thread(target=self._run)

    def kinds(self) -> Sequence[Kind]:
        """Return the kinds of faults."""
        raise NotImplementedError

    def __enter__(self) -> RandomFaults:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop.set()
        self._thread.join()

    def _run(self) -> None:
        kinds = self.kinds()
        weights = [weight for _, weight, _ in kinds]
        try:
            while not self.stop.wait(self.random.uniform(*self._pause)):
                ((name, _, make),) = self.random.choices(kinds, weights)
                self.made[name] += make()
        except (AssertionError, OSError, SystemExit) as problem:
            self.problem = problem

    def __str__(self) -> str:
        return ", ".join(f"{number} {kind}" for kind, number in sorted(self.made.items()))
