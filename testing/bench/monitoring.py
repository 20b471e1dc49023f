"""Cost of all monitoring on each host of the cluster, while nothing else happens.

    ./cluster up
    python -m testing.bench.monitoring
    python -m testing.bench.monitoring --seconds 300

Counted are the exporter, the writer of metrics and the upload of the journal of each host; on the
monitoring host also Prometheus, Alertmanager, the blackbox exporter, the receivers of journals, and
the probes, which clone and push.
systemd counts the processor time of the units. Memory is measured at the end, for daemons:
`anonymous` is their own memory, `resident` includes the text of the programs, which the kernel
drops when others need memory. A page that several processes share counts by its share.

Bars: 2 % of a processor and 150 MiB on each host.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from typing import TYPE_CHECKING, Any, Final

from testing.e2e.cluster import Cluster
from testing.e2e.conftest import environment

if TYPE_CHECKING:
    from collections.abc import Sequence

    from testing.e2e.host import Host

BAR_SHARE: Final = 0.02
BAR_MIB: Final = 150.0

# Runs on the host: processor time (ns) and memory (KiB) of the daemons.
READ: Final = r"""
import json, pathlib, subprocess
def shown(unit, *names):
    words = ["systemctl", "show", unit, *(f"--property={name}" for name in names)]
    lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
    return dict(line.split("=", 1) for line in lines)
words = ["systemctl", "list-units", "--plain", "--no-legend", "--state=active", *DAEMONS]
lines = subprocess.run(words, capture_output=True, text=True, check=True).stdout.splitlines()
found = {}
for unit in (line.split()[0] for line in lines):
    said = shown(unit, "CPUUsageNSec", "ControlGroup")
    found[unit] = {"cpu": int(said["CPUUsageNSec"]), "pss": 0, "own": 0}
    group = pathlib.Path(f"/sys/fs/cgroup{said['ControlGroup']}")
    for pid in (group / "cgroup.procs").read_text().split():
        fields = {}
        for line in pathlib.Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()[1:]:
            name, value = line.split(":")
            fields[name] = int(value.split()[0])
        found[unit]["pss"] += fields["Pss"]
        found[unit]["own"] += fields["Pss_Anon"]
print(json.dumps(found))
"""
DAEMONS: Final = (
    "prometheus*.service",
    "hgfleet-journal-*.service",
    "hgfleet-metrics.service",
    "hgfleet-probes.service",
)


def read(host: Host) -> dict[str, dict[str, Any]]:
    """Return the figures of each unit of monitoring that a host has."""
    script = f"DAEMONS = {DAEMONS}\n{READ}"
    figures: dict[str, dict[str, Any]] = json.loads(host.run("python3", "-c", script).ok().stdout)
    return figures


def watch(hosts: Sequence[Host], seconds: float) -> dict[str, dict[str, float]]:
    """Return the seconds of a processor that each unit took, by host, in so many seconds."""
    before = {host.name: read(host) for host in hosts}
    time.sleep(seconds)
    return {
        host.name: {
            unit: (figures["cpu"] - before[host.name][unit]["cpu"]) / 1e9
            for unit, figures in read(host).items()
            if unit in before[host.name]
        }
        for host in hosts
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and print; the exit code is 1 if a bar is missed."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--seconds", type=float, default=180.0)
    options = parser.parse_args(arguments)
    cluster = Cluster(environment())
    hosts = cluster.hosts
    began = time.monotonic()
    used = watch(hosts, options.seconds)
    seconds = time.monotonic() - began
    print(f"{'host':10} {'of a processor':>15} {'anonymous':>11} {'resident':>10}")
    is_met = True
    for host in hosts:
        share = sum(used[host.name].values()) / seconds
        now = read(host).values()
        own, resident = (sum(figures[name] for figures in now) / 1024 for name in ("own", "pss"))
        is_met = is_met and share <= BAR_SHARE and own <= BAR_MIB
        print(f"{host.name:10} {share:15.2%} {own:7.0f} MiB {resident:6.0f} MiB")
        for unit, took in sorted(used[host.name].items()):
            print(f"    {unit:32} {took / seconds:6.2%}")
    print("bars met (memory: anonymous)" if is_met else "a bar is missed")
    return 0 if is_met else 1


if __name__ == "__main__":
    sys.exit(main())
