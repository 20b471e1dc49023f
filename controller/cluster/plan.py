"""The steps of `./cluster up` by the state of its hosts: a pure decision."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Collection


@dataclass(frozen=True)
class Plan:
    """The steps of an `up`, in their order."""

    repair: bool
    """Restart hosts that are there, and undo changes of tests that no role undoes."""
    from_snapshots: bool
    converge: bool
    take_snapshots: bool


def plan(
    hosts: Collection[str],
    present: Collection[str],
    *,
    recorded: bool,
    snapshots: bool,
    left_by_tests: bool,
    keep: bool,
) -> Plan:
    """Return the steps for these hosts of the inventory, of which some have a container.

    `recorded`: the last `up` has converged hosts of these roles and this release. `snapshots`: each
    host has such a snapshot. `left_by_tests`: tests on the hosts were killed, or left them broken.
    `keep`: snapshots are wanted.
    """
    # Hosts that are gone took the changes of tests with them.
    repair = left_by_tests and bool(present)
    from_snapshots = snapshots and not present
    converged = recorded and set(present) == set(hosts) and not repair
    converge = not (converged or from_snapshots)
    # No later cluster should begin with files that tests left and no role sets.
    return Plan(repair, from_snapshots, converge, converge and keep and not repair)
