"""A cheap check that the cluster is well, by the answers that clients get."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

from testing.e2e.command import run, wait_until

if TYPE_CHECKING:
    from collections.abc import Callable, Collection

    from testing.e2e.cluster import Cluster
    from testing.e2e.host import Host

SECONDS: Final = 60
"""For mirrors to reconnect and catch up, after all faults are undone."""


def daemons(shown: str) -> list[str]:
    """Return the failed units in the output of `systemctl show` that nothing starts again.

    A job that a timer or a path starts again does not count: its last run met the fault of a test.
    """
    failed = []
    for block in shown.strip().split("\n\n"):
        words = dict(line.partition("=")[::2] for line in block.splitlines())
        if words.get("Id") and not words.get("TriggeredBy"):
            failed.append(words["Id"])
    return failed


def unused(shown: str) -> list[str]:
    """Return the web hosts that get no readers, by the proxy's `show stat`."""
    rows = [line.split(",") for line in shown.splitlines() if line.startswith("web,")]
    servers = {row[1]: row[17] for row in rows if row[1] not in ("FRONTEND", "BACKEND")}
    if not servers:
        return ["no web host is known to the proxy"]
    return [
        f"the proxy sends no readers to {name}: {state}"
        for name, state in servers.items()
        if not state.startswith("UP")
    ]


def absent(shown: str, hosts: Collection[str]) -> list[str]:
    """Return the hosts that do not run, by lines of `docker ps` with host and state."""
    states = dict(line.split(" ", 1) for line in shown.splitlines() if " " in line)
    actual = {name: states.get(name, "missing") for name in hosts}
    return [f"{name} is {state}" for name, state in actual.items() if state != "running"]


def problems(cluster: Cluster) -> list[str]:
    """Return the parts that are not well; each entry names a host, a unit or an answer."""
    hosts = {host.name: host for host in cluster.hosts}
    label = f"label=hgfleet.cluster={cluster.env['HGFLEET_CLUSTER_NAME']}"
    form = '{{.Label "hgfleet.host"}} {{.State}}'
    away = absent(run(["docker", "ps", "-a", "--filter", label, "--format", form]).stdout, hosts)
    if away:
        # The other checks would wait for these hosts.
        return away

    def units(host: Host) -> list[str]:
        lines = host.systemctl("--failed", "--plain", "--no-legend").ok().stdout.splitlines()
        failed = [line.split()[0] for line in lines if line.strip()]
        if not failed:
            return []
        shown = host.systemctl("show", "--property=Id,TriggeredBy", *failed).ok().stdout
        return [f"{unit} on {host.name} has failed" for unit in daemons(shown)]

    def web() -> list[str]:
        page = cluster.get("")
        return [] if page.status == 200 else [f"the web part answers {page.status}"]

    def ssh() -> list[str]:
        asked = cluster.person("alice").ssh("whoami")
        return [] if asked.code == 0 else [f"SSH answers alice: {asked.output.strip()}"]

    def mirrors() -> list[str]:
        stats = "echo 'show stat' | socat - /run/haproxy/admin.sock"
        return unused(cluster.first("proxy").shell(stats))

    def answer(look: Callable[[], list[str]]) -> list[str]:
        try:
            return look()
        except (AssertionError, OSError) as error:
            return [str(error).splitlines()[0] if str(error) else repr(error)]

    looks = [web, ssh, mirrors, *((lambda host=host: units(host)) for host in hosts.values())]
    with ThreadPoolExecutor(4) as pool:
        return [problem for each in pool.map(answer, looks) for problem in each]


def wait(cluster: Cluster, seconds: float = SECONDS) -> None:
    """Wait until the cluster is well; the error names the parts that are not."""

    def probe() -> bool:
        left = problems(cluster)
        assert not left, "; ".join(left)
        return True

    wait_until("the cluster is well", probe, seconds, 0.5)
