"""Functions that break parts of the cluster and restore them."""

from __future__ import annotations

import subprocess
import uuid
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from testing.e2e.command import Result, run, wait_until
from testing.support import pace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host
    from testing.e2e.people import Person

    Fault = Callable[[Cluster, Host], Iterator[None]]

SECONDS_TO_RECOVER: Final = 90
SECONDS_FOR_A_LOGIN: Final = 5.0
"""Most time of an undisturbed login on a busy machine; usually it takes half a second."""
PROBE: Final = "runuser -u hgkeys -- /opt/hgfleet/current/bin/hgfleet-keys --probe"


@dataclass(frozen=True)
class Faults:
    """The faults of a test; at its end they are undone in reverse order."""

    cluster: Cluster
    stack: ExitStack

    def break_(self, fault: Fault, host: Host) -> None:
        """Begin a fault, which is a function of this module."""
        self.stack.enter_context(contextmanager(fault)(self.cluster, host))

    def stop_unit(self, host: Host, *units: str) -> None:
        """Stop units of a host."""
        self.stack.callback(lambda: host.systemctl("start", *units).ok())
        host.systemctl("stop", *units).ok()

    def freeze_unit(self, host: Host, unit: str) -> Callable[[], None]:
        """Freeze a unit's processes, so that its sockets are silent; return a function to thaw."""

        def thaw() -> None:
            host.systemctl("kill", "--signal=CONT", unit).ok()

        self.stack.callback(thaw)
        host.systemctl("kill", "--signal=STOP", unit).ok()
        return thaw


def stopped(_cluster: Cluster, host: Host) -> Iterator[None]:
    """The host is off: connections are refused or go nowhere."""
    yield from _off(host, "stop")


def killed(_cluster: Cluster, host: Host) -> Iterator[None]:
    """The host loses power: its programs have no time to end."""
    yield from _off(host, "kill")


def _off(host: Host, command: str) -> Iterator[None]:
    run(["docker", command, host.container]).ok()
    try:
        yield
    finally:
        run(["docker", "start", host.container]).ok()
        wait_until(f"{host.name} has booted", lambda: has_booted(host), SECONDS_TO_RECOVER)


def paused(_cluster: Cluster, host: Host) -> Iterator[None]:
    """The host hangs: its kernel accepts connections, and no program answers."""
    run(["docker", "pause", host.container]).ok()
    try:
        yield
    finally:
        run(["docker", "unpause", host.container]).ok()


def unplugged(cluster: Cluster, host: Host) -> Iterator[None]:
    """The host's network is gone: packets to it are lost."""
    network = cluster.env["HGFLEET_CLUSTER_NAME"]
    address = cluster.address(host)
    run(["docker", "network", "disconnect", network, host.container]).ok()
    try:
        yield
    finally:
        words = ["docker", "network", "connect", "--ip", address, "--alias", host.name]
        run([*words, network, host.container]).ok()


def all_answer(host: Host) -> bool:
    """Tell whether every directory server answers lookups, and the replica is complete."""
    lines = host.shell(PROBE).splitlines()
    assert lines
    assert all(" answers after " in line for line in lines), lines
    return host.run("hgfleet", "replica", "status").ok().code == 0


def has_booted(host: Host) -> bool:
    """Tell whether systemd has finished the boot."""
    state = host.systemctl("is-system-running").stdout.strip()
    assert state in ("running", "degraded"), state
    return True


def pushes(person: Person, place: Path) -> str:
    """Clone and push as a person; return the changeset."""
    work = person.clone(person.ssh_url("e2e/push"), place)
    node = work.commit(f"{person.name}.txt", uuid.uuid4().bytes, "in spite of it")
    work.hg("push", "--force").ok()
    return node


@dataclass(frozen=True)
class Attempt:
    """A login that is under way."""

    process: subprocess.Popen[str]

    def poll(self, seconds: float) -> int | None:
        """Return the exit code, or None if the login has not ended within that time."""
        try:
            return self.process.wait(timeout=seconds)
        except subprocess.TimeoutExpired:
            return None

    def result(self) -> Result:
        """Wait for the login's end and return its result."""
        out, err = pace.communicate(self.process, SECONDS_TO_RECOVER)
        return Result("a login that had to wait", self.process.returncode, out, err, 0.0)


def background(person: Person, command: str) -> Attempt:
    """Begin a session of a person."""
    return Attempt(
        subprocess.Popen(
            ["ssh", *person.ssh_options, *person.ssh_target, command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            env=person.environment,
        )
    )
