"""A push that has begun ends well while the server restarts or the release changes."""

from __future__ import annotations

import os
import subprocess
import uuid
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest

from controller.bootstrap import ROOT
from testing.e2e.command import Result, wait_until
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Clone, Person

pytestmark = pytest.mark.disruptive

REPOSITORY = "e2e/sessions"
SITE = str(ROOT / "ansible/site.yml")
UNIT = "hgfleet-sshd.service"
RELEASES = "/opt/hgfleet/releases"


@pytest.fixture
def host(cluster: Cluster) -> Host:
    return cluster.first("ssh")


@pytest.fixture
def work(alice: Person, tmp_path: Path) -> Clone:
    """Alice's clone of the repository."""
    return alice.clone(alice.ssh_url(REPOSITORY), tmp_path / "work")


class Push:
    """A push that has a session, and has not sent its changesets yet."""

    def __init__(self, process: subprocess.Popen[str], gate: Path) -> None:
        self.process = process
        self._gate = gate

    def finish(self) -> Result:
        """Let the push continue to its end; return its result."""
        with self._gate.open("w") as gate:
            gate.write("\n")
        out, err = pace.communicate(self.process, 60)
        return Result("hg push", self.process.returncode, out, err, 0)


@contextmanager
def begun(work: Clone) -> Iterator[Push]:
    """Begin a push, and hold it after the discovery of the server's missing changesets."""
    gate, reached = work.path.parent / "gate", work.path.parent / "reached"
    os.mkfifo(gate)
    hook = f"hooks.preoutgoing.hold=touch '{reached}'; read go < '{gate}'"
    with subprocess.Popen(
        [*work.owner.hg_command, "push", "--config", hook],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=work.path,
        env=work.owner.environment,
    ) as process:
        try:
            wait_until("the push waits in the middle", reached.exists)
            yield Push(process, gate)
        finally:
            if process.poll() is None:
                process.kill()


def main_pid(host: Host) -> int:
    """Return the id of the server's main process."""
    return int(host.shell(f"systemctl show -P MainPID {UNIT}"))


def test_a_push_outlives_reload_restart_and_stop_of_the_server(
    cluster: Cluster, host: Host, work: Clone, bob: Person
) -> None:
    node = work.commit("file", uuid.uuid4().bytes, "outlive the server")

    with begun(work) as push:
        before = main_pid(host)
        # `reload` returns when the server has been told; the server is away while it restarts.
        host.systemctl("reload", UNIT).ok()
        wait_until("the server answers after a reload", lambda: bob.ssh("whoami").ok(), 60)
        host.systemctl("restart", UNIT).ok()
        assert main_pid(host) != before
        wait_until("the server answers after a restart", lambda: bob.ssh("whoami").ok(), 60)
        host.systemctl("stop", UNIT).ok()
        try:
            assert push.process.poll() is None
            push.finish().ok()
        finally:
            host.systemctl("start", UNIT).ok()

    assert node in cluster.remote_heads(REPOSITORY)


# --- a deploy ---------------------------------------------------------------------------------


@pytest.fixture
def other_release(host: Host) -> Iterator[str]:
    """Make a release of another name current, as before a deploy."""
    name = host.shell("basename $(readlink /opt/hgfleet/current)").strip()
    other = f"{RELEASES}/0-before-{uuid.uuid4().hex[:8]}"
    host.shell(
        f"cp -a {RELEASES}/{name} {other}\n"
        # The programs of a release contain the path of its interpreter, which finds everything
        # else.
        f"grep -rlIF {RELEASES}/{name} {other}/bin | xargs sed -i 's#{RELEASES}/{name}#{other}#g'\n"
        f"ln -sfn {other} /opt/hgfleet/new && mv -T /opt/hgfleet/new /opt/hgfleet/current"
    )
    yield other
    host.shell(
        f"ln -sfn releases/{name} /opt/hgfleet/new && mv -T /opt/hgfleet/new /opt/hgfleet/current\n"
        f"rm -rf {other} {other}-kept"
    )


def sessions_of(host: Host, release: str) -> list[str]:
    """Return the processes of hg that run from a release."""
    return host.shell(f"grep -ls {release}/ /proc/[0-9]*/maps || true").split()


def deploy(cluster: Cluster, host: Host, parts: str) -> Result:
    """Deploy parts on the ssh host, and keep as few releases as the role allows."""
    words = [SITE, "--limit", host.name, "--tags", parts, "-e", "release_kept=2"]
    return cluster.ansible("ansible-playbook", *words).ok()


@pytest.mark.whole
@pytest.mark.slow
def test_a_push_outlives_a_deploy_with_the_release_it_began_with(
    cluster: Cluster, host: Host, other_release: str, work: Clone
) -> None:
    node = work.commit("file", uuid.uuid4().bytes, "outlive a deploy")

    with begun(work) as push:
        assert sessions_of(host, other_release), "no session runs from the release of before"
        deploy(cluster, host, "release,ssh")

        assert host.shell("readlink -f /opt/hgfleet/current").strip() != other_release
        assert sessions_of(host, other_release), "the session ended, or has another release now"
        # The newest release that is not current, here `-kept`, is kept for a rollback.
        host.shell(f"mkdir {other_release}-kept")
        deploy(cluster, host, "release")
        host.shell(f"test -e {other_release}/VERSION")
        push.finish().ok()

    assert node in cluster.remote_heads(REPOSITORY)
    wait_until("the session is over", lambda: not sessions_of(host, other_release))
    deploy(cluster, host, "release")
    assert host.run("test", "-e", other_release).code != 0, "nobody uses it, and it is still there"
