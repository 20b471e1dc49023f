"""Mitogen's linear strategy, with processes that run on any processor.

On a machine with two processors, Mitogen pins its multiplexer to one and all other processes of
the controller to the other; several runs of Ansible then share that one.
"""

from __future__ import annotations

import ansible_mitogen.affinity
import ansible_mitogen.loaders
import ansible_mitogen.strategy

DOCUMENTATION = """
    name: mitogen_unpinned
    short_description: Mitogen's linear strategy without processor affinity
    description:
      - Runs tasks as the strategy linear does, through Mitogen, and pins no process to a processor.
    author: hgfleet
"""

ansible_mitogen.affinity.policy = ansible_mitogen.affinity.Policy()

Linear = ansible_mitogen.loaders.strategy_loader.get("linear", class_only=True)


class StrategyModule(ansible_mitogen.strategy.StrategyMixin, Linear):  # type: ignore[misc]
    """Mitogen's linear strategy."""
