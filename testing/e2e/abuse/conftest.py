"""Fixtures of every abuse test."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from testing.e2e.abuse.support import Connection, shared
from testing.e2e.abuse.witness import Root, Witness, differences
from testing.e2e.command import run, wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster


@pytest.fixture(scope="module")
def root(cluster: Cluster) -> Iterator[Root]:
    """A shell of root on the SSH host; the probes are stopped until the tests end."""
    shell, monitor = Root(cluster.first("ssh")), cluster.first("monitoring")
    # A session ends a moment after its client.
    sessions = "pgrep -u hg -f -- '--user probe' || true"
    monitor.systemctl("stop", "hgfleet-probes.service").ok()
    try:
        wait_until("no session of the probe runs", lambda: not shell.ask(sessions).strip(), 10)
        yield shell
    finally:
        monitor.systemctl("start", "hgfleet-probes.service").ok()
        shell.close()


@pytest.fixture
def witness(root: Root) -> Iterator[Witness]:
    """Watch the host's journal during a test; fail unless the host is then as it was before."""
    before = root.world()
    assert any(line.startswith("listens") for line in before), before
    seen = Witness(root, root.cursor())
    yield seen

    def unchanged() -> bool:
        changes = differences(before, root.look(), seen.begun)
        assert not changes, "the host is not as it was:\n" + "\n".join(changes)
        return True

    # A session that was cut off may need a moment to end.
    wait_until("the host is as it was", unchanged, 10, 0.05)


@pytest.fixture
def planted(root: Root) -> Iterator[str]:
    """A link among the repositories, to a repository that bob may not read."""
    link = "/srv/hg/repos/sandbox/planted"
    root.ask(f"ln -sfn /srv/hg/repos/e2e/private {link}")
    root.forget()
    yield "sandbox/planted"
    root.ask(f"rm {link}")
    root.forget()


@pytest.fixture(scope="module")
def made_key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A key that belongs to no person."""
    key = tmp_path_factory.mktemp("key") / "key"
    run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", "made", "-f", str(key)]).ok()
    return key


@pytest.fixture(scope="module")
def bobs(cluster: Cluster) -> Iterator[Connection]:
    """Bob's connection."""
    with shared(cluster.person("bob")) as connection:
        yield connection
