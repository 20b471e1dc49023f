"""The mutants of a run, and the unit tests that may tell each from the original. Pure."""

from __future__ import annotations

import hashlib
import random
import re
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import TYPE_CHECKING, Final

from controller.checks.mutants.mutations import Mutation, mutations
from controller.tests.choice import references
from controller.tests.choice.selection import TESTS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

FOLDERS: Final = {
    "policies": "hgfleet/policies/",
    "ssh": "hgfleet/ssh/",
    "selfservice": "hgfleet/selfservice/",
    "replication": "hgfleet/replication/",
    "backup": "hgfleet/backup/",
    "deploy": "controller/deploy/",
}
"""The packages whose decisions are mutated, by the names that --package takes."""

OF_TOOLS: Final = re.compile(r"testing/unit/(?:checks|support|tests)/test_\w+\.py")
"""Tests that read the product as text: an explained mutant, for example, is missing in its list."""


@dataclass(frozen=True)
class Mutant:
    """A file with a mutation."""

    file: str
    mutation: Mutation

    @property
    def place(self) -> str:
        """Name the mutant by its function and change, without its line."""
        return f"{self.file} {self.mutation.scope} {self.mutation.change}"

    def __str__(self) -> str:
        mutation = self.mutation
        return f"{self.file}:{mutation.line} {mutation.change}  (in {mutation.scope})"


def all_of(sources: Mapping[str, str], folder: str) -> list[Mutant]:
    """Return every mutant of the files in a folder, in the order of names and places."""
    return [
        Mutant(file, mutation)
        for file, text in sorted(sources.items())
        if file.startswith(folder) and file.endswith(".py")
        for mutation in mutations(text)
    ]


def sample(packages: Iterable[Sequence[Mutant]], number: int, seed: int) -> list[Mutant]:
    """Choose as many mutants of each package, the same for the same seed; 0 chooses all.

    A larger sample begins with the smaller sample.
    """
    # `random` is seeded to repeat a run; nothing is secret here.
    shuffled = [
        random.Random(f"{seed} {index}").sample(mutants, len(mutants))
        for index, mutants in enumerate(packages)
    ]
    turns = [mutant for mutant in chain.from_iterable(zip_longest(*shuffled)) if mutant is not None]
    return turns[:number] if number else turns


def tests_of(
    file: str,
    graph: Mapping[str, frozenset[str]],
    most: int,
    tiers: Iterable[str],
) -> list[str]:
    """Return the files of tests that depend on a file, at most `most` of a tier, nearest first.

    Stories (.t) are left out: pytest does not run them.
    """
    far = distances(file, graph)
    chosen: list[str] = []
    for tier in tiers:
        tests = [name for name in far if name.endswith(".py") and TESTS[tier].fullmatch(name)]
        tests = [name for name in tests if not OF_TOOLS.fullmatch(name)]
        chosen += sorted(tests, key=lambda name: (far[name], name))[:most]
    return chosen


def distances(file: str, graph: Mapping[str, frozenset[str]]) -> dict[str, int]:
    """Return every dependent of a file with the number of imports between them."""
    dependents = references.dependents([file], graph)
    reached = {file: 0}
    last = {file}
    while last:
        last = {name for name in dependents - set(reached) if graph.get(name, frozenset()) & last}
        far = max(reached.values()) + 1
        reached |= dict.fromkeys(last, far)
    return reached


def key(mutant: Mutant, sources: Mapping[str, str], tests: Iterable[str]) -> str:
    """Return the name of a result: it changes with the mutated file and with the tests."""
    mutation = mutant.mutation
    parts = [mutant.file, str(mutation.start), str(mutation.end), mutation.text]
    parts.append(sources[mutant.file])
    parts += [f"{name}\n{sources[name]}" for name in sorted(tests)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()[:24]
