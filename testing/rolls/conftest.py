"""Rolls of ./deploy over the running cluster, while clients clone, pull and push.

    ./run-tests rolls                        brings the cluster up to date first
    .venv/bin/python -m pytest -p testing.e2e.conftest testing/rolls

Each test leaves the cluster with the release that it had before.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from controller import bootstrap
from controller.bootstrap import ROOT
from testing.deploys.releases import second_release, version_of
from testing.e2e.command import run
from testing.e2e.mirrors import mirrors_of, wait_for_use
from testing.faults.mirrors import wait_for_equality
from testing.rolls.clients import Clients

if TYPE_CHECKING:
    from collections.abc import Iterator

    from testing.e2e.cluster import Cluster
    from testing.e2e.command import Result
    from testing.e2e.host import Host

SECONDS_FOR_A_DEPLOY: Final = 1800


@dataclass(frozen=True)
class Operator:
    """The operator of the cluster, with the cluster's release and other releases made from it."""

    cluster: Cluster
    folder: Path

    @cached_property
    def archive(self) -> Path:
        """The archive of the release that the cluster has."""
        return Path(self.cluster.env["HGFLEET_RELEASE_ARCHIVE"])

    def another(self, name: str, change: str = "") -> Path:
        """Return the archive of another release; see `second_release`."""
        return second_release(self.archive, self.folder, name, change)

    def deploy(self, *options: str) -> Result:
        """Run ./deploy on the cluster to its end."""
        # The tree cannot be attested yet: these tests are a part of the run that attests it.
        words = ["cluster", "--yes", *options, "--untested", "a test of the roll"]
        done = run(
            [sys.executable, str(ROOT / "deploy"), *words],
            env={**bootstrap.controller_environment(), **self.cluster.env},
            cwd=ROOT,
            seconds=SECONDS_FOR_A_DEPLOY,
        )
        return replace(done, command=f"./deploy {' '.join(words)}")

    def releases(self) -> dict[str, str]:
        """Return the current release of each host."""
        script = "basename $(readlink /opt/hgfleet/current)"
        return {host.name: host.shell(script).strip() for host in self.cluster.hosts}

    def having(self, version: str) -> set[str]:
        """Return the hosts that have a release, current or not."""
        script = f"ls -d /opt/hgfleet/releases/{version} 2>/dev/null || :"
        return {host.name for host in self.cluster.hosts if host.shell(script)}

    @property
    def mirrors(self) -> list[Host]:
        """The mirrors, the canary first."""
        return mirrors_of(self.cluster)


@pytest.fixture(scope="module")
def operator(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Operator:
    """Return the operator of a cluster whose hosts all have the release of this checkout."""
    made = Operator(cluster, tmp_path_factory.mktemp("releases"))
    assert set(made.releases().values()) == {version_of(made.archive)}
    return made


@pytest.fixture
def clients(operator: Operator, tmp_path: Path) -> Iterator[Clients]:
    """Let clients work during a test; afterwards restore the cluster and its release."""
    try:
        with Clients(operator.cluster, tmp_path) as working:
            working.wait_for_more()
            yield working
        print(working.said)
    finally:
        if set(operator.releases().values()) != {version_of(operator.archive)}:
            operator.deploy("--no-plan", "--release", str(operator.archive)).ok()
        for host in operator.mirrors:
            wait_for_use(operator.cluster, host)
        wait_for_equality(operator.cluster)
