"""Clients do not notice a deploy, and a broken release goes no further than the canary."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import pytest

from testing.deploys.releases import version_of
from testing.e2e.mirrors import is_used
from testing.rolls.releases import BROKEN, Broken

if TYPE_CHECKING:
    from testing.rolls.clients import Clients
    from testing.rolls.conftest import Operator

pytestmark = [pytest.mark.disruptive, pytest.mark.slow]

HELD_SECONDS: Final = 5.0
HOSTS: Final = "web"
"""The hosts that a repository's clients use: mirrors and primary. Other hosts take longer."""


def held_seconds(summary: str, host: str) -> float:
    """Return for how long a host held pushes, from the table at the end of a deploy."""
    match = re.search(rf"^{host} .* (\d+\.\d+) s$", summary, re.MULTILINE)
    assert match, summary
    return float(match[1])


def test_clients_notice_neither_a_new_release_nor_the_way_back(
    operator: Operator, clients: Clients
) -> None:
    before, primary = operator.releases(), operator.cluster.first("ssh").name
    upgrade = operator.another("upgrade")

    done = operator.deploy("--no-plan", "--limit", HOSTS, "--release", str(upgrade)).ok()
    having = {
        name for name, version in operator.releases().items() if version == version_of(upgrade)
    }
    assert having == {host.name for host in operator.cluster.all("web")}
    assert held_seconds(done.stdout, primary) <= HELD_SECONDS
    clients.wait_for_more()
    assert not clients.failed, "\n".join(clients.failed)

    done = operator.deploy("--limit", HOSTS, "--rollback").ok()
    assert operator.releases() == before
    assert held_seconds(done.stdout, primary) <= HELD_SECONDS
    clients.wait_for_more()
    assert not clients.failed, "\n".join(clients.failed)


@pytest.mark.parametrize("broken", BROKEN, ids=lambda broken: broken.name)
def test_a_broken_release_is_taken_back_at_the_canary(
    operator: Operator, clients: Clients, broken: Broken
) -> None:
    before, canary = operator.releases(), operator.mirrors[0]
    archive = operator.another(broken.name, broken.change)

    done = operator.deploy("--no-plan", "--limit", HOSTS, "--release", str(archive))

    done.refused(f"canary: {canary.name} failed: ", "and was checked and put back. No other host")
    reason = done.stderr.rpartition(f"canary: {canary.name} failed: ")[2]
    assert any(words in reason for words in broken.reasons), done
    assert operator.releases() == before
    assert operator.having(version_of(archive)) == {canary.name}
    assert is_used(operator.cluster, canary)
    clients.wait_for_more()
    assert not clients.failed, "\n".join(clients.failed)
